"""`python -m tests.support.jobs.forked_processes FILE`: processes of replicas, forked from one that has PyTorch.

So PyTorch is imported once, and not in every process. Each line of the file is one process as JSON:

    variables: of the process, the launcher's among them.
    dies_at: a pattern of keys: a signal kills the process when it writes such an object.
    code: how it must end, as in `subprocess`.
    after: the numbers of the lines whose processes end before this one begins.

The first process that ends otherwise ends all, and what it wrote is printed.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path
from typing import NoReturn, TypedDict

import torch._dynamo  # noqa: F401 - what an optimizer imports

from muster.replica.entry.main import main as run_process
from muster.replica.group.member import ENV_BOARD, Member
from muster.replica.store import open_store
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, ObjectWriter
from tests.support.jobs import sharded_trainers  # noqa: F401 - imported before the processes are forked
from tests.support.rendezvous_keys import is_like


class Process(TypedDict):
    """A line of the file."""

    variables: dict[str, str]
    dies_at: str | None
    code: int
    after: list[int]


class DyingStore(LocalStore):
    """A store whose process dies when it writes an object like `dies_at`."""

    dies_at: str

    def create(self, key: str, body: Bytes) -> None:
        self._die(key)
        super().create(key, body)

    def writer(self, key: str, size: int | None = None) -> ObjectWriter:
        self._die(key)
        return super().writer(key, size)

    def _die(self, key: str) -> None:
        if is_like(key, self.dies_at):
            os.kill(os.getpid(), signal.SIGKILL)


def run(process: Process, output: Path) -> NoReturn:
    """In a fork: run a process of a replica, which writes to the file `output`."""
    code = 1
    try:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
        os.dup2(1, 2)
        os.environ.update(process["variables"])
        if process["dies_at"] is not None:
            DyingStore.dies_at = process["dies_at"]
            open_store.LocalStore = DyingStore
        code = run_process(os.environ, member=Member.of(os.environ) if ENV_BOARD in os.environ else None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(file: Path) -> int:
    """Run the processes of the file."""
    waiting: dict[int, Process] = dict(enumerate(map(json.loads, file.read_text().splitlines())))
    running: dict[int, int] = {}
    codes = {number: process["code"] for number, process in waiting.items()}
    while waiting or running:
        for number, process in list(waiting.items()):
            if not {*process["after"]} & {*waiting, *running.values()}:
                del waiting[number]
                pid = os.fork()
                if pid == 0:
                    run(process, file.with_name(f"{number}.log"))
                running[pid] = number
        pid, status = os.wait()
        number = running.pop(pid)
        if os.waitstatus_to_exitcode(status) != codes[number]:
            for other in running:
                os.kill(other, signal.SIGKILL)
            print(f"process {number}: status {status}\n", file.with_name(f"{number}.log").read_text())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
