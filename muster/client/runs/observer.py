"""Looks at a run repeatedly and asks AWS each time only for what may have changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

from muster.client.aws.cloud import Cloud
from muster.client.aws.reported import Execution, ExecutionStatus, Job
from muster.client.errors import UnknownRunError
from muster.client.runs.event_log import EventLogEntry, Traces, event_log
from muster.client.runs.progress import ProgressReader
from muster.client.runs.run_status import Observation, RunStatus, is_failure, run_status, settled_progress
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.layout import RunLayout
from muster.contract.names import numbered_run_name, run_name
from muster.contract.run.continuation import Continuation, next_run
from muster.contract.run.lineage import Lineage
from muster.contract.run.plan import Plan
from muster.contract.run.result import Result, Verdict
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.contract.run.waiting import Waiting

# The limit keeps one refresh cheap when hundreds of jobs fail at once; the next refreshes describe the rest.
_DETAILS_PER_LOOK = 25
_PARALLEL = 8
# The settlement starts the continuation, with retries when it is throttled, and the continuation's first function
# records it. One that a limit of the account or of the run prevents never starts.
_CONTINUATION_WITHIN = timedelta(minutes=2)


class JobDetails:
    """The details of jobs that only DescribeTrainingJob returns: requested once, and again when a job has changed."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._known: dict[str, tuple[Job, Job]] = {}  # as listed, and described

    def fetch(self, jobs: Iterable[Job], most: int | None = None) -> None:
        """Describe those of `jobs` that have changed since they were described last; at most `most` of these."""
        changed = [job for job in jobs if not self._is_current(job)][:most]
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            answers = pool.map(lambda job: self._cloud.jobs.describe(job.name), changed)
            self._known.update(
                {job.name: (job, job.described(answer)) for job, answer in zip(changed, answers, strict=True)}
            )

    def get(self, job: Job) -> Job:
        """The job with what is known of its details."""
        known = self._known.get(job.name)
        return job if known is None else known[1].listed_as(job)

    def all(self) -> Iterator[tuple[str, Job]]:
        """Each described job by its name."""
        return ((name, described) for name, (_, described) in self._known.items())

    def _is_current(self, job: Job) -> bool:
        known = self._known.get(job.name)
        return known is not None and known[0] == job


