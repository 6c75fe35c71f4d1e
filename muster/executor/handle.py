"""A replica's handle: all that any process needs to find the replica again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.contract.errors import MusterError

BACKEND = "muster"


class HandleError(MusterError):
    """A handle that is none of this executor's."""

    def __init__(self, handle: Any) -> None:
        super().__init__(f"{handle!r} is no handle of Muster: pass one that MusterExecutor.launch_replicas returned.")


@dataclass(frozen=True)
class ReplicaHandle:
    """The protocol's handle. `metadata` holds text alone, so that a handle survives JSON and pickle."""

    rank: int
    backend_name: str
    metadata: Mapping[str, str] = field(default_factory=dict)


def run_of(handle: Any) -> str:
    """The run that a handle names, whichever class of the protocol's shape it has.

    Raises:
        HandleError: it is another backend's handle.
    """
    run = handle.metadata.get("run")
    if handle.backend_name != BACKEND or not isinstance(run, str):
        raise HandleError(handle)
    return run
