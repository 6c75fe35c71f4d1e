"""The container's first process, where a replica has several: it starts them, watches them and ends them together.

It needs no store and does not train, so nothing keeps it from passing a signal on. Its rules:

- If a process fails, the others of the instance are ended: SIGTERM, and SIGKILL after `spawning.END_SECONDS`. The first
  instance's board passes it on to the other launchers, which do the same. All of them report the first failure of all.
- SIGTERM is passed on to every process. What still runs shortly before SageMaker's own SIGKILL is killed here, so that
  the others' reasons are still written.
- A process has succeeded when it says so before it ends. An exit code of 0 alone is a failure.
- Processes return from the trainer together. One that still runs long after another one has returned is hung.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from muster.contract.run.exits import ReplicaExit
from muster.replica.errors import GroupError
from muster.replica.group.board import ENDED, FIRST_RETURNED, Board, BoardError, LocalBoard, has, returned
from muster.replica.group.cause import Cause, End, first_cause
from muster.replica.group.group_folder import GroupFolder, Report
from muster.replica.group.instances import Instances
from muster.replica.group.member import ENV_BOARD, ENV_FOLDER
from muster.replica.group.network_board import REACH_SECONDS, BoardServer, NetworkBoard
from muster.replica.group.process_output import ProcessOutput
from muster.replica.group.spawning import END_SECONDS, Crew, Ends, Spawner, omp_threads, signal_process

LOOK_SECONDS = 0.1
BOARD_PORT = 29411
"""Where the board of several instances listens, on the first one. That of a single instance takes a free port."""
_EFA_DEVICES = Path("/dev/infiniband")
_PROCESS = "muster.replica.entry.process"
# SageMaker kills a container 120 seconds after SIGTERM.
STOP_SECONDS = 110.0
# After the trainer has returned in one process: another one may still evaluate or write the model.
RETURN_SECONDS = 3_600.0
# A peer's failure is seen before its cause, where a signal has killed a process: what comes in this time counts too.
_EVIDENCE_SECONDS = 0.5
# Instances of a job may start minutes apart.
_MEET_SECONDS = 900.0
_FAREWELL_SECONDS = 2 * END_SECONDS


@dataclass(frozen=True)
class Patience:
    """How long the launcher waits, in seconds."""

    stop: float = STOP_SECONDS
    end: float = END_SECONDS
    returned: float = RETURN_SECONDS
    meet: float = _MEET_SECONDS
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

    def rank(self, local_rank: int) -> int:
        """The rank in the group of a process of this instance."""
        return self.instances.index * self.count + local_rank

    def name(self, local_rank: int) -> str:
        """A process, in messages."""
        where = f" on {self.instances.current}" if self.instances.count > 1 else ""
        return f"process {self.rank(local_rank)}{where}"


def run_group(group: Group, stop: threading.Event) -> Cause | None:
    """Run the group's processes on this instance until all have ended; `stop` is set by SIGTERM.

    Returns why the group failed; None if it succeeded.

    Raises:
        GroupError: the group cannot be formed.
    """
    with ExitStack() as closing:
        board, address = _open_board(group, closing)
        # The first launcher may start minutes later: until then its board is not there.
        patient = replace(board, patience_seconds=group.patience.meet) if isinstance(board, NetworkBoard) else board
        master = agree_on_master(group, patient)
        folder = GroupFolder(Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="muster-group-"))))
        fifos = folder.make_outputs(group.count)
        prefixes = [f"[{group.replica}.{group.rank(local_rank)}] " for local_rank in range(group.count)]
        output = ProcessOutput(fifos, prefixes, sys.stdout.buffer)
        closing.callback(output.close)
        os.environ.update(
            {ENV_BOARD: f"{address[0]}:{address[1]}", ENV_FOLDER: str(folder.place)}
            | omp_threads(os.environ, group.count, os.cpu_count() or 1)
            | network_variables(os.environ, group.instances)
        )
        flags = ["-P"] if sys.flags.safe_path else []
        crew = Crew(
            command=[sys.executable, *flags, "-m", _PROCESS],
            count=group.count,
            index=group.instances.index,
            instances=group.instances.count,
            master=master,
            name=group.job,
        )
        cause = _Watch(group, board, folder, stop).until_end(crew)
        _say_farewell(group, board)
        return cause


def network_variables(
    variables: Mapping[str, str], instances: Instances, devices: Path = _EFA_DEVICES
) -> dict[str, str]:
    """What collective operations between instances need to know of the network, unless the user has set it.

    That is the interface that SageMaker names, and libfabric's provider where the instances have EFA.
    """
    if instances.count == 1:
        return {}
    found = {}
    if instances.interface is not None:
        found = {"GLOO_SOCKET_IFNAME": instances.interface, "NCCL_SOCKET_IFNAME": instances.interface}
    if any(devices.glob("uverbs*")):
        found["FI_PROVIDER"] = "efa"
    return {name: value for name, value in found.items() if name not in variables}


def _open_board(group: Group, closing: ExitStack) -> tuple[LocalBoard | NetworkBoard, tuple[str, int]]:
    """The group's board, and the address at which its processes find it."""
    instances = group.instances
    if instances.index > 0:
        host = _address_of(instances.first, group.patience.meet)
        return NetworkBoard(host, BOARD_PORT, group.patience.reach), (host, BOARD_PORT)
    board = LocalBoard()
    several = instances.count > 1
    host, port = (_address_of(instances.first, group.patience.meet), BOARD_PORT) if several else ("127.0.0.1", 0)
    try:
        server = BoardServer(board, (host, port))
    except OSError as error:
        message = f"The board of the replica's processes cannot listen on {host}:{port}: {error}."
        raise GroupError(message) from None
    closing.callback(server.close)
    board.put("master", [host, free_port(), group.count])
    return board, (host, server.port)


