"""Starts the run of a verification, watches it, and reads what it left."""

from __future__ import annotations

import gzip
import io
import tarfile
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from muster.client.errors import ClientError, WaitTimeoutError
from muster.client.runs.run_status import RunStatus
from muster.client.verify.asking import UncheckedError, allowed
from muster.client.verify.own_run import FAILING_RANK, MINUTES_AT_MOST, REPORT_MARK
from muster.client.verify.run_facts import ContainerReport, JobFacts, LogFacts, Look, OutputFacts, RunFacts, without_end
from muster.client.verify.services import Account
from muster.contract.errors import MusterError
from muster.contract.layout import RunLayout, split_s3_uri
from muster.contract.names import TRAINING_LOG_GROUP, run_job_prefix
from muster.contract.run.result import Result
from muster.contract.spec.stack_defaults import StackDefaults

if TYPE_CHECKING:
    from muster.client.sdk import Run
    from muster.contract.spec.spec import Spec

_Seen = TypeVar("_Seen")
# CloudWatch Logs takes most lines within seconds; the page is written after the result.
_LATE_SECONDS = 120.0
_ARCHIVE_BYTES_MAX = 10 * 1024 * 1024
_UNPACKED_BYTES_MAX = 100 * 1024 * 1024
_CAUSE_SHOWN = 200
ATTEMPTS = 3
"""Two replicas, and one rerun."""


@dataclass(frozen=True)
class Watching:
    """How a run is watched."""

    poll_seconds: float = 5.0
    timeout_seconds: float = MINUTES_AT_MOST * 60.0


def gather_run(account: Account, run: Run, spec: Spec, watching: Watching) -> RunFacts:
    """Launch `spec` as `run`, wait for its end, and read everything. After an interruption the run still runs.

    Raises:
        KeyboardInterrupt: Ctrl-C was pressed.
    """
    prefix = account.cloud.stack.job_prefix
    began = time.monotonic()
    try:
        run.muster.launch(spec)
    except MusterError as error:
        return RunFacts(run.name, prefix, problem=f"the run could not be started: {error}")
    looks: list[Look] = []

    def look(status: RunStatus) -> None:
        looks.extend(_looks(account, status, time.monotonic() - began))

    try:
        status = run.wait(watching.timeout_seconds, progress=look, poll_seconds=watching.poll_seconds)
    except WaitTimeoutError:
        run.cancel()
        problem = f"the run had not ended after {watching.timeout_seconds / 60:.0f} minutes and was cancelled"
        return RunFacts(run.name, prefix, time.monotonic() - began, problem, looks=tuple(looks))
    seconds = time.monotonic() - began
    result = run.result()
    jobs = {job.name: job for job in _jobs(account, result)}
    not_rolled_up = _until(
        lambda: without_end(result, account.cloud.roll_ups.of_run(run.name)), lambda ranks: not ranks, watching
    )
    return RunFacts(
        run=run.name,
        prefix=prefix,
        seconds=seconds,
        state=status.state,
        reason=status.reason,
        result=result,
        jobs=jobs,
        looks=tuple(looks),
        rolled_up_seconds=_rolled_up(account, run.name, jobs.values()),
        not_rolled_up=not_rolled_up,
        logs=_logs(account, run.name, watching),
        checkpoints=_checkpoints(account, run.name),
        outputs=_outputs(account, run, result, watching),
        has_key=StackDefaults.from_json(account.cloud.stack.defaults, "ReplicaDefaults").kms_key_id is not None,
    )


def _looks(account: Account, status: RunStatus, seconds: float) -> Iterator[Look]:
    """What SageMaker says of the jobs that `status` shows, just after the look."""
    for replica in status.replicas:
        if replica.job is None or replica.status is None:
            continue
        with allowed("sagemaker:DescribeTrainingJob"):
            found = account.sagemaker.describe_training_job(TrainingJobName=replica.job)["TrainingJobStatus"]
        yield Look(seconds, replica.job, replica.status, found)


def _jobs(account: Account, result: Result) -> Iterator[JobFacts]:
    for replica in result.replicas:
        for attempt in replica.attempts:
            if not attempt.was_created:
                continue
            with allowed("sagemaker:DescribeTrainingJob"):
                found = account.sagemaker.describe_training_job(TrainingJobName=attempt.job)
            yield JobFacts(
                name=attempt.job,
                status=found["TrainingJobStatus"],
                reason=found.get("FailureReason", ""),
                created_at=found["CreationTime"],
                ended_at=found.get("TrainingEndTime"),
                encrypted="VolumeKmsKeyId" in found["ResourceConfig"],
            )


