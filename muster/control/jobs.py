"""A job that carries a replica, and what the control plane asks of a service that runs such jobs."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from pydantic import JsonValue

from muster.contract.aws.failure_classes import FailureClass, JobEnd
from muster.contract.aws.job_status import JobStatus
from muster.contract.run.attempt import Attempt
from muster.contract.run.job_details import JobDetails
from muster.contract.run.orphans import ActiveJob
from muster.control.runtime.clock import TimeBudget

if TYPE_CHECKING:
    from muster.contract.run.plan import Plan
    from muster.control.documents import Change, Updated

_ENDS = {status.value for status in JobStatus if status.is_terminal}


@dataclass(frozen=True)
class Job:
    """A job as its service shows it, in SageMaker's form. The status is text, because SageMaker may add statuses."""

    name: str
    arn: str
    status: str
    secondary: str
    reason: str
    artifacts: str | None
    changed_at: str
    instance_type: str | None
    """None until SageMaker has chosen among the preferences."""
    billable_seconds: int | None
    """None for a job on a cluster, whose nodes are paid for in any case."""
    details: JobDetails = field(default_factory=JobDetails)
    tags: Mapping[str, str] | None = None
    """Those that came with it, where a name can be given again; None for a training job, whose tags are asked for."""
    is_gone: bool = False
    """Whether it is not there any more: this is what its absence means."""

    @property
    def end(self) -> JobEnd | None:
        """The job's end; None while it has not ended."""
        return JobEnd(JobStatus(self.status), self.secondary, self.reason) if self.status in _ENDS else None

    def applied_to(self, attempt: Attempt, *, stopping: bool) -> Attempt:
        """`attempt` as this job shows it; `stopping`: its run is being stopped."""
        update = {
            "status": self.status,
            "secondary": self.secondary,
            "reason": self.reason,
            "artifacts": self.artifacts,
            "instance_type": self.instance_type or attempt.instance_type,
            "billable_seconds": self.billable_seconds if self.end else None,
            "details": self.details if self.end else None,
        }
        seen = attempt.model_copy(update=update)
        return seen if self.end is None else seen.ended(self.end, self.changed_at, stopping=stopping)


class Creation(NamedTuple):
    """What came of a request for a job. `job`: as it was created, where the answer says so."""

    is_new: bool
    """False: a job of that name exists already (Muster's or not)."""
    job: Job | None = None


class LaunchRefusedError(Exception):
    """The service refused to create a job."""

    def __init__(self, failure_class: FailureClass, reason: str, *, denied: bool = False) -> None:
        self.failure_class = failure_class
        self.reason = reason
        self.denied = denied
        """Whether the caller may not do this where the job would run."""
        super().__init__(reason)


class PlaceSilentError(ConnectionError):
    """A place beside the stack's own region does not answer."""

    what = "does not answer"

    def __init__(self, place: str, *, sent: bool) -> None:
        self.place = place
        self.sent = sent
        """Whether the last call may have created a job."""
        super().__init__(f"{place} {self.what}")


class PlaceDeniesError(PlaceSilentError):
    """It does not let jobs be created or looked after, so no more is known of it than if it did not answer."""

    what = "denies access"

    def __init__(self, place: str, reason: str = "") -> None:
        super().__init__(place, sent=False)
        self.reason = reason
        """In the words of its service."""

    def __str__(self) -> str:
        return f"{super().__str__()}: {self.reason}" if self.reason else super().__str__()


class HasPatience(Protocol):
    """What calls a service."""

    patience: TimeBudget
    """How long throttled calls are tried again."""


class Patient:
    """What hands its patience on to those that call services for it."""

    _patience = TimeBudget(-math.inf)

    @property
    def patience(self) -> TimeBudget:
        """How long throttled calls are tried again."""
        return self._patience

    @patience.setter
    def patience(self, budget: TimeBudget) -> None:
        self._patience = budget
        for one in self._patients():
            one.patience = budget

    def _patients(self) -> Iterable[HasPatience]:
        """Those that are there by now; later ones are given it when they are made."""
        raise NotImplementedError


class Jobs(Protocol):
    """The jobs of one service, in one place. Every call is idempotent, and safe to repeat."""

    patience: TimeBudget
    """How long a throttled call is tried again, except `create`."""

    noun: str
    """What a message calls one of them."""

    @property
    def place(self) -> str:
        """Where they are, for messages."""

    def request(self, plan: Plan, rank: int, attempt: int, shortages: int) -> dict[str, JsonValue]:
        """What `create` takes for the attempt `attempt` of replica `rank`; `shortages` (`contract.run.attempt`).

        Raises:
            LaunchRefusedError: the service would refuse it.
        """

    def create(self, request: dict[str, JsonValue]) -> Creation:
        """Create a job. Not new where one of that name exists already (Muster's or not).

        Raises:
            LaunchRefusedError: the last answer was a refusal. An earlier answer may have been lost, so only `find`
                shows whether the job exists.
            Exception: the service could not be reached, so the job may exist or not; or it throttled the last try.
        """

    def find(self, name: str, patience: TimeBudget | None = None) -> Job | None:
        """The job of that name, or None. `patience` replaces that of all calls."""

    def explained(self, job: Job) -> Job:
        """`job` with the reason of its failure, where `find` does not look for it."""

    def note(self, update: Callable[[Change], Updated], job: Job | None) -> None:
        """Write what a look has found into a record with `update`, where no event of the service carries it."""

    def vanished(self, name: str) -> Job | None:
        """What it means that no job has this name any more, whose attempt was seen to have one. None: it is a lag."""

    def tags(self, arn: str) -> Mapping[str, str]:
        """The tags of a job."""

    def stop(self, name: str) -> None:
        """Stop a job. Nothing happens where it has ended or does not exist."""

    def under_names_of(self, prefix: str, run: str) -> Iterable[ActiveJob]:
        """The jobs whose names are those of this run, including jobs that Muster did not create."""

    def active(self, prefix: str, budget: TimeBudget) -> Iterable[ActiveJob]:
        """The jobs with names under `prefix`, of any run, including jobs that Muster did not create.

        Raises:
            OutOfTimeError: after those for which the budget sufficed.
        """
