"""Looks at a run repeatedly and asks AWS each time only for what may have changed."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from muster.client.aws.cloud import Cloud
from muster.client.aws.recorded_runs import RecordedRuns
from muster.client.aws.reported import Execution, ExecutionStatus
from muster.client.client_errors import ClientError, UnknownRunError
from muster.client.runs.failed_attempt import FailedAttempt, FailedLogs, failed_attempts
from muster.client.runs.run_progress import ProgressReader, SweepReader
from muster.client.runs.run_status import (
    Observation,
    Progress,
    RunStatus,
    is_watched,
    known_attempts,
    run_status,
    settled_progress,
)
from muster.contract import timestamps
from muster.contract.errors import RunNameTakenError
from muster.contract.layout import RunLayout
from muster.contract.names import is_of_earlier_execution, numbered_run_name, run_job_prefix, run_name
from muster.contract.run.last_lines import ATTEMPTS_READ
from muster.contract.run.plan import Lineage, Plan
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.report.read_back import kept_pools

if TYPE_CHECKING:
    from muster.client.runs.event_log import EventLogEntry
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.commit import Commit
    from muster.contract.run.model_lookup import EarlierRun, Runs
    from muster.contract.run.roll_up import ReplicaEntry
    from muster.contract.run.seat_states import SeatsView

# The settlement starts the continuation, with retries when it is throttled, and the continuation's first function
# records it. One that a limit of the account or of the run prevents never starts.
_CONTINUATION_WITHIN = timedelta(minutes=2)

# In a status: CloudWatch Logs takes five calls per second, and a log needs one to four.
_LOGS_READ = 3
# The account has two ListTrainingJobs calls per second.
_POOLS_SECONDS = 30.0

# With this error plan refuses an execution that has the name of an older run. Nothing under the name is its own.
NAME_TAKEN = f"Muster.{RunNameTakenError.__name__}"


class Observer:
    """One run. What can no longer change (a commit, the result) is asked for once."""

    def __init__(self, cloud: Cloud, execution: str) -> None:
        self._cloud = cloud
        self._execution = execution
        self._run = run_name(execution)
        self._progress: ProgressReader | SweepReader | None = None
        self._continued_by: str | None = None
        self._page: str | None = None
        self._result: Result | None = None
        self._entries: Mapping[int, ReplicaEntry] = {}
        self._pools: Mapping[str, int | None] | None = None
        self._pools_at = -math.inf
        self._failed_logs = FailedLogs(cloud, execution)

    @property
    def result(self) -> Result | None:
        """The result, if a look has found it."""
        return self._result

    @property
    def attempts(self) -> dict[int, tuple[Attempt, ...]]:
        """The attempts of each replica at the latest look."""
        return known_attempts(self._entries, self._result)

    def new_commits(self) -> Iterator[Commit]:
        """The commits that looks have found since the last call, in order."""
        return iter(()) if self._progress is None else self._progress.commits()

    @property
    def unreadable_commits(self) -> int:
        """How many commits were left out because they cannot be read."""
        return 0 if self._progress is None else self._progress.unreadable

    def look(self) -> RunStatus:
        """The run's status now, however many replicas it has.

        One call for the execution, a LIST of the roll-up, a LIST of the commits; and a GET for each shard of the
        roll-up that has changed, for the newest commit, for the run queue before the first launch, for the seats of an
        elastic run, and for what is written at the end. While jobs may keep warm pools, also a LIST of those, every 30
        seconds.
        """
        execution = self._cloud.executions.describe(self._execution)
        entries = self._entries = self._read_entries(execution)
        self._find_end(execution)
        behind = None if entries or execution.ended_at is not None else self._behind()
        # A queued run has no round, nor has one that was refused because an older run has its name.
        has_rounds = behind is None and execution.error != NAME_TAKEN
        progress = self._reader(execution).read() if has_rounds else Progress()
        return run_status(
            Observation(
                run=self._execution,
                execution=execution,
                entries=entries,
                now=datetime.now(UTC),
                progress=progress if self._result is None else settled_progress(progress, self._result),
                result=self._result,
                behind=behind,
                continued_by=self._continued_by,
                awaits_continuation=self._awaits_continuation(execution),
                page=self._page,
                warm_pools=self._read_pools(execution),
                seats=self._read_seats(execution),
            )
        )

    def attempts_with_logs(self, most: int = ATTEMPTS_READ) -> dict[int, tuple[Attempt, ...]]:
        """The attempts at the latest look, with the last log lines of at most so many of those that failed."""
        return self._failed_logs.complete(self.attempts, most)

    def failures(self) -> tuple[FailedAttempt, ...]:
        """The failed attempts at the latest look, with their last log lines."""
        return failed_attempts(self._run, self.attempts_with_logs(_LOGS_READ))

    def _read_pools(self, execution: Execution) -> Mapping[str, int | None] | None:
        """The jobs that keep a warm pool; None where none can, or SageMaker does not say so."""
        if not kept_pools(self.attempts, datetime.now(UTC), execution.prices):
            return None
        if time.monotonic() - self._pools_at > _POOLS_SECONDS:
            self._pools_at = time.monotonic()
            try:
                self._pools = self._cloud.jobs.warm_pools(run_job_prefix(self._cloud.stack.job_prefix, self._run))
            except ClientError:
                self._pools = None
        return self._pools

    def _read_seats(self, execution: Execution) -> SeatsView | None:
        """The seats of an elastic run; of other runs nothing is asked."""
        if execution.seats is None or execution.error == NAME_TAKEN:
            return None
        from muster.contract.run.seat_states import SeatRecord, seat_document  # noqa: PLC0415 - of few runs

        if (stored := seat_document()) is None:
            return None
        decisions = {rank: entry.decision for rank, entry in self._entries.items()}
        records = {rank: SeatRecord(found, decisions.get(rank)) for rank, found in self.attempts.items()}
        body = self._cloud.objects.read(stored.key(self._run))
        return stored.view(body, self._run, execution.seats, records, execution.ended_at is not None)

    def _find_end(self, execution: Execution) -> None:
        """What is written once a run has ended: its result, its continuation and its page."""
        if execution.ended_at is None:
            return
        if self._result is None:
            self._result = own_result(self._cloud, execution)
        if self._result is None:
            return
        if self._continued_by is None and self._result.verdict is not Verdict.SUCCEEDED:
            self._continued_by = self._read_continuation()
        if self._page is None:
            self._page = self._cloud.objects.find(RunLayout(self._run).page)

    def event_log(self) -> list[EventLogEntry]:
        """The run's events until now: as many calls as a look, and one for each 1,000 rounds."""
        from muster.client.runs.event_log import Traces, event_log  # noqa: PLC0415

        execution = self._cloud.executions.describe(self._execution)
        entries = self._entries = self._read_entries(execution)
        if execution.ended_at is not None and self._result is None:
            self._result = own_result(self._cloud, execution)
        continued_by = None if self._result is None else self._read_continuation()
        reader = self._reader(execution) if execution.error != NAME_TAKEN else None
        found = () if reader is None else reader.findings()
        since = None
        if continued_by is not None:
            since = self._cloud.objects.modified_at(RunLayout(self._run).continued_by)
        return event_log(
            Traces(
                execution=execution,
                attempts=self.attempts,
                decisions={rank: entry.decision for rank, entry in entries.items()},
                rounds=() if reader is None else reader.rounds(),
                findings=[(item.finding, at) for item, at in found if item.run == self._run],
                result=self._result,
                seats=self._read_seats(execution),
                continued_by=None if continued_by is None or since is None else (continued_by, since),
            )
        )

    def continuation_names(self) -> tuple[str, str | None]:
        """The name that a continuation of the run would get, and the name of the one that continues it, if any."""
        body = self._cloud.objects.read(RunLayout(self._run).lineage)
        lineage = None if body is None else Lineage.from_json(body, "lineage.json")
        root, generation = (self._run, 0) if lineage is None else (lineage.root, lineage.generation)
        return numbered_run_name(root, generation + 2), self._read_continuation()

    def continuation(self) -> str | None:
        """The run that continues this one, also while it has only been started and is not recorded yet."""
        next_name, continued_by = self.continuation_names()
        if continued_by is not None:
            return continued_by
        try:
            parent = self._cloud.executions.describe(next_name).parent
        except UnknownRunError:
            return None
        return next_name if parent == self._run else None

    def may_be_continued(self) -> bool:
        """Whether the continuation policy may still start a continuation of the run, whose execution has ended."""
        execution = self._cloud.executions.describe(self._execution)
        if not execution.may_continue or execution.status is ExecutionStatus.ABORTED:
            return False
        status = self.look()
        if self._result is not None:
            return status.awaits_continuation
        # A run that ended before its first launch has a plan, and is settled; a refused one has none, and never is.
        is_planned = execution.error != NAME_TAKEN and self._cloud.objects.find(RunLayout(self._run).plan) is not None
        return not status.state.is_terminal or (is_planned and is_watched(execution, datetime.now(UTC)))

    def _read_entries(self, execution: Execution) -> Mapping[int, ReplicaEntry]:
        """The run's entries in the roll-up. None of them where they are of an older run of the same name."""
        entries = self._cloud.part(RecordedRuns).replicas(self._run)
        times = (_launched_at(entry) for entry in entries.values())
        if any(at is not None and is_of_earlier_execution(at, execution.started_at) for at in times):
            return {}
        return {} if execution.error == NAME_TAKEN else entries

    def _behind(self) -> tuple[str, ...] | None:
        """The runs ahead in the run queue."""
        body = self._cloud.objects.read(QUEUE_KEY)
        return None if body is None else Queue.from_json(body, QUEUE_KEY).before(self._run)

    def _reader(self, execution: Execution) -> ProgressReader | SweepReader:
        """Reads the rendezvous, which is named after the first run of the lineage; in a sweep that of each replica."""
        if self._progress is not None:
            return self._progress
        lineage = self._cloud.objects.read(RunLayout(self._run).lineage) if execution.parent is not None else None
        root = self._run if lineage is None else Lineage.from_json(lineage, "lineage.json").root
        kind = SweepReader if execution.trains_apart else ProgressReader
        reader = kind(self._cloud, self._run, RunLayout(root), execution.replicas)
        # A continuation has its lineage once it is planned.
        if execution.parent is None or lineage is not None:
            self._progress = reader
        return reader

    def _awaits_continuation(self, execution: Execution) -> bool:
        """Whether the control plane may be about to start a continuation of the failed run."""
        result = self._result
        if result is None or self._continued_by is not None or not execution.may_continue:
            return False
        if execution.status is ExecutionStatus.ABORTED:
            return False
        if datetime.now(UTC) - timestamps.parse(result.settled_at) > _CONTINUATION_WITHIN:
            return False
        from muster.contract.run.continuation import next_run  # noqa: PLC0415

        plan = read_plan(self._cloud, self._run)
        return plan is not None and next_run(plan, result) is not None

    def _read_continuation(self) -> str | None:
        from muster.contract.run.continuation import Continuation  # noqa: PLC0415

        body = self._cloud.objects.read(RunLayout(self._run).continued_by)
        return None if body is None else Continuation.from_json(body, "continued_by.json").run


