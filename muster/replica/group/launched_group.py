"""The group of a replica's processes as the launcher on one of its instances knows it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from muster.replica.group.cause import End
from muster.replica.group.instances import Instances
from muster.replica.group.network_board import REACH_SECONDS

_FLAGS = ("-P",) if sys.flags.safe_path else ()
_COMMAND = (sys.executable, *_FLAGS, "-m", "muster.replica.entry.process")

END_SECONDS = 30.0
"""How long the others have to end after one has failed. torch's launcher gives them as long."""
# SageMaker kills a container 120 seconds after SIGTERM.
STOP_SECONDS = 110.0
# After the trainer has returned in one process: another one may still evaluate or write the model.
RETURN_SECONDS = 3_600.0
# Instances of a job may start minutes apart.
MEET_SECONDS = 900.0


@dataclass(frozen=True)
class Patience:
    """How long the launcher waits, in seconds."""

    stop: float = STOP_SECONDS
    end: float = END_SECONDS
    returned: float = RETURN_SECONDS
    meet: float = MEET_SECONDS
    reach: float = REACH_SECONDS


PATIENCE = Patience()


@dataclass(frozen=True)
class Group:
    """What the launcher starts on its instance."""

    instances: Instances
    count: int
    """Processes on each instance."""
    job: str
    replica: str
    """The replica's rank, in front of each line."""
    spawn: Spawner
    patience: Patience = PATIENCE
    command: Sequence[str] = _COMMAND

    @property
    def size(self) -> int:
        """The number of processes on all instances."""
        return self.instances.count * self.count

    def rank(self, local_rank: int) -> int:
        """The rank in the group of a process of this instance."""
        return self.instances.index * self.count + local_rank

    def name(self, local_rank: int) -> str:
        """A process, in messages."""
        where = f" on {self.instances.current}" if self.instances.count > 1 else ""
        return f"process {self.rank(local_rank)}{where}"


Master = tuple[str, int]
"""Where the group's first process (or its agent) listens: address and port."""

Ends = dict[int, End]
"""How processes ended, by local rank."""

Spawner = Callable[[Group, Master], Ends]
"""Starts the processes of a group on this instance and returns when all have ended. If one fails, the others are ended.
"""
