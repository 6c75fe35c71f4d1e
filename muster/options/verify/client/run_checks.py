"""The run of a verification: it is started and watched through the SDK, and what it shows and leaves is compared."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from muster.client.runs.run_state import RunState
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import MusterError
from muster.contract.layout import RunLayout
from muster.contract.names import TRAINING_LOG_GROUP, JobName, run_job_prefix
from muster.contract.run.result import Result
from muster.options.verify.client import own_run as own
from muster.options.verify.client.check_outcomes import Check, CheckOutcome, check, judged
from muster.options.verify.client.own_run import (
    DELETED_FILE,
    FAILING_RANK,
    FAILS_AFTER,
    KEPT_FILE,
    REPLICAS,
    REPORT_MARK,
)
from muster.options.verify.client.verified_stack import Account, UncheckedError, made

if TYPE_CHECKING:
    from muster.client.sdk import Run
    from muster.contract.spec.spec import Spec

EVENT_SECONDS_MAX = 120.0
"""From the end of a job to its rerun: EventBridge, react, the workflow, attempt."""
LATE_SECONDS_MAX = 60.0
"""Of a line of the log."""
# CloudWatch Logs takes most lines within seconds; the page is written after the result.
_WAIT_SECONDS = 120.0
CHECKS = (
    *("run", "rerun", "job-event-delay", "checkpoint-restored", "checkpoint-deleted", "logs"),
    *("status", "result", "page"),
)
LEFTOVERS = ("nothing-runs", "schedules-left", "objects-left")
# SageMaker: a job that is stopped has two minutes to save its work, and then uploads it.
JOBS_END_WITHIN_SECONDS = 600.0
_DELETED_AT_ONCE = 1_000  # DeleteObjects
_WORKFLOW = "See the execution in the Step Functions console, and the log of the function react."
_LOGS = "See the replicas' role: logs:CreateLogStream, logs:PutLogEvents; and your own right logs:FilterLogEvents."


class SmokeRun:
    """The run and its checks; what it left is read when it is first needed."""

    def __init__(self, account: Account, run: Run, poll_seconds: float) -> None:
        self._account, self._run, self._poll_seconds = account, run, poll_seconds

    def checks(self, spec: Spec) -> Iterator[Check]:
        """Start the run and make every check of it. After an interruption, which is raised, it still runs."""
        began = time.monotonic()
        try:
            self._run.muster.launch(spec)
            status = self._run.wait(own.MINUTES_AT_MOST * 60.0, poll_seconds=self._poll_seconds)
        except MusterError as error:
            seen = f"the run was not started, or did not end by itself: {error}"
            yield check("run", CheckOutcome.FAILED, seen, "Mend what the checks above name, first.")
            reason = "the run did not end by itself."
            raise UncheckedError(reason) from error
        seen = f"{self._run.name} succeeded after {(time.monotonic() - began) / 60:.1f} minutes."
        problems = {f"{self._run.name} is {status.state}: {status.reason}": status.state is not RunState.SUCCEEDED}
        yield judged("run", seen, problems, f"See why: muster status {self._run.name}; muster logs {self._run.name}")
        asked = (
            *(self._rerun, self._event_delay, self._restored, self._deleted, self._logs),
            *(self._status, self._same_result, self._page),
        )
        for name, one in zip(CHECKS[1:], asked, strict=True):
            yield from made((name,), partial(one, name))

    def _until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + _WAIT_SECONDS
        while not done() and time.monotonic() < deadline:
            time.sleep(self._poll_seconds)

    @cached_property
    def _result(self) -> Result:
        return self._run.result()

    @cached_property
    def _jobs(self) -> dict[str, Any]:
        """Every job of the run by its name, as SageMaker describes it."""
        attempts = [attempt for replica in self._result.replicas for attempt in replica.attempts]
        jobs = [attempt.job for attempt in attempts if attempt.was_created]
        return {job: self._account.ask("sagemaker", "describe_training_job", TrainingJobName=job) for job in jobs}

    def _job(self, attempt: int) -> Any:
        """The job of an attempt of the failing rank; empty if there was none."""
        name = JobName(self._account.cloud.stack.job_prefix, self._run.name, FAILING_RANK, attempt)
        return self._jobs.get(str(name), {})

    @cached_property
    def _lines(self) -> list[Any]:
        """The events of CloudWatch Logs, once each attempt has reported; else what is there after a while."""
        found: list[Any] = []
        prefix = run_job_prefix(self._account.cloud.stack.job_prefix, self._run.name)
        place = {"logGroupName": TRAINING_LOG_GROUP, "logStreamNamePrefix": prefix}

        def reported() -> bool:
            found[:] = self._account.listed("logs", "filter_log_events", "events", **place)
            return sum(map(_is_report, found)) > REPLICAS

        self._until(reported)
        return found

    @property
    def _reports(self) -> dict[tuple[int, int], Any]:
        """What the attempts said about their containers, by rank and attempt."""
        found = [json.loads(one["message"].removeprefix(REPORT_MARK)) for one in self._lines if _is_report(one)]
        return {(report["rank"], report["attempt"]): report for report in found}

    @property
    def _second(self) -> Any:
        """What the second attempt of the failing rank said."""
        if report := self._reports.get((FAILING_RANK, 2)):
            return report
        reason = "the rerun did not say what it found in its container."
        raise UncheckedError(reason, _LOGS)

    def _rerun(self, name: str) -> Iterator[Check]:
        attempts = next((item.attempts for item in self._result.replicas if item.rank == FAILING_RANK), ())
        taken, second = attempts[0].failure_class if attempts else None, self._job(2)
        reason, ended = self._job(1).get("FailureReason"), second.get("TrainingJobStatus")
        problems = {
            f"its failure is taken for {taken}; SageMaker's reason is {reason!r}": taken is not FailureClass.USER_CODE,
            f"its rerun is {ended or 'missing'}: {second.get('FailureReason')}": ended != "Completed",
            f"it had {len(attempts)} attempts instead of 2": len(attempts) > 2,
        }
        seen = f"rank {FAILING_RANK} failed on purpose, was taken for user-code, and its second attempt completed."
        yield judged(name, seen, problems, _WORKFLOW)

    def _event_delay(self, name: str) -> Iterator[Check]:
        ended, created = self._job(1).get("TrainingEndTime"), self._job(2).get("CreationTime")
        if ended is None or created is None:
            reason = "there is no rerun whose delay could be measured."
            raise UncheckedError(reason)
        delay = (created - ended).total_seconds()
        seen = f"the rerun was created {delay:.0f} s after the end of the failed job"
        remedy = "If an event was lost, a rerun waits until the attempt is re-armed: see the dead letters and the rule."
        yield judged(name, f"{seen}.", {seen: delay > EVENT_SECONDS_MAX}, remedy)

    def _restored(self, name: str) -> Iterator[Check]:
        report = self._second
        seen = f"continued after step {report['steps']} of round {report['round']}"
        problems = {f"the rerun did not find {one}": one not in report["restored"] for one in (KEPT_FILE, DELETED_FILE)}
        problems[f"the rerun {seen}, not {FAILS_AFTER}"] = {report["round"], report["steps"]} != {FAILS_AFTER}
        remedy = "See the checkpoints of the run, and s3:GetObject of the role."
        yield judged(name, f"the rerun found both files and {seen}.", problems, remedy)

    def _deleted(self, name: str) -> Iterator[Check]:
        prefix = RunLayout(self._run.name).checkpoints(FAILING_RANK)
        present = [key.removeprefix(prefix) for key in self._account.cloud.objects.keys_after(prefix, prefix)]
        problems = {
            f"{DELETED_FILE} was not there to be deleted": DELETED_FILE not in self._second["restored"],
            f"{KEPT_FILE}, which was not deleted, is not in the bucket": KEPT_FILE not in present,
            f"{DELETED_FILE} was deleted in the container and is still in the bucket": DELETED_FILE in present,
        }
        seen = f"{DELETED_FILE} was deleted in the container and is gone from the bucket; {KEPT_FILE} is there."
        remedy = "Old checkpoints would come back at every restart: see s3:DeleteObject under checkpoints/."
        yield judged(name, seen, problems, remedy)

    def _logs(self, name: str) -> Iterator[Check]:
        silent, lines = REPLICAS + 1 - len(self._reports), [one for one in self._lines if "ingestionTime" in one]
        delay = max([(line["ingestionTime"] - line["timestamp"]) / 1000 for line in lines], default=0)
        late = f"a line reached CloudWatch Logs {delay:.0f} s after it was written"
        problems = {f"{silent} attempts have no line in the log": silent > 0, late: delay > LATE_SECONDS_MAX}
        yield judged(name, f"every attempt has lines, and each came within {delay:.0f} s.", problems, _LOGS)

    def _status(self, name: str) -> Iterator[Check]:
        shown = {one.job: one.status for one in self._run.status().replicas if one.job}
        problems: dict[str, object] = {"it shows no job": not shown}
        for job, status in shown.items():
            found = self._jobs[job]["TrainingJobStatus"]
            problems[f"{job} is shown as {status}, and is {found}"] = status != found
        seen = "`muster status` agrees with DescribeTrainingJob at the end of every replica."
        yield judged(name, seen, problems, "See the dead letters, and the log of the function react.")

    def _same_result(self, name: str) -> Iterator[Check]:
        result, same = self._result, self._result.parameters_identical
        problems: dict[str, object] = {f"the replicas do not report the same parameters ({same})": same is not True}
        for item in result.replicas:
            problems[f"rank {item.rank} ended in round {item.round}"] = item.round != own.ROUNDS
            problems[f"rank {item.rank}: {item.problem}"] = item.problem
        problems[f"it names no model: {result.model_problem}"] = result.model is None
        seen = f"both replicas ended in round {own.ROUNDS} with the same bytes."
        yield judged(name, seen, problems, f"See: muster result {self._run.name} --json")

    def _page(self, name: str) -> Iterator[Check]:
        self._until(lambda: self._run.status().page)
        page = self._run.status().page
        yield judged(name, f"it is {page}.", {"the run has no page": not page}, "See the log of the function settle.")


def _is_report(event: Any) -> bool:
    return str(event["message"]).startswith(REPORT_MARK)


def leftovers(account: Account, run: str, poll_seconds: float) -> Iterator[Check]:
    """Wait until nothing of the run is left, then remove its schedules and objects.

    While something runs, nothing is removed: SageMaker would write the objects of a job that ends later again.
    """
    deadline = time.monotonic() + JOBS_END_WITHIN_SECONDS
    while (running := _running(account, run)) and time.monotonic() < deadline:
        time.sleep(poll_seconds)
    problems: dict[str, object] = {f"{one} has not ended": True for one in running}
    remedy = "Stop it: aws sagemaker stop-training-job --training-job-name NAME; muster verify --no-run"
    yield judged(LEFTOVERS[0], "no training job and no execution of the run is left.", problems, remedy)
    yield from made(LEFTOVERS[1:2], lambda: _schedules(account, run, running))
    yield from made(LEFTOVERS[2:], lambda: _objects(account, run, running))


def _running(account: Account, run: str) -> list[str]:
    # The execution first: once it has ended, it creates no job.
    execution = ["the execution"] if account.cloud.executions.describe(run).ended_at is None else []
    active = account.cloud.jobs.active()
    return [*execution, *dict.fromkeys(f"the training job {job.name}" for job in active if job.name.run == run)]


def _schedules(account: Account, run: str, running: list[str]) -> Iterator[Check]:
    if running:
        reason = "it was not looked at, because something of the run still runs."
        raise UncheckedError(reason)
    prefix = f"{account.cloud.stack.job_prefix}-{run}-"
    names = [one["Name"] for one in account.ask("scheduler", "list_schedules", NamePrefix=prefix)["Schedules"]]
    for name in names:
        account.ask("scheduler", "delete_schedule", Name=name)
    yield check(LEFTOVERS[1], CheckOutcome.OK, f"no schedule of the run is left; {len(names)} were removed.")


def _objects(account: Account, run: str, running: list[str]) -> Iterator[Check]:
    bucket, objects, layout, kept, removed = account.cloud.stack.bucket, account.cloud.objects, RunLayout(run), [], 0
    # `muster status` and `muster result` read the last two.
    for prefix in (layout.rendezvous, f"checkpoints/{run}/", layout.output, f"control/{run}/", f"runs/{run}/"):
        keys = list(objects.keys_after(prefix, prefix))
        if not running and not prefix.startswith(("control/", "runs/")):
            with suppress(UncheckedError):
                for at in range(0, len(keys), _DELETED_AT_ONCE):
                    chosen = {"Objects": [{"Key": key} for key in keys[at : at + _DELETED_AT_ONCE]], "Quiet": True}
                    account.ask("s3", "delete_objects", Bucket=bucket, Delete=chosen)
        left = len(list(objects.keys_after(prefix, prefix)))
        removed += len(keys) - left
        kept += [f"{prefix} ({left} objects)"] if left else []
    yield check(
        LEFTOVERS[2], CheckOutcome.INFO, f"{removed} objects were removed. Kept: {'; '.join(kept) or 'nothing'}."
    )