class Observer:
    """One run. What can no longer change (the end of a job, a commit) is asked for once."""

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
        """The result, if a look has found it."""
        return self._result

    def look(self) -> RunStatus:
        """The run's status now: one call for the execution, one per 100 jobs, and two or three listings."""
        execution = self._cloud.executions.describe(self._execution)
        jobs = self.jobs = self._cloud.jobs.of_run(self._run)
        self._find_end(execution)
        settled = self._settled()
        unsettled = (job for job in jobs if is_failure(job) and job.name not in settled)
        self.details.fetch(unsettled, _DETAILS_PER_LOOK)
        progress = self._reader(execution).read()
        return run_status(
            Observation(
                run=self._execution,
                execution=execution,
                jobs=jobs,
                now=datetime.now(UTC),
                failures=self._failures(),
                progress=progress if self._result is None else settled_progress(progress, self._result),
                result=self._result,
                waiting=self._waiting(execution, jobs),
                behind=self._behind(execution, jobs),
                continued_by=self._continued_by,
                awaits_continuation=self._awaits_continuation(execution),
                page=self._page,
            )
        )

    def _find_end(self, execution: Execution) -> None:
        """What is written once a run has ended: its result, its continuation and its page."""
        if execution.ended_at is None:
            return
        if self._result is None:
            self._result = read_result(self._cloud, self._run)
        if self._result is None:
            return
        if self._continued_by is None and self._result.verdict is not Verdict.SUCCEEDED:
            self._continued_by = self._read_continuation()
        if self._page is None:
            self._page = self._cloud.objects.find(RunLayout(self._run).page)

    def event_log(self) -> list[EventLogEntry]:
        """The run's events until now: as many calls as a look, one for each 1,000 rounds, and one for some jobs.

        Only a job itself says when it was interrupted, and before the settlement why it ended.
        """
        execution = self._cloud.executions.describe(self._execution)
        jobs = self._cloud.jobs.of_run(self._run)
        if execution.ended_at is not None and self._result is None:
            self._result = read_result(self._cloud, self._run)
        settled = self._settled()
        self.details.fetch(job for job in jobs if execution.restarts or (is_failure(job) and job.name not in settled))
        layout = RunLayout(self._run)
        items = self._cloud.objects.items_after(layout.waiting, layout.waiting)
        marks = ((Waiting.from_key(key), at) for key, at in items)
        continued_by = None if self._result is None else self._read_continuation()
        since = None if continued_by is None else self._cloud.objects.modified_at(layout.continued_by)
        return event_log(
            Traces(
                execution=execution,
                jobs=jobs,
                failures=self._failures(),
                histories={name: job.attempt.history for name, job in self.details.all()},
                waits=[(mark, at) for mark, at in marks if mark is not None],
                rounds=self._reader(execution).rounds(),
                result=self._result,
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
        """Whether the rerun policy may still start a continuation of the run, whose execution has ended."""
        execution = self._cloud.executions.describe(self._execution)
        if not execution.reruns or execution.status is ExecutionStatus.ABORTED:
            return False
        status = self.look()
        return status.awaits_continuation or (self._result is None and not status.state.is_terminal)

    def _waiting(self, execution: Execution, jobs: list[Job]) -> list[Waiting]:
        """The marks of refused launches; not asked for while every replica has a job that runs or has completed."""
        settled = {job.rank for job in jobs if not is_failure(job)}
        if execution.ended_at is not None or len(settled) >= execution.replicas:
            return []
        prefix = RunLayout(self._run).waiting
        marks = (Waiting.from_key(key) for key in self._cloud.objects.keys_after(prefix, prefix))
        return [mark for mark in marks if mark is not None]

    def _behind(self, execution: Execution, jobs: list[Job]) -> tuple[str, ...] | None:
        """The runs ahead in the run queue; asked for until the run has a job."""
        body = None if jobs or execution.ended_at is not None else self._cloud.objects.read(QUEUE_KEY)
        return None if body is None else Queue.from_json(body, QUEUE_KEY).before(self._run)

    def _reader(self, execution: Execution) -> ProgressReader:
        """Reads the rendezvous, which is named after the first run of the lineage."""
        if self._progress is not None:
            return self._progress
        lineage = self._cloud.objects.read(RunLayout(self._run).lineage) if execution.parent is not None else None
        root = self._run if lineage is None else Lineage.from_json(lineage, "lineage.json").root
        reader = ProgressReader(self._cloud, RunLayout(root))
        # A continuation has its lineage once it is planned.
        if execution.parent is None or lineage is not None:
            self._progress = reader
        return reader

    def _awaits_continuation(self, execution: Execution) -> bool:
        """Whether the control plane may be about to start a continuation of the failed run."""
        result = self._result
        if result is None or self._continued_by is not None or not execution.reruns:
            return False
        if datetime.now(UTC) - timestamps.parse(result.settled_at) > _CONTINUATION_WITHIN:
            return False
        body = self._cloud.objects.read(RunLayout(self._run).plan)
        return body is not None and next_run(Plan.from_json(body, "plan.json"), result) is not None

    def _read_continuation(self) -> str | None:
        body = self._cloud.objects.read(RunLayout(self._run).continued_by)
        return None if body is None else Continuation.from_json(body, "continued_by.json").run

    def _failures(self) -> dict[str, FailureClass | None]:
        """The failure class of each ended job where it is known; the result overrides what jobs say."""
        return {name: job.attempt.failure_class for name, job in self.details.all()} | self._settled()

    def _settled(self) -> dict[str, FailureClass | None]:
        if self._result is None:
            return {}
        attempts = (attempt for replica in self._result.replicas for attempt in replica.attempts)
        return {attempt.job: attempt.failure_class for attempt in attempts}


def read_result(cloud: Cloud, run: str) -> Result | None:
    """The result of `run`, or None when there is none yet."""
    key = RunLayout(run).result
    body = cloud.objects.read(key)
    return None if body is None else Result.from_json(body, f"s3://{cloud.stack.bucket}/{key}")
