"""What a process does when Lambda resumes it from a snapshot (SnapStart), of which many processes are resumed.

A snapshot is taken when a function has been imported, before its first event. So it holds nothing of a run, no
connection of a call and no session of another role; the credentials of the function's own role are in it with the time
at which they end, which botocore compares with the clock before it signs a request. What is left is registered here.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable

# Lambda sets it, and has the module in its own runtimes.
_INITIALIZATION, _FROM_SNAPSHOTS = "AWS_LAMBDA_INITIALIZATION_TYPE", "snap-start"
_HOOKS = "snapshot_restore_py"


def after_restore(action: Callable[[], object]) -> None:
    """Call `action` in each process that is resumed, before its first event; does nothing without snapshots.

    Raises:
        ModuleNotFoundError: snapshots are taken, and the runtime has no hooks: the version must not be published.
    """
    if os.environ.get(_INITIALIZATION) == _FROM_SNAPSHOTS:
        importlib.import_module(_HOOKS).register_after_restore(action)
