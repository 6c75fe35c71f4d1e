"""What happens to jobs of backends that options add, beside what `Backends` asks of each service."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from muster.contract.backend import Backend
from muster.options import offers

if TYPE_CHECKING:
    from muster.control.active_run import ActiveRun
    from muster.control.control_plane import ControlPlane
    from muster.control.react import Reaction
    from muster.control.runtime.clock import TimeBudget


@dataclass(frozen=True)
class ServiceEvents:
    """The events of a backend (the seam `control.events`), which imports what a call needs."""

    backend: Backend
    heed: Callable[[ControlPlane, Mapping[str, object], TimeBudget], list[Reaction] | None]
    """What was done about an event of EventBridge; None where it is not about this backend."""
    conclude: Callable[[ControlPlane, ActiveRun, TimeBudget], None]
    """See the ends of a stopped run's jobs that no event reports. An error here is not one of the stop."""


def service_events() -> Iterator[ServiceEvents]:
    """Those of the options that are there."""
    return offers("control.events", ServiceEvents)
