"""What wakes react about replicas in places: notices that rounds miss them (the seam `control.events`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from muster.contract.backend import Backend
from muster.control.service_events import ServiceEvents

if TYPE_CHECKING:
    from muster.control.active_run import ActiveRun
    from muster.control.control_plane import ControlPlane
    from muster.control.react import Reaction
    from muster.control.runtime.clock import TimeBudget


def heed(plane: ControlPlane, event: Mapping[str, object], _budget: TimeBudget) -> list[Reaction] | None:
    """Look for the jobs of the replicas that notices name. A queue brings them, and nothing else."""
    if "Records" not in event:
        return None
    from muster.contract.run.notice_events import notices_of  # noqa: PLC0415
    from muster.options.places.control.missing_replicas import heed_notices  # noqa: PLC0415

    return heed_notices(plane, notices_of(event, plane.settings.bucket))


def conclude(_plane: ControlPlane, _run: ActiveRun, _budget: TimeBudget) -> None:
    """Nothing: events report the ends of training jobs."""


OFFER = ServiceEvents(Backend.TRAINING_JOB, heed, conclude)
