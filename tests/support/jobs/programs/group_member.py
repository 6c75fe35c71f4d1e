"""A process of a replica's group that needs no trainer: `group_member RANK=ENDING ...`, where the others `wait`.

It starts in a sixth of the time of one that trains. All are up before any of them does what its ending says.
"""

import os
import signal
import sys
import threading
import time
from pathlib import Path

from muster.contract.exits import ReplicaExit
from muster.replica.group.board import has
from muster.replica.group.group_process import GroupProcess
from tests.support.waiting import wait_until

member = GroupProcess.of(os.environ)
stop = threading.Event()


def returns() -> None:
    """The trainer returns."""
    member.wait_for_returns()
    member.finish()


def fails() -> None:
    """The trainer raises an error."""
    member.report(ReplicaExit.USER_CODE, "no data")
    sys.exit(ReplicaExit.USER_CODE)


def dies() -> None:
    """A signal kills the process."""
    os.kill(os.getpid(), signal.SIGKILL)


def complains() -> None:
    """The trainer fails because it has lost its peer, the process after it."""
    peer = Path(f"/proc/{member.board.get(f'up/{member.group.rank + 1}')}/root")
    wait_until("the peer's death", lambda: not peer.exists())
    member.report(ReplicaExit.USER_CODE, "the connection to a peer was closed")
    sys.exit(ReplicaExit.USER_CODE)


def leaves() -> None:
    """The trainer ends the process itself."""
    os._exit(0)


def hangs() -> None:
    """The trainer neither returns nor stops."""
    threading.Event().wait()


def waits() -> None:
    """The trainer trains until SIGTERM, and saves then; in the last process that takes longest."""
    stop.wait()
    time.sleep(0.1 * member.group.rank)
    member.board.put(f"saved/{member.group.rank}", True)
    member.wait_for_stops()
    saved = [rank for rank in range(member.group.size) if has(member.board, f"saved/{rank}")]
    member.report(ReplicaExit.STOPPED, f"stopped when {saved} had saved")
    sys.exit(ReplicaExit.STOPPED)


def main() -> None:
    """Do what the ending says, once all processes of the instance are up."""
    rank = member.group.rank
    ending = dict(argument.split("=") for argument in sys.argv[1:]).get(str(rank), "waits")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ending == "hangs" else lambda *_: stop.set())
    assert member.folder is not None
    member.folder.redirect_output(member.group.local_rank)
    member.ready()
    member.board.put(f"up/{rank}", os.getpid())
    first = rank - member.group.local_rank
    for other in range(first, first + int(os.environ["LOCAL_WORLD_SIZE"])):
        member.board.get(f"up/{other}")
    globals()[ending]()


main()
