"""Looking at a run again and again, asking each time only for what can have changed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from muster.client.aws.cloud import Cloud
from muster.client.aws.reported import Execution, Job
from muster.client.runs.event_log import EventLogEntry, Traces, event_log
from muster.client.runs.job_details import JobDetails
from muster.client.runs.progress import ProgressReader
from muster.client.runs.run_status import RunStatus, is_failure, run_status, settled_progress
from muster.contract.aws.failures import FailureClass
from muster.contract.layout import RunLayout
from muster.contract.names import numbered_run_name, run_name
from muster.contract.run.continuation import Continuation, next_run
from muster.contract.run.lineage import Lineage
from muster.contract.run.plan import Plan
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.contract.run.waiting import Waiting

# A look stays cheap even when hundreds of jobs fail at once; the next looks learn of the rest.
_CLASSES_PER_LOOK = 25
# The settlement starts the continuation and retries where it is throttled; its first function records it. One
# that a limit of the account or of the run prevents never starts.
_CONTINUATION_WITHIN = timedelta(minutes=2)


class Observer:
    """One run, watched. What cannot change any more (the end of a job, a commit) is asked for once."""

    def __init__(self, cloud: Cloud, execution: str) -> None:
        self._cloud = cloud
        self._execution = execution
        self._run = run_name(execution)
        self._progress: ProgressReader | None = None
        self._continued_by: str | None = None
        self._page: str | None = None
        self._result: Result | None = None
        self.details = JobDetails(cloud)
        self.jobs: Sequence[Job] = ()
        """The run's jobs at the latest look."""

    @property
    def result(self) -> Result | None:
        """The settlement, where a look has found it."""
        return self._result

    def look(self) -> RunStatus:
        """The run's status now: one call for the execution, one per 100 jobs, and two or three listings."""
        execution = self._cloud.describe_execution(self._execution)
        jobs = self.jobs = self._cloud.jobs(self._run)
        if execution.ended_at is not None and self._result is None:
            self._result = read_result(self._cloud, self._run)
        if self._result is not None and self._continued_by is None and self._result.verdict is not Verdict.SUCCEEDED:
            self._continued_by = self._read_continuation()
        if self._result is not None and self._page is None:
            self._page = self._cloud.find(RunLayout(self._run).page)
        settled = self._settled()
        unsettled = (job for job in jobs if is_failure(job) and str(job.name) not in settled)
        self.details.learn(unsettled, _CLASSES_PER_LOOK)
        progress = self._reader(execution).read()
        return run_status(
            self._execution,
            execution=execution,
            jobs=jobs,
            failures=self._failures(),
            progress=progress if self._result is None else settled_progress(progress, self._result),
            result=self._result,
            continued_by=self._continued_by,
            awaits_continuation=self._awaits_continuation(execution),
            page=self._page,
            now=datetime.now(UTC),
            waiting=self._waiting(execution, jobs),
            behind=self._behind(execution, jobs),
        )

    def event_log(self) -> list[EventLogEntry]:
        """What has happened until now: as many calls as a look, and one for each 1,000 rounds and each telling job.

        What interrupts a job that restarts by itself, and why one ended that no settlement tells of, only the job says.
        """
        execution = self._cloud.describe_execution(self._execution)
        jobs = self._cloud.jobs(self._run)
        if execution.ended_at is not None and self._result is None:
            self._result = read_result(self._cloud, self._run)
        settled = self._settled()
        self.details.learn(
            job for job in jobs if execution.restarts or (is_failure(job) and str(job.name) not in settled)
        )
        layout = RunLayout(self._run)
        marks = ((Waiting.from_key(key), at) for key, at in self._cloud.objects_after(layout.waiting, layout.waiting))
        continued_by = None if self._result is None else self._read_continuation()
        since = None if continued_by is None else self._cloud.modified_at(layout.continued_by)
        return event_log(
            Traces(
                execution=execution,
                jobs=jobs,
                failures=self._failures(),
                histories={name: detail.history for name, detail in self.details.items()},
                waits=[(mark, at) for mark, at in marks if mark is not None],
                rounds=self._reader(execution).rounds(),
                result=self._result,
                continued_by=None if continued_by is None or since is None else (continued_by, since),
            )
        )

    def succession(self) -> tuple[str, str | None]:
        """The name under which the run is to go on, and the one under which it goes on already, if it does."""
        body = self._cloud.read(RunLayout(self._run).lineage)
        lineage = None if body is None else Lineage.from_json(body, "lineage.json")
        root, generation = (self._run, 0) if lineage is None else (lineage.root, lineage.generation)
        return numbered_run_name(root, generation + 2), self._read_continuation()

    def _waiting(self, execution: Execution, jobs: list[Job]) -> list[Waiting]:
        """The marks of refused launches; not asked for while every replica has a job that goes on or is done."""
        settled = {job.name.rank for job in jobs if not is_failure(job)}
        if execution.ended_at is not None or len(settled) >= execution.replicas:
            return []
        prefix = RunLayout(self._run).waiting
        marks = (Waiting.from_key(key) for key in self._cloud.keys_after(prefix, prefix))
        return [mark for mark in marks if mark is not None]

    def _behind(self, execution: Execution, jobs: list[Job]) -> tuple[str, ...] | None:
        """The queue before the run; looked at until there is a job."""
        body = None if jobs or execution.ended_at is not None else self._cloud.read(QUEUE_KEY)
        return None if body is None else Queue.from_json(body, QUEUE_KEY).before(self._run)

    def _reader(self, execution: Execution) -> ProgressReader:
        """Of the place where the replicas meet, which the first run of a lineage names."""
        if self._progress is not None:
            return self._progress
        lineage = self._cloud.read(RunLayout(self._run).lineage) if execution.parent is not None else None
        root = self._run if lineage is None else Lineage.from_json(lineage, "lineage.json").root
        reader = ProgressReader(self._cloud, RunLayout(root))
        # A run that goes on has its lineage once it is planned.
        if execution.parent is None or lineage is not None:
            self._progress = reader
        return reader

    def _awaits_continuation(self, execution: Execution) -> bool:
        """Whether the control plane may be about to start the run that goes on where this one has failed."""
        result = self._result
        if result is None or self._continued_by is not None or not execution.reruns:
            return False
        if datetime.now(UTC) - datetime.fromisoformat(result.settled_at) > _CONTINUATION_WITHIN:
            return False
        body = self._cloud.read(RunLayout(self._run).plan)
        return body is not None and next_run(Plan.from_json(body, "plan.json"), result) is not None

    def _read_continuation(self) -> str | None:
        body = self._cloud.read(RunLayout(self._run).continued_by)
        return None if body is None else Continuation.from_json(body, "continued_by.json").run

    def _failures(self) -> dict[str, FailureClass | None]:
        """Why each ended job of which that is known did not succeed; the settlement has the last word."""
        return {name: detail.failure_class for name, detail in self.details.items()} | self._settled()

    def _settled(self) -> dict[str, FailureClass | None]:
        if self._result is None:
            return {}
        attempts = (attempt for replica in self._result.replicas for attempt in replica.attempts)
        return {attempt.job: attempt.failure_class for attempt in attempts}


def read_result(cloud: Cloud, run: str) -> Result | None:
    """The settlement of `run`, or None when there is none yet."""
    key = RunLayout(run).result
    body = cloud.read(key)
    return None if body is None else Result.from_json(body, f"s3://{cloud.stack.bucket}/{key}")
