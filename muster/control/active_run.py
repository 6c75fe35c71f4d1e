"""One run, and one replica of it, with plan, documents, jobs and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue

from muster.contract.backend import Backend
from muster.contract.errors import DocumentError
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt, requested_type, shortages
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.job_request import own_tags
from muster.contract.run.last_lines import without_secrets
from muster.contract.run.plan import Plan
from muster.contract.run.record import Record
from muster.contract.run.where import Where
from muster.contract.spec.spec import Spec
from muster.control.aws.store import DocumentStore
from muster.control.backends import Backends, PlacedJob
from muster.control.documents import Change, RunDocuments, Seen, Updated
from muster.control.jobs import Job, Jobs, PlaceSilentError
from muster.control.runtime import clock
from muster.control.runtime.parallel import in_parallel


@dataclass(frozen=True)
class ActiveRun:
    """A planned run: every function except plan works on one."""

    plan: Plan
    documents: RunDocuments
    backends: Backends
    _own: set[tuple[str, JobName]] = field(default_factory=set, init=False, repr=False, compare=False)
    """The jobs that have been shown to be this run's."""
    settled: dict[int, Record] = field(default_factory=dict, init=False, repr=False, compare=False)
    """The records from which this call has made the result, by rank: the page needs their histories."""

    def replica(self, rank: int) -> ActiveReplica:
        """One replica of the run."""
        return ActiveReplica(self, rank)

    @property
    def replicas(self) -> list[ActiveReplica]:
        """All replicas, by rank."""
        return [ActiveReplica(self, rank) for rank in range(self.plan.spec.replicas)]

    @property
    def is_stopping(self) -> bool:
        """Whether the fence stands."""
        return self.documents.fence() is not None

    def owns(self, tags: Mapping[str, str], rank: int, attempt: int) -> bool:
        """Whether a job with these tags belongs to this run. Only this method decides that; a name proves nothing.

        The user's own tags are not compared: people and tag policies change them on running jobs.
        """
        return own_tags(self.plan, rank, attempt).items() <= tags.items()

    def own_jobs(self, silent: list[PlaceSilentError]) -> list[PlacedJob]:
        """This run's jobs that have not ended, without jobs of others that have its names.

        One call for each 100 jobs, ended ones included; the records show whose they are, so their tags are rarely asked
        for. Jobs in places that do not answer are missing; `silent` gets the errors.
        """
        listed: list[PlacedJob] = []
        for jobs in self.backends.used_by(self.plan):
            try:
                found = [*jobs.under_names_of(self.plan.place.job_prefix, self.plan.run)]
            except PlaceSilentError as error:
                silent.append(error)
                continue
            # A replica has one backend: a job of that name on another one is not its own, whatever its tags are.
            listed += [PlacedJob(jobs, job) for job in found if self._may_run(job.name.rank, jobs)]
        owned = in_parallel(lambda one: self._is_own(one, silent), listed)
        return [one for one, own in zip(listed, owned, strict=True) if own]

    def _may_run(self, rank: int, jobs: Jobs) -> bool:
        return self.plan.spec.places is not None or self.jobs_of(rank) is jobs

    def _is_own(self, one: PlacedJob, silent: list[PlaceSilentError]) -> bool:
        name = one.job.name
        if (one.jobs.place, name) not in self._own:
            # The tags of a job on a cluster come with it, and its name can be given again.
            on_cluster = self.plan.spec.of_rank(name.rank).backend is Backend.HYPERPOD
            try:
                if (on_cluster or not self.has_recorded(name, one.jobs)) and not self.owns(
                    one.jobs.tags(one.job.arn), name.rank, name.attempt
                ):
                    return False
            except PlaceSilentError as error:
                silent.append(error)
                return False
            self._own.add((one.jobs.place, name))
        return True

    def jobs_of(self, rank: int) -> Jobs:
        """The service that runs the jobs of replica `rank`, as far as they are at home."""
        return self.backends.of_rank(self.plan, rank)

    def has_recorded(self, name: JobName, jobs: Jobs) -> bool:
        """Whether the replica's record shows that the job of this name is its own, where `jobs` are."""
        try:
            record = self.documents.record(name.rank).record
        except DocumentError:
            return False
        attempts = () if record is None else record.attempts
        return any(
            attempt.attempt == name.attempt
            and attempt.has_proven_job
            and self.replica(name.rank).jobs_of(attempt) is jobs
            for attempt in attempts
        )


