"""A replica's handle: it holds all that another process needs to find the replica."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from muster.contract.errors import MusterError
from muster.contract.names import JobName

BACKEND = "muster"
RUN = "run"
JOB = "training_job_name"
SUBMITTED = "submit_ts"


class HandleError(MusterError, ValueError):
    """A handle that names no run of Muster."""

    def __init__(self, handle: object) -> None:
        super().__init__(
            f"{handle!r} names no run of Muster: pass a handle that MusterExecutor.launch_replicas has returned, or "
            f"one whose metadata have the run's name as {RUN!r} or the name of one of its training jobs as {JOB!r}."
        )


@dataclass(frozen=True, eq=False)
class ReplicaHandle:
    """The protocol's handle. `metadata` holds text and numbers, so that a handle survives JSON and pickle.

    Two are equal that name the same replica of the same run, also if one was returned by a repeated launch.
    """

    rank: int
    backend_name: str
    metadata: Mapping[str, str | float] = field(default_factory=dict)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ReplicaHandle) and self._identity() == other._identity()

    def __hash__(self) -> int:
        return hash(self._identity())

    def _identity(self) -> tuple[object, ...]:
        return self.rank, self.backend_name, *(self.metadata.get(name) for name in (RUN, JOB, "stack", "region"))


def run_of(handle: ReplicaHandle, job_prefix: Callable[[], str]) -> str:
    """The run that a handle names; any class with the protocol's attributes will do.

    Args:
        job_prefix: returns what the names of the stack's training jobs begin with.

    Raises:
        HandleError: it names none.
    """
    run, job = handle.metadata.get(RUN), handle.metadata.get(JOB)
    if isinstance(run, str) and run:
        return run
    name = JobName.parse(job, job_prefix()) if isinstance(job, str) else None
    if name is None:
        raise HandleError(handle)
    return name.run
