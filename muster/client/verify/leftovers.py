"""What a run leaves: jobs, schedules, objects. What may be removed is removed, the rest is named."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from botocore.exceptions import ClientError as AwsError

from muster.client.aws.error_translation import error_code
from muster.client.verify.asking import UncheckedError, allowed, statement_text
from muster.client.verify.bucket_checks import LifecycleRule, expiry_days
from muster.client.verify.services import Account
from muster.client.verify.verification import Check, info, judged, ok, unchecked
from muster.contract.aws.job_status import JobStatus
from muster.contract.layout import RunLayout

JOBS, SCHEDULES, OBJECTS = "nothing-runs", "schedules-left", "objects-left"

# SageMaker: a job that is stopped has two minutes to save its work, and then uploads it.
JOBS_END_WITHIN_SECONDS = 600.0
_UNFINISHED = (JobStatus.IN_PROGRESS, JobStatus.STOPPING)
_DELETED_AT_ONCE = 1_000  # DeleteObjects


@dataclass(frozen=True)
class Kept:
    """Objects that stay."""

    prefix: str
    objects: int
    bytes: int
    expires_days: int | None
    reason: str


@dataclass(frozen=True)
class Leftovers:
    """What was left after the run, and after the clean-up."""

    running: tuple[str, ...]
    """Jobs that have not ended."""
    execution_running: bool
    schedules: tuple[str, ...]
    """Schedules that could not be removed."""
    removed: int
    kept: tuple[Kept, ...]


def gather_leftovers(account: Account, run: str, rules: Sequence[LifecycleRule], poll_seconds: float) -> Leftovers:
    """Wait until nothing of the run is left, then remove its schedules and objects.

    While something runs, nothing is removed: SageMaker would write the objects of a job that ends later again.
    """
    running, execution_running = _running(account, run, poll_seconds)
    idle = not running and not execution_running
    schedules = tuple(_remove_schedules(account, run)) if idle else ()
    layout = RunLayout(run)
    removed, kept = 0, []
    for prefix in (layout.rendezvous, f"checkpoints/{run}/", layout.output):
        count, left = _remove(account, prefix) if idle else (0, _counted(account, prefix, "something still runs"))
        removed += count
        if left is not None:
            kept.append(_with_expiry(left, rules))
    for prefix, reason in ((f"control/{run}/", "status and result read it"), (f"runs/{run}/", "the run's document")):
        kept.append(_with_expiry(_counted(account, prefix, reason), rules))
    return Leftovers(running, execution_running, schedules, removed, tuple(item for item in kept if item.objects))


def judge_leftovers(facts: Leftovers) -> Iterator[Check]:
    """Nothing runs, nothing is scheduled, and what stays is named."""
    problems = [f"the training job {job} has not ended" for job in facts.running]
    problems += ["the execution has not ended"] if facts.execution_running else []
    seen = "no training job and no execution of the run is left."
    yield judged(
        JOBS, problems, seen, "Stop it: aws sagemaker stop-training-job --training-job-name NAME; muster doctor"
    )
    if problems:
        yield unchecked(SCHEDULES, "it was not looked at, because something of the run still runs.")
    elif facts.schedules:
        seen = f"{', '.join(facts.schedules)}: it fires once, finds the run ended, and deletes itself."
        yield info(
            SCHEDULES, seen, statement_text(["scheduler:DeleteSchedule"], ["arn:*:scheduler:*:*:schedule/default/*"])
        )
    else:
        yield ok(SCHEDULES, "no schedule of the run is left.")
    kept = "; ".join(_kept_text(item) for item in facts.kept)
    yield info(OBJECTS, f"{facts.removed} objects were removed. {f'Kept: {kept}.' if kept else 'Nothing is kept.'}")


def _kept_text(item: Kept) -> str:
    expiry = "does not expire" if item.expires_days is None else f"expires after {item.expires_days} days"
    return f"{item.prefix} ({item.objects} objects, {item.bytes:,} bytes, {expiry}: {item.reason})"


def _running(account: Account, run: str, poll_seconds: float) -> tuple[tuple[str, ...], bool]:
    """The run's jobs that have not ended, and whether its execution has not; waits for the end of both."""
    deadline = time.monotonic() + JOBS_END_WITHIN_SECONDS
    while True:
        # The execution first: once it has ended, it creates no job. A job is InProgress before it is Stopping.
        execution = account.cloud.executions.describe(run).ended_at is None
        active = [job for status in _UNFINISHED for job in account.cloud.jobs.active(status)]
        running = tuple(dict.fromkeys(str(job.name) for job in active if job.name.run == run))
        if not (running or execution) or time.monotonic() > deadline:
            return running, execution
        time.sleep(poll_seconds)


def _remove_schedules(account: Account, run: str) -> Iterator[str]:
    """Delete the schedules of the run; yields those that stay."""
    scheduler = account.other("scheduler")
    with allowed("scheduler:ListSchedules"):
        answer = scheduler.list_schedules(NamePrefix=f"{account.cloud.stack.job_prefix}-{run}-")
    for schedule in answer["Schedules"]:
        try:
            with allowed("scheduler:DeleteSchedule"):
                scheduler.delete_schedule(Name=schedule["Name"])
        except UncheckedError:
            yield schedule["Name"]


def _remove(account: Account, prefix: str) -> tuple[int, Kept | None]:
    """Delete the objects under `prefix`; how many were deleted, and what stays."""
    bucket = account.cloud.stack.bucket
    keys = list(account.cloud.objects.keys_after(prefix, prefix))
    removed = 0
    for start in range(0, len(keys), _DELETED_AT_ONCE):
        part = keys[start : start + _DELETED_AT_ONCE]
        try:
            answer = account.s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in part]})
        except AwsError as error:
            if error_code(error) != "AccessDenied":
                raise
            break
        removed += len(part) - len(answer.get("Errors", []))
    if removed == len(keys):
        return removed, None
    return removed, _counted(account, prefix, "these credentials may not delete it (s3:DeleteObject)")


def _counted(account: Account, prefix: str, reason: str) -> Kept:
    with allowed("s3:ListBucket", f"arn:*:s3:::{account.cloud.stack.bucket}"):
        pages = account.s3.get_paginator("list_objects_v2").paginate(Bucket=account.cloud.stack.bucket, Prefix=prefix)
        sizes = [item["Size"] for page in pages for item in page.get("Contents", [])]
    return Kept(prefix, len(sizes), sum(sizes), None, reason)


def _with_expiry(kept: Kept, rules: Sequence[LifecycleRule]) -> Kept:
    return Kept(kept.prefix, kept.objects, kept.bytes, expiry_days(rules, kept.prefix), kept.reason)
