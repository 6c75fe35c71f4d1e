"""A replica's handle: it holds all that another process needs to find the replica."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from muster.contract.errors import MusterError

BACKEND = "muster"


class HandleError(MusterError):
    """A handle of another executor."""

    def __init__(self, handle: object) -> None:
        super().__init__(f"{handle!r} is not a Muster handle: pass one returned by MusterExecutor.launch_replicas.")


@dataclass(frozen=True)
class ReplicaHandle:
    """The protocol's handle. `metadata` holds only text, so that a handle survives JSON and pickle."""

    rank: int
    backend_name: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def run_of(handle: ReplicaHandle) -> str:
    """The run that a handle names; any class with the protocol's attributes will do.

    Raises:
        HandleError: it is another backend's handle.
    """
    run = handle.metadata.get("run")
    if handle.backend_name != BACKEND or run is None:
        raise HandleError(handle)
    return run
