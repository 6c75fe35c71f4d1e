"""Who keeps the seats of a run whose replicas come and go: what the core asks an option (the seam `control.seats`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import TYPE_CHECKING

from muster.contract.errors import ConfigurationError

if TYPE_CHECKING:
    from muster.contract.run.attempt import Attempt
    from muster.contract.run.plan import Plan
    from muster.contract.run.record import Decision, Record
    from muster.contract.spec.spec import Spec
    from muster.contract.timestamps import Timestamp
    from muster.control.active_run import ActiveReplica, ActiveRun
    from muster.control.attempt_request import AttemptRequest, Launch
    from muster.control.aws.store import DocumentStore
    from muster.control.aws.timer_schedules import Timers
    from muster.control.control_plane import ControlPlane
    from muster.control.documents import PlannedRun


class SeatKeeper(ABC):
    """Which replicas of a run are wanted."""

    @abstractmethod
    def prepare(self, store: DocumentStore, plan: Plan) -> None:
        """Write the seats of a planned run, once. A continuation has those of the run before."""

    @abstractmethod
    def schedule(self, timers: Timers, plan: Plan, function_arn: str) -> None:
        """Schedule the times at which the run gets another number of replicas: `function_arn` scales it."""

    @abstractmethod
    def hold(
        self, plane: ControlPlane, replica: ActiveReplica, request: AttemptRequest, record: Record | None
    ) -> Launch | None:
        """Keep the token of an attempt whose seat waits, or complete it; None where the attempt may be launched."""

    @abstractmethod
    def is_closed(self, replica: ActiveReplica) -> bool:
        """Whether the replica's seat is not wanted now."""

    @abstractmethod
    def let_leave(self, replica: ActiveReplica, attempt: int) -> None:
        """Stop the job of the replica's `attempt` if its seat is closed: who closed it may not have found the job."""

    @abstractmethod
    def parks(self, spec: Spec, attempts: tuple[Attempt, ...], now: Timestamp) -> Decision | None:
        """What follows the last of `attempts`, which failed, where no budget decides that. Pure."""

    @abstractmethod
    def missing(self, run: ActiveRun) -> int:
        """How many seats nobody has who trains, or may train without being asked for: closed ones and lost ones."""

    @abstractmethod
    def end(self, plane: ControlPlane, run: ActiveRun, rank: int) -> None:
        """Open no seat any more, and end the parked ones: replica `rank` has trained to the end."""

    @abstractmethod
    def release(self, plane: ControlPlane, run: ActiveRun, reason: str) -> None:
        """End the parked seats of a run that is being stopped."""

    @abstractmethod
    def parked(self, run: PlannedRun) -> set[int]:
        """The ranks without a record that are parked, and those whose next attempt would be."""


def seat_keeper(spec: Spec) -> SeatKeeper | None:
    """Who keeps the seats of a run; None where it has a fixed number of replicas.

    Raises:
        ConfigurationError: this installation of Muster lacks the option.
    """
    if spec.elastic is None:
        return None
    keeper = _offered()
    if keeper is None:
        message = "This installation of Muster has no elastic runs: deploy the stack with one that has them."
        raise ConfigurationError(message)
    return keeper


@cache
def _offered() -> SeatKeeper | None:
    """That of the option. Looked for once: it takes a look into the folder of each option."""
    # Most runs have a fixed number of replicas.
    from muster.options import offers  # noqa: PLC0415

    return next(offers("control.seats", SeatKeeper), None)  # type: ignore[type-abstract]