def _address_of(host: str, seconds: float) -> str:
    """The address of `host`. Its name may be known only some time after the containers start."""
    over = time.monotonic() + seconds
    while True:
        try:
            return str(socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0])
        except OSError as error:
            if time.monotonic() > over:
                message = f"The instance {host} of the job has no address after {seconds:g} s: {error}."
                raise GroupError(message) from None
            time.sleep(1.0)


def agree_on_master(group: Group, board: Board) -> tuple[str, int]:
    """Where the group's first process listens, as the first launcher says.

    Raises:
        GroupError: it does not say so in time, or has another number of processes.
    """
    try:
        host, port, count = cast("tuple[str, int, int]", board.get("master", group.patience.meet))
    except BoardError as error:
        raise GroupError(str(error)) from None
    if count != group.count:
        message = (
            f"{group.instances.current} would have {group.count} processes, but {group.instances.first} has {count}: "
            "set processes to a number that all instances can have."
        )
        raise GroupError(message)
    return host, port


def free_port() -> int:
    """A port that is free now. torch's store listens on all addresses, so it is free on all of them."""
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def _say_farewell(group: Group, board: Board) -> None:
    """The first launcher serves the board until all others have read how the group ended."""
    try:
        board.put(f"done/{group.instances.index}", True)
        if group.instances.index == 0:
            over = time.monotonic() + _FAREWELL_SECONDS
            for index in range(1, group.instances.count):
                board.get(f"done/{index}", max(0.0, over - time.monotonic()))
    except BoardError:
        return  # SageMaker ends what is left


class _Watch:
    """Watches the processes of an instance until all have ended."""

    def __init__(self, group: Group, board: Board, folder: GroupFolder, stop: threading.Event) -> None:
        self._group = group
        self._board = board
        self._folder = folder
        self._stop = stop
        self._ends: Ends = {}
        self._signalled: dict[int, float] = {}
        self._cause: Cause | None = None
        self._first_sign: float | None = None
        self._elsewhere: Cause | None = None
        self._first_returned: tuple[int, float] | None = None
        self._spawned: Ends = {}
        self._failed_to_start: Cause | None = None

    def until_end(self, crew: Crew) -> Cause | None:
        """Start the processes of `crew` and return why they failed, or None."""
        spawning = threading.Thread(target=self._spawn, args=(crew,), name="spawner", daemon=True)
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

    def _spawn(self, crew: Crew) -> None:
        try:
            self._spawned = self._group.spawn(crew)
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
            if pid is not None and local_rank not in self._ends and (end := _end_of(pid)) is not None:
                self._ends[local_rank] = end
        self._judge(complete=False)
        if self._stop.is_set():
            self._end_all(self._group.patience.stop)
        elif self._cause is not None:
            self._end_all(self._group.patience.end)

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
        over = time.monotonic() - self._first_sign >= _EVIDENCE_SECONDS
        return cause if complete or over or any(end.was_killed for end in ends.values()) else None

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
    """How a child has ended, without reaping it; None while it runs, and where the spawner was quicker."""
    if not hasattr(os, "waitid"):
        return None  # macOS before Python 3.13: the spawner alone sees it
    try:
        found = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return None
    if found is None:
        return None
    return End(time.time(), found.si_status if found.si_code == os.CLD_EXITED else -found.si_status)
