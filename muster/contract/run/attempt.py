"""An attempt of a replica: the one model that record, result and page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Self

from pydantic import Field

from muster.contract.aws.failure_classes import FailureClass, JobEnd, classify_end, explained
from muster.contract.document import StoredPart, else_unknown
from muster.contract.exits import read_exit
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.job_details import JobDetails
from muster.contract.run.where import Where
from muster.contract.spec.watch_rules import Rule
from muster.contract.timestamps import Timestamp

if TYPE_CHECKING:
    from muster.contract.spec.spec import Spec

NOT_CREATED = "NotCreated"
"""The secondary status of an attempt that ended without a job: its request was refused."""

MESSAGE_MAX = 200
"""How many characters of a message of SageMaker are kept. The longest one that it documents has 73."""

_SHORTAGES = {FailureClass.CAPACITY, FailureClass.QUOTA}


class Transition(StoredPart):
    """A secondary status as SageMaker reported it; unknown ones are kept."""

    at: Timestamp
    secondary: str
    message: str = Field(default="", description="the last message of it, such as why there is no instance yet")
    instances: int | None = Field(
        default=None, ge=0, description="of a job on a cluster: how many instances train since then; none as before"
    )


class Attempt(StoredPart):
    """One job that carries a replica, from its launch to its end."""

    attempt: int = Field(ge=1)
    job: str
    launched_at: Timestamp | None = Field(default=None, description="none where only a refusal of its request is known")
    instance_type: str | None = Field(
        default=None, description="the type it runs on; none until SageMaker has chosen among the preferences"
    )
    ended_at: Timestamp | None = None
    billable_seconds: int | None = Field(default=None, description="as SageMaker bills it; none where it is not known")
    status: str = ""
    secondary: str = ""
    history: tuple[Transition, ...] = ()
    failure_class: Annotated[FailureClass | None, else_unknown(FailureClass.UNKNOWN)] = None
    reason: str = ""
    artifacts: str | None = None
    details: JobDetails | None = Field(
        default=None, description="what the spec has asked SageMaker for; none where nothing, or it is not known"
    )
    cluster: ClusterJob | None = Field(default=None, description="of a job on a cluster; none for a training job")
    parked: bool = Field(
        default=False, description="of an elastic run: whether the replica was parked after it, which is no rerun"
    )
    where: Where | None = Field(default=None, description="of a run with `places`; none: the stack's own region")
    last_lines: tuple[str, ...] = Field(
        default=(), description="the last lines of its log, for some of the attempts that failed"
    )

    @property
    def was_created(self) -> bool:
        """Whether this attempt has or had a training job."""
        return self.secondary != NOT_CREATED

    @property
    def has_proven_job(self) -> bool:
        """Whether the job of this name is known to be this attempt's: only then is a status of it recorded."""
        return self.was_created and self.status != ""

    @property
    def is_shortage(self) -> bool:
        """Whether it ended because there was no capacity or no quota for its instance type."""
        return self.failure_class in _SHORTAGES

    def ended(self, end: JobEnd, at: str, *, stopping: bool = False) -> Self:
        """This attempt after `end`, which SageMaker reported at `at`; `stopping`: its run was being stopped."""
        return self.model_copy(
            update={
                "ended_at": at,
                "status": end.status.value,
                "secondary": end.secondary,
                "failure_class": classify_end(end, stopping=stopping),
                "reason": explained(end),
                "where": self.where and self.where.model_copy(update={"may_run": False}),
            }
        )

    def merged(self, seen: Self) -> Self:
        """This attempt, completed by `seen`, another view of it. The longer history is the newer one.

        Of two histories of the same length that of `seen` is: a message of SageMaker may have changed.
        """
        newer = seen.model_fields_set & Attempt.model_fields.keys() - {"history"}
        known = {name for name in newer if getattr(seen, name) not in (None, "", ())}
        update: dict[str, object] = {name: getattr(seen, name) for name in known}
        return self.model_copy(update={**update, "history": max(seen.history, self.history, key=len)})

    def for_result(self, *, is_last: bool = False) -> Self:
        """The attempt as the result holds it, which must stay small.

        The replica's result names its artifacts once, and only its last attempt (`is_last`) has metrics.
        """
        details = self.details if is_last or self.details is None else self.details.without_metrics()
        return self.model_copy(update={"history": (), "artifacts": None, "details": details})


def rule_of_end(attempt: Attempt) -> Rule | None:
    """The rule of `watch` because of which `attempt` ended, as its replica says; None where it ended otherwise."""
    found = read_exit(attempt.reason) if attempt.failure_class is FailureClass.INFRASTRUCTURE else None
    return None if found is None else Rule.__members__.get(found.name)


def shortages(attempts: Sequence[Attempt]) -> int:
    """How many of `attempts` found no capacity or no quota; each is followed by the next fallback type."""
    return sum(attempt.is_shortage for attempt in attempts)


def parkings(attempts: Sequence[Attempt]) -> int:
    """After how many of `attempts` the replica was parked until the next one, which is no rerun."""
    return sum(attempt.parked for attempt in attempts[:-1])


def requested_type(spec: Spec, before: Sequence[Attempt]) -> str | None:
    """The instance type to request for the attempt that follows `before`; None where SageMaker chooses.

    The one place that answers which type an attempt has. `spec` is the spec of the replica's rank.
    """
    return spec.type_after(shortages(before))


def granted_type(resource_config: Mapping[str, object]) -> str | None:
    """The instance type that a job got, from the ResourceConfig that SageMaker reports.

    CreateTrainingJob: with InstancePreferences SageMaker chooses, and reports SelectedInstanceType.
    """
    found = resource_config.get("SelectedInstanceType") or resource_config.get("InstanceType")
    return found if isinstance(found, str) else None
