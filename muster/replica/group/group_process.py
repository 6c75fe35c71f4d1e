"""A process as a member of its replica's group: what it shares with the others, and how it reports its end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from muster.contract.exits import ReplicaExit
from muster.replica.group.board import ENDED, FIRST_RETURNED, Board, BoardError, InnerGroup, LocalBoard, has, returned
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.network_board import NetworkBoard

# Set by the launcher for the processes that it starts.
ENV_BOARD = "MUSTER_GROUP_BOARD"
ENV_FOLDER = "MUSTER_GROUP_FOLDER"

# Within SageMaker's 120 seconds, and less than the launcher's patience: a process that saves longer is not waited for.
STOPPED_SECONDS = 90.0
_LOOK_SECONDS = 0.2


@dataclass(frozen=True)
class GroupProcess:
    """This process in its group. A replica of one process is its only member."""

    group: InnerGroup = field(default_factory=InnerGroup)
    board: Board = field(default_factory=LocalBoard)
    folder: GroupFolder | None = None
    beside: int = 1
    """The processes of the group on this instance, with this one."""

    @classmethod
    def of(cls, variables: Mapping[str, str]) -> GroupProcess:
        """The member that the launcher has started with these variables."""
        host, _, port = variables[ENV_BOARD].rpartition(":")
        group = InnerGroup(int(variables["RANK"]), int(variables["WORLD_SIZE"]), int(variables["LOCAL_RANK"]))
        beside = int(variables.get("LOCAL_WORLD_SIZE", "1"))
        return cls(group, NetworkBoard(host, int(port)), GroupFolder(Path(variables[ENV_FOLDER])), beside)

    def ready(self) -> None:
        """From now on SIGTERM is handled, and the launcher may send it."""
        if self.folder is not None:
            self.folder.register(self.group.local_rank)

    def report(self, code: ReplicaExit, text: str) -> bool:
        """Report to the launcher why this process fails; False where there is none."""
        if self.folder is None:
            return False
        self.folder.report(self.group.local_rank, code, text)
        return True

    def finish(self) -> None:
        """Report to the launcher that this process is done: the trainer has returned, and its results are saved."""
        if self.folder is not None:
            self.folder.finish(self.group.local_rank)

    def wait_for_returns(self) -> None:
        """Say that the trainer has returned in this process; the first process waits until it has in all of them.

        There is no limit here: the launcher ends a group in which a process does not return.

        Raises:
            BoardError: the board cannot be reached.
        """
        self.board.put(returned(self.group.rank), True)
        self.board.put(FIRST_RETURNED, self.group.rank)
        if self.group.is_first:
            for rank in range(self.group.size):
                self.board.get(returned(rank))

    def wait_for_stops(self) -> None:
        """Return when every process of the group has stopped, but after `STOPPED_SECONDS` at the latest.

        A process that ends is taken for a failure, after which the others have less time to save than SageMaker gives.
        """
        if self.group.size == 1:
            return
        over = time.monotonic() + STOPPED_SECONDS
        try:
            self.board.put(f"stopped/{self.group.rank}", True)
            missing = set(range(self.group.size))
            while missing and time.monotonic() < over and not has(self.board, ENDED):
                missing = {rank for rank in missing if not (has(self.board, f"stopped/{rank}") or self._is_gone(rank))}
                if missing:
                    time.sleep(_LOOK_SECONDS)
        except BoardError:
            return

    def _is_gone(self, rank: int) -> bool:
        """Whether a process of this instance has ended, although the launcher may not have noticed yet."""
        local_rank = rank - (self.group.rank - self.group.local_rank)
        return self.folder is not None and local_rank >= 0 and self.folder.is_gone(local_rank)
