"""`python -m muster.replica.entry.process`: one of the processes that the launcher starts for a replica."""

import os
import sys

from muster.contract.exits import ReplicaExit
from muster.replica.group.group_process import GroupProcess
from muster.replica.group.spawning import end_with_parent


def main() -> ReplicaExit:
    """Run this process of its replica."""
    end_with_parent()
    member = GroupProcess.of(os.environ)
    if member.folder is not None:
        member.folder.redirect_output(member.group.local_rank)
    # Imported with the output in place: an error here has its process in front.
    from muster.replica.entry.main import main as run_process  # noqa: PLC0415

    return run_process(os.environ, member=member)


if __name__ == "__main__":
    sys.exit(main())
