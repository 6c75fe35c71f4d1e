"""A process's place in its replica, whose processes train one copy of the model together."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class InnerGroup:
    """A process's place in the inner group: the processes of one replica, on all instances of its job.

    A replica of one process is a group of size 1.
    """

    rank: int = 0
    """This process's number in the replica, from 0 to `size - 1`; torch's RANK. Those of an instance are consecutive,
    and the first instance has the first ones."""

    size: int = 1
    """The number of processes of the replica, on all its instances; torch's WORLD_SIZE."""

    local_rank: int = 0
    """This process's number on its instance, from 0; torch's LOCAL_RANK. It selects the GPU."""

    @property
    def is_first(self) -> bool:
        """Whether this process acts for the replica: it claims the rank, and writes what the replica writes once."""
        return self.rank == 0
