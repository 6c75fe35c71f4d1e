"""Watches the processes of an instance until all have ended, and ends them together.

- If a process fails, the others of the instance are ended: SIGTERM, and SIGKILL after `END_SECONDS`. The first
  instance's board passes it on to the other launchers, which do the same. All of them report the first failure of all.
- SIGTERM is passed on to every process. What still runs shortly before SageMaker's own SIGKILL is killed here, so that
  the others' reasons are still written.
- A process has succeeded when it says so before it ends. An exit code of 0 alone is a failure.
- Processes return from the trainer together. One that still runs long after another one has returned is hung.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from contextlib import suppress
from typing import cast

from muster.contract.exits import ReplicaExit
from muster.replica.group.board import ENDED, FIRST_RETURNED, Board, BoardError, has, returned
from muster.replica.group.cause import Cause, End, first_cause
from muster.replica.group.group_folder import GroupFolder, Report
from muster.replica.group.launched_group import END_SECONDS, Ends, Group, Master
from muster.replica.group.spawning import signal_process

LOOK_SECONDS = 0.1
# A peer's failure is seen before its cause, where a signal has killed a process: what comes in this time counts too.
_EVIDENCE_SECONDS = 0.5
# If a process that the spawner has reaped had failed, the spawner would have ended the others by then.
GONE_SECONDS = END_SECONDS + 5.0


class ProcessWatch:
    """Watches the processes of an instance until all have ended."""

    def __init__(self, group: Group, board: Board, folder: GroupFolder, stop: threading.Event) -> None:
        self._group = group
        self._board = board
        self._folder = folder
        self._stop = stop
        self._ends: Ends = {}
        self._gone: dict[int, float] = {}
        self._signalled: dict[int, float] = {}
        self._cause: Cause | None = None
        self._first_sign: float | None = None
        self._elsewhere: Cause | None = None
        self._first_returned: tuple[int, float] | None = None
        self._spawned: Ends = {}
        self._failed_to_start: Cause | None = None

    def until_end(self, master: Master) -> Cause | None:
        """Start the processes and return why they failed, or None."""
        spawning = threading.Thread(target=self._spawn, args=(master,), name="spawner", daemon=True)
        spawning.start()
        threading.Thread(target=self._hear_of_return, name="first-returned", daemon=True).start()
        if self._group.instances.count > 1:
            threading.Thread(target=self._hear_of_end, name="ended", daemon=True).start()
        while spawning.is_alive():
            spawning.join(LOOK_SECONDS)
            self._look()
        # What the launcher has seen itself is more exact.
        self._ends = {**self._spawned, **self._ends}
        self._judge(complete=True)
        return self._cause

    def _spawn(self, master: Master) -> None:
        try:
            self._spawned = self._group.spawn(self._group, master)
        except ImportError as error:
            text = f"The processes cannot be started: {type(error).__name__}: {error}"
            self._failed_to_start = Cause(ReplicaExit.BAD_INPUT, text)
        except Exception as error:
            text = f"The processes cannot be started or watched: {type(error).__name__}: {error}"
            self._failed_to_start = Cause(ReplicaExit.RENDEZVOUS, text)

    def _hear_of_return(self) -> None:
        """Wait until the trainer has returned in a process of any instance."""
        with suppress(BoardError):
            self._first_returned = (cast("int", self._board.get(FIRST_RETURNED)), time.monotonic())

    def _hear_of_end(self) -> None:
        """Wait for the failure of another instance."""
        try:
            found = self._board.get(ENDED)
        except BoardError as error:
            self._elsewhere = Cause(ReplicaExit.RENDEZVOUS, str(error))
            return
        code, text = cast("tuple[int, str]", found)
        self._elsewhere = Cause(code, text)

    def _look(self) -> None:
        for local_rank in range(self._group.count):
            pid = self._folder.pid(local_rank)
            if pid is not None and local_rank not in self._ends and (end := self._end_of(local_rank, pid)) is not None:
                self._ends[local_rank] = end
        self._judge(complete=False)
        if self._stop.is_set():
            self._end_all(self._group.patience.stop)
        elif self._cause is not None:
            self._end_all(self._group.patience.end)

    def _end_of(self, local_rank: int, pid: int) -> End | None:
        """How a process has ended; None while it runs, or if the spawner was quicker and may still know better."""
        try:
            return _end_of(pid)
        except ChildProcessError:
            gone = time.monotonic() - self._gone.setdefault(local_rank, time.monotonic())
            return End(time.time(), 0) if gone > GONE_SECONDS else None

    def _judge(self, *, complete: bool) -> None:
        """Find the cause, once, and publish it to the other instances."""
        if self._cause is not None:
            return
        cause = self._local_cause(complete=complete)
        if cause is not None:
            self._cause = self._published(cause)
        elif self._elsewhere is not None:
            self._cause = self._elsewhere

    def _local_cause(self, *, complete: bool) -> Cause | None:
        group = self._group
        ends = {group.name(local_rank): end for local_rank, end in self._ends.items()}
        finished = {group.name(local_rank) for local_rank in self._ends if self._folder.is_finished(local_rank)}
        cause = first_cause(ends, self._reports(), finished)
        if cause is None:
            return self._failed_to_start or self._hung()
        self._first_sign = self._first_sign or time.monotonic()
        if complete:
            return cause
        if any(self._is_silent(local_rank) for local_rank in self._gone.keys() - self._ends.keys()):
            return None  # the one that the spawner has reaped ended first, and the spawner ends the others now
        over = time.monotonic() - self._first_sign >= _EVIDENCE_SECONDS
        return cause if over or any(end.was_killed for end in ends.values()) else None

    def _is_silent(self, local_rank: int) -> bool:
        """Whether only the spawner knows how this process has ended."""
        return self._folder.reported(local_rank) is None and not self._folder.is_finished(local_rank)

    def _reports(self) -> dict[str, Report]:
        found = {
            self._group.name(local_rank): self._folder.reported(local_rank) for local_rank in range(self._group.count)
        }
        return {name: report for name, report in found.items() if report is not None}

    def _hung(self) -> Cause | None:
        """A process that is still in the trainer long after another one has returned from it."""
        group, seconds = self._group, self._group.patience.returned
        if self._first_returned is None or time.monotonic() - self._first_returned[1] < seconds:
            return None
        running = [local_rank for local_rank in range(group.count) if local_rank not in self._ends]
        hung = next((item for item in running if not has(self._board, returned(group.rank(item)))), None)
        if hung is None:
            return None
        text = (
            f"{group.name(hung)} is hung: it is still in the trainer {seconds:g} s after process "
            f"{self._first_returned[0]} has returned from it"
        )
        return Cause(ReplicaExit.USER_CODE, text)

    def _published(self, cause: Cause) -> Cause:
        """The first cause of all instances: what another one has said before counts."""
        try:
            code, text = cast("tuple[int, str]", self._board.put(ENDED, [cause.code, cause.text]))
        except BoardError:
            return cause
        return Cause(code, text)

    def _end_all(self, seconds: float) -> None:
        """SIGTERM for every process that can take it, once; SIGKILL for what still runs `seconds` later."""
        now = time.monotonic()
        for local_rank in range(self._group.count):
            pid = self._folder.pid(local_rank)
            if pid is None or local_rank in self._ends:
                continue
            if local_rank not in self._signalled:
                self._signalled[local_rank] = now
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            elif now - self._signalled[local_rank] > seconds:
                if self._cause is None:
                    text = f"{self._group.name(local_rank)} was killed: it still ran {seconds:g} s after SIGTERM"
                    self._cause = self._published(Cause(ReplicaExit.KILLED, text))
                signal_process(pid, signal.SIGKILL)


def _end_of(pid: int) -> End | None:
    """How a child has ended, without reaping it; None while it runs.

    Raises:
        ChildProcessError: it has been reaped.
    """
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            raise ChildProcessError from None
        return None
    found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if found is None:
        return None
    return End(time.time(), found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
