"""The program of a server that forks processes of replicas: `replica`, `impatient`, `member`, or a module."""

import gc
import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

from muster.replica.entry import launch
from muster.replica.entry.main import main as run_process
from muster.replica.frontends import array_diloco  # noqa: F401 - what most trainers import
from muster.replica.group.group_process import ENV_BOARD, GroupProcess
from muster.replica.group.launched_group import Patience
from muster.replica.store import open_store
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, ObjectWriter
from tests.support.rendezvous_keys import is_like

ENV_DIES_AT = "MUSTER_TEST_DIES_AT"
"""A pattern of keys: the process is killed by a signal when it writes such an object."""


class _DyingStore(LocalStore):
    def create(self, key: str, body: Bytes) -> None:
        _die(key)
        super().create(key, body)

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        _die(key)
        return super().writer(key, size)


def _die(key: str) -> None:
    if is_like(key, os.environ[ENV_DIES_AT]):
        os.kill(os.getpid(), signal.SIGKILL)


def main(arguments: Sequence[str]) -> int:
    """What a container of a replica does; `member`: one process of a replica, without a launcher."""
    gc.freeze()  # what was imported is no garbage
    program, *sys.argv[1:] = arguments
    if "." in program:
        return int(import_module(program).main())
    if program == "replica":
        return launch.main(os.environ)
    if program == "impatient":
        # Waits a second for what ends, where the launcher would wait minutes.
        return launch.main(os.environ, Patience(stop=2.0, end=1.0, returned=60.0, meet=60.0, reach=1.0))
    if ENV_DIES_AT in os.environ:
        open_store.LocalStore = _DyingStore  # type: ignore[misc]
    code = run_process(os.environ, member=GroupProcess.of(os.environ) if ENV_BOARD in os.environ else None)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # taking PyTorch down takes longer than the training
