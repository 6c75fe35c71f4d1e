"""`python -m muster.replica.entry.process`: one of the processes that the launcher starts for a replica."""

import ctypes
import os
import signal
import sys

from muster.contract.exits import ReplicaExit
from muster.replica.group.group_process import GroupProcess

_PR_SET_PDEATHSIG = 1  # <linux/prctl.h>


def main() -> ReplicaExit:
    """Run this process of its replica."""
    _end_with_launcher()
    member = GroupProcess.of(os.environ)
    if member.folder is not None:
        member.folder.redirect_output(member.group.local_rank)
    # Imported with the output in place: an error here has its process in front.
    from muster.replica.entry.main import main as run_process  # noqa: PLC0415

    return run_process(os.environ, member=member)


def _end_with_launcher() -> None:
    """On Linux: have the kernel kill this process when its launcher is killed. It would train on without its group."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
