"""The container's first process, where a replica has several: it starts them, and returns how their group has ended.

It needs no store and does not train, so nothing keeps it from passing a signal on. The rules are in `process_watch.py`.
"""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import cast

from muster.replica.group.board import Board, BoardError, LocalBoard
from muster.replica.group.cause import Cause
from muster.replica.group.group_folder import GroupFolder
from muster.replica.group.group_process import ENV_BOARD, ENV_FOLDER
from muster.replica.group.instances import Instances
from muster.replica.group.launched_group import END_SECONDS, Group, Master
from muster.replica.group.network_board import BoardServer, NetworkBoard
from muster.replica.group.process_output import ProcessOutput
from muster.replica.group.process_watch import ProcessWatch
from muster.replica.group.spawning import omp_threads
from muster.replica.replica_errors import GroupError

BOARD_PORT = 29411
"""Where the board of several instances listens, on the first one. That of a single instance takes a free port."""
_EFA_DEVICES = Path("/dev/infiniband")
_FAREWELL_SECONDS = 2 * END_SECONDS


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
        cause = ProcessWatch(group, board, folder, stop).until_end(master)
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


def agree_on_master(group: Group, board: Board) -> Master:
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
