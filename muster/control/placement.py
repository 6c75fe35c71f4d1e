"""The seam `control.placement`: the places beside the stack's own region, and which one an attempt gets.

A place that does not answer costs its replicas time, and nobody else: what cannot be done there now is done when it
answers again, and what may still run there is recorded (`Where.may_run`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pydantic import JsonValue

from muster.contract.aws.partitions import Locality
from muster.contract.errors import ConfigurationError, Problem
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Plan
from muster.contract.run.where import Where
from muster.contract.spec.spec import Spec
from muster.control.aws.clients import Clients
from muster.control.jobs import Jobs, Patient
from muster.control.runtime.function_settings import FunctionEnvironment

if TYPE_CHECKING:
    from muster.control.aws.store import DocumentStore
    from muster.control.documents import PlannedRun


class PlacedReplica(Protocol):
    """A replica that is given a place."""

    @property
    def run(self) -> PlannedRun:
        """Its run."""

    @property
    def rank(self) -> int:
        """Its rank."""

    @property
    def spec(self) -> Spec:
        """The spec of its rank."""


class Placement(Patient, ABC):
    """The places of a stack, for one function. Each imports what a call needs."""

    @abstractmethod
    def problems(self, spec: Spec, home: Locality) -> list[Problem]:
        """Why a run with this spec cannot have its places."""

    @abstractmethod
    def choose(self, replica: PlacedReplica, before: Sequence[Attempt]) -> Where:
        """Where the attempt that follows `before` goes."""

    @abstractmethod
    def closed(self, replica: PlacedReplica, current: Attempt) -> str | None:
        """Why an attempt that is recorded is not launched: it was to go nowhere, or others are there meanwhile."""

    @abstractmethod
    def instance_type(self, replica: PlacedReplica, where: Where, before: Sequence[Attempt]) -> str | None:
        """The type to request there; None where SageMaker chooses."""

    @abstractmethod
    def request(self, plan: Plan, rank: int, attempts: Sequence[Attempt]) -> dict[str, JsonValue]:
        """The request for the last of `attempts`, in its place."""

    @abstractmethod
    def launching(self, run: PlannedRun, rank: int, place: str) -> Jobs:
        """The jobs of a place in a session of this run, for `create` alone; what a job reads there is there now.

        Raises:
            PlaceSilentError: the place does not answer.
            LaunchRefusedError: it denies access.
        """

    @abstractmethod
    def jobs(self, place: str) -> Jobs:
        """The jobs of a place beside home, always as the same object. Every call may raise PlaceSilentError."""

    @abstractmethod
    def every(self) -> list[Jobs]:
        """Those of all places of the stack."""

    @abstractmethod
    def is_of(self, place: str, account: str, region: str) -> bool:
        """Whether an event of this account and region comes from a place."""

    @abstractmethod
    def gives_up(self, replica: PlacedReplica, current: Attempt) -> str | None:
        """Why an attempt whose place does not answer is given up; None: its replica waits for the place."""

    @abstractmethod
    def store(self, place: str) -> DocumentStore:
        """The bucket of a place."""

    @abstractmethod
    def last_lines(self, place: str, job: str, count: int) -> list[str]:
        """The last `count` lines of a job's log."""


@dataclass(frozen=True)
class PlacementOffer:
    """What the option offers. Opening it is cheap."""

    open: Callable[[Clients, FunctionEnvironment], Placement]


def opened_placement(clients: Clients, settings: FunctionEnvironment) -> Placement:
    """The places of the function's stack.

    Raises:
        ConfigurationError: this installation of Muster lacks the option.
    """
    # Most runs are at home.
    from muster.options import offers  # noqa: PLC0415

    offer = next(offers("control.placement", PlacementOffer), None)
    if offer is None:
        message = "This installation of Muster has no places: deploy the stack with one that has them."
        raise ConfigurationError(message)
    return offer.open(clients, settings)