def own_result(cloud: Cloud, execution: Execution) -> Result | None:
    """The result of the run that `execution` is; None also where only another run of the same name has one."""
    name = run_name(execution.name)
    result = read_result(cloud, name)
    if result is None or execution.error == NAME_TAKEN:
        return None
    return None if is_of_earlier_execution(timestamps.parse(result.settled_at), execution.started_at) else result


def _launched_at(entry: ReplicaEntry) -> datetime | None:
    at = entry.attempts[-1].launched_at or entry.attempts[-1].ended_at
    return None if at is None else timestamps.parse(at)


def read_result(cloud: Cloud, run: str) -> Result | None:
    """The result of `run`, or None when there is none yet."""
    key = RunLayout(run).result
    body = cloud.objects.read(key)
    return None if body is None else Result.from_json(body, f"s3://{cloud.stack.bucket}/{key}")


def read_plan(cloud: Cloud, run: str) -> Plan | None:
    """The plan of `run`, or None when there is none."""
    key = RunLayout(run).plan
    body = cloud.objects.read(key)
    return None if body is None else Plan.from_json(body, key)


def earlier_runs(cloud: Cloud) -> Runs:
    """Looks up the runs of the stack from whose models another run starts, by their names."""

    def earlier_run(name: str) -> EarlierRun | None:
        from muster.contract.run.model_lookup import EarlierRun  # noqa: PLC0415

        plan = read_plan(cloud, name)
        return None if plan is None else EarlierRun(plan, read_result(cloud, name))

    return earlier_run