def _rolled_up(account: Account, run: str, jobs: Iterable[JobFacts]) -> float | None:
    prefix = RunLayout(run).roll_up
    written = max((item.at for item in account.cloud.objects.items_after(prefix, prefix)), default=None)
    ended = max((job.ended_at for job in jobs if job.ended_at is not None), default=None)
    # S3 shows whole seconds. That the last write has every end is seen in `without_end`.
    return None if written is None or ended is None else max(0.0, (written - ended).total_seconds())


def _logs(account: Account, run: str, watching: Watching) -> LogFacts:
    """The lines of all attempts, once each of them has reported; else what is there after a while."""
    prefix = run_job_prefix(account.cloud.stack.job_prefix, run)

    def read() -> LogFacts:
        with allowed("logs:FilterLogEvents", f"arn:*:logs:*:*:log-group:{TRAINING_LOG_GROUP}:*"):
            pages = account.logs.get_paginator("filter_log_events").paginate(
                logGroupName=TRAINING_LOG_GROUP, logStreamNamePrefix=prefix
            )
            events = [event for page in pages for event in page["events"]]
        reports = [
            ContainerReport.read(event["message"].removeprefix(REPORT_MARK))
            for event in events
            if event["message"].startswith(REPORT_MARK)
        ]
        delays = [(event["ingestionTime"] - event["timestamp"]) / 1000 for event in events if "ingestionTime" in event]
        return LogFacts(tuple(sorted(reports, key=lambda item: (item.rank, item.attempt))), tuple(delays))

    try:
        return _until(read, lambda found: len(found.reports) >= ATTEMPTS, watching)
    except (UncheckedError, ClientError) as error:
        return LogFacts(problem=str(error))


def _checkpoints(account: Account, run: str) -> tuple[str, ...]:
    prefix = RunLayout(run).checkpoints(FAILING_RANK)
    return tuple(key.removeprefix(prefix) for key in account.cloud.objects.keys_after(prefix, prefix))


def _outputs(account: Account, run: Run, result: Result, watching: Watching) -> OutputFacts:
    page = _until(lambda: run.status().page, lambda found: found is not None, watching)
    uris = [replica.artifacts for replica in result.replicas if replica.artifacts]
    if result.model is not None:
        uris += [result.model.manifest, f"{result.model.uri}model.safetensors"]
    artifacts = {uri: account.cloud.objects.find(split_s3_uri(uri)[1]) is not None for uri in uris}
    found = OutputFacts(page, len(run.report()), artifacts)
    try:
        body = _archive(account, result)
    except (UncheckedError, ClientError) as error:
        return replace(found, problem=str(error))
    try:
        return replace(found, archive=archive_members(body))
    except ArchiveError as error:
        return replace(found, no_archive=str(error))


class ArchiveError(MusterError):
    """An object is not an archive as SageMaker is assumed to write it."""


def archive_members(body: bytes) -> tuple[str, ...]:
    """The names in a tar archive that is compressed with gzip.

    Raises:
        ArchiveError: `body` is something else.
    """
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as packed:
            unpacked = packed.read(_UNPACKED_BYTES_MAX + 1)
        if len(unpacked) > _UNPACKED_BYTES_MAX:
            message = f"it unpacks to more than {_UNPACKED_BYTES_MAX:,} bytes"
            raise ArchiveError(message)
        with tarfile.open(fileobj=io.BytesIO(unpacked)) as archive:
            return tuple(archive.getnames())
    except (OSError, EOFError, ValueError, zlib.error, tarfile.TarError) as error:
        raise ArchiveError(str(error)[:_CAUSE_SHOWN]) from error


def _archive(account: Account, result: Result) -> bytes:
    """The output.tar.gz of rank 0's last job."""
    bucket = account.cloud.stack.bucket
    key = f"{RunLayout(result.run).output}{result.replicas[0].attempts[-1].job}/output/output.tar.gz"
    with allowed("s3:GetObject", f"arn:*:s3:::{bucket}/output/*"):
        return account.s3.get_object(Bucket=bucket, Key=key)["Body"].read(_ARCHIVE_BYTES_MAX)


def _until(look: Callable[[], _Seen], done: Callable[[_Seen], bool], watching: Watching) -> _Seen:
    """What `look` returns once `done` says so, or after a while."""
    deadline = time.monotonic() + _LATE_SECONDS
    while True:
        found = look()
        if done(found) or time.monotonic() > deadline:
            return found
        time.sleep(watching.poll_seconds)