@dataclass(frozen=True)
class ActiveReplica:
    """One replica of a planned run: its record and its jobs."""

    run: ActiveRun
    rank: int

    @property
    def spec(self) -> Spec:
        """The spec of this rank."""
        return self.run.plan.spec.of_rank(self.rank)

    @property
    def jobs(self) -> Jobs:
        """The service that runs the replica's jobs."""
        return self.run.jobs_of(self.rank)

    def jobs_of(self, attempt: Attempt) -> Jobs:
        """The service that runs an attempt's job, in its place."""
        where = attempt.where
        return self.jobs if where is None else self.run.backends.of(self.spec, where)

    def record(self) -> Seen:
        """The record as it stands now."""
        return self.run.documents.record(self.rank)

    def update(self, change: Change, seen: Seen | None = None) -> Updated:
        """Compare-and-swap of the record (see RunDocuments.update_record), and then its entry in the roll-up."""
        updated = self.write_record(change, seen)
        self.write_entry(updated.record)
        return updated

    def write_record(self, change: Change, seen: Seen | None = None) -> Updated:
        """Compare-and-swap of the record alone. Reasons enter it without the values of the spec's environment."""

        def masked_change(record: Record | None) -> Record | None:
            after = change(record)
            if after is None:
                return None
            decision = after.decision
            if decision is not None and decision.reason:
                decision = decision.model_copy(update={"reason": self.masked(decision.reason)})
            attempts = (*after.attempts[:-1], self.without_secrets(after.current))
            return after.model_copy(update={"attempts": attempts, "decision": decision})

        return self.run.documents.update_record(self.rank, masked_change, seen)

    def masked(self, text: str) -> str:
        """What a program may have written, without the values of the spec's environment."""
        return without_secrets(text, self.spec.environment)

    def without_secrets(self, attempt: Attempt) -> Attempt:
        """`attempt` with its reason, and the messages of its history, masked."""
        if not attempt.reason and not any(one.message for one in attempt.history):
            return attempt
        history = tuple(one.model_copy(update={"message": self.masked(one.message)}) for one in attempt.history)
        return attempt.model_copy(update={"reason": self.masked(attempt.reason), "history": history})

    def write_entry(self, record: Record | None) -> None:
        """Write the record's entry in the roll-up, also where an earlier call wrote the record and failed here."""
        if record is not None:
            self.run.documents.write_entry(self.run.plan.spec.replicas, record)

    def job_name(self, attempt: int) -> str:
        """The name of an attempt's job."""
        return str(JobName(self.run.plan.place.job_prefix, self.run.plan.run, self.rank, attempt))

    def launched(self, attempt: int, before: Sequence[Attempt], where: Where | None = None) -> Attempt:
        """The attempt that follows `before`, launched now; `where`, as the run's `places` say."""
        kind = (
            requested_type(self.spec, before)
            if where is None
            else self.run.backends.placement.instance_type(self, where, before)
        )
        return Attempt(
            attempt=attempt,
            job=self.job_name(attempt),
            launched_at=clock.now(),
            instance_type=kind,
            cluster=ClusterJob.of(self.spec),
            where=where,
        )

    def placed(self, before: Sequence[Attempt]) -> Where | None:
        """Where the attempt goes that follows `before`; None where the run has no `places`."""
        return None if self.run.plan.spec.places is None else self.run.backends.placement.choose(self, before)

    def owns(self, tags: Mapping[str, str], attempt: int) -> bool:
        """Whether a job with these tags is this replica's attempt."""
        return self.run.owns(tags, self.rank, attempt)

    def owns_job(self, job: Job, attempt: Attempt) -> bool:
        """Whether a job is this replica's attempt, by its tags, which come with it or are asked for."""
        tags = self.jobs_of(attempt).tags(job.arn) if job.tags is None else job.tags
        return self.owns(tags, attempt.attempt)

    def own_job(self, attempt: Attempt) -> Job | None:
        """The attempt's job; None where there is none, or the one of that name belongs to someone else."""
        jobs = self.jobs_of(attempt)
        job = jobs.find(attempt.job)
        if job is not None and self.has_own(job, attempt):
            return job
        return jobs.vanished(attempt.job) if attempt.has_proven_job else None

    def has_own(self, job: Job, attempt: Attempt) -> bool:
        """Whether the job with the attempt's name is this replica's: by the record, otherwise by its tags.

        On a cluster a name can be given again, so there only the tags prove it, which come with the job.
        """
        if job.is_gone:
            return True
        is_proven = attempt.has_proven_job and job.tags is None
        return is_proven or self.owns_job(job, attempt)

    def request(self, attempts: Sequence[Attempt]) -> dict[str, JsonValue]:
        """The request for the job of the last of `attempts`.

        Raises:
            LaunchRefusedError: its service would refuse it.
        """
        current, plan = attempts[-1], self.run.plan
        if current.where is not None:
            return self.run.backends.placement.request(plan, self.rank, attempts)
        return self.jobs.request(plan, self.rank, current.attempt, shortages(attempts))


class Runs:
    """The runs of a stack. Plans never change, so a warm function reads each plan once."""

    _CACHED = 32

    def __init__(self, store: DocumentStore, backends: Backends) -> None:
        self._store = store
        self._backends = backends
        self._plans: dict[str, Plan] = {}

    def find(self, run: str) -> ActiveRun | None:
        """The run of that name, or None."""
        documents = RunDocuments(self._store, run)
        plan = self._plans.get(run) or documents.plan()
        return None if plan is None else self._remember(plan, documents)

    def require(self, run: str) -> ActiveRun:
        """The run of that name.

        Raises:
            DocumentError: it has no plan.
        """
        documents = RunDocuments(self._store, run)
        return self._remember(self._plans.get(run) or documents.require_plan(), documents)

    def _remember(self, plan: Plan, documents: RunDocuments) -> ActiveRun:
        if len(self._plans) >= self._CACHED:
            self._plans.clear()
        self._plans[plan.run] = plan
        return ActiveRun(plan, documents, self._backends)
