"""Replaying a round with torchft's algorithms: torchft's own code applies the mean that the rendezvous has stored.

A replica that continues from a state applies the rounds committed after it, as the members have. Only torchft's DiLoCo
knows its outer optimizer. So the round's fragment syncs once more: its pseudo-gradient is zero, because it has not been
trained, and the stored mean takes its place.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from muster.replica.errors import AlgorithmError
from muster.replica.tiers.plain_state import StateDict

Load = Callable[[StateDict], None]
Save = Callable[[], StateDict]


def fragment_key(index: int) -> str:
    """The name under which torchft's DiLoCo registers the state of one of its fragments."""
    return f"StreamingDiLoCoFragment_{index}"


@runtime_checkable
class SyncedFragment(Protocol):
    """The part of torchft's fragment with which a round is replayed."""

    def prepare_sync(self) -> None:
        """Compute the pseudo-gradient, and request its mean from the manager."""

    def perform_sync(self) -> bool:
        """Wait for the mean, and let the outer optimizer apply it to the parameters of the last sync."""

    def restore_parameters(self) -> None:
        """Copy the parameters of the last sync into the model."""


def fragment_of(key: str, load: Load) -> SyncedFragment:
    """The fragment whose state `load` restores: torchft registers functions that refer to it as `self`.

    Raises:
        AlgorithmError: this version of torchft registers something else.
    """
    found = inspect.getclosurevars(load).nonlocals.get("self")
    if not isinstance(found, SyncedFragment):
        message = (
            f"torchft's DiLoCo registered {key} with {load!r}, through which no round can be replayed; allowed: the "
            "DiLoCo of torchft-nightly 2026.10.26, with which Muster is tested."
        )
        raise AlgorithmError(message)
    return found
