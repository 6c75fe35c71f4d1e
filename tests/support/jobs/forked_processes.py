"""`python -m tests.support.jobs.forked_processes FILE`: processes of replicas, forked from one that has PyTorch.

So PyTorch is imported once, and not in every process. Each line of the file has the variables of a process as JSON.
They have the launcher's part: the first one to fail ends all, and what it wrote is printed.
"""

import json
import os
import signal
import sys
import traceback
from pathlib import Path

import torch._dynamo  # noqa: F401 - what an optimizer imports

from muster.replica.entry.main import main as run_process
from muster.replica.group.member import ENV_BOARD, Member
from tests.support.jobs import sharded_trainers  # noqa: F401 - imported before the processes are forked


def forked(variables: dict[str, str], output: Path) -> int:
    """The number of a new process of a replica with these variables, which writes to the file `output`."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        os.dup2(os.open(output, os.O_WRONLY | os.O_CREAT, 0o600), 1)
        os.dup2(1, 2)
        os.environ.update(variables)
        code = run_process(os.environ, member=Member.of(os.environ) if ENV_BOARD in os.environ else None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(code)


def main(file: Path) -> int:
    """Run the processes of the file."""
    outputs = {}
    for number, line in enumerate(file.read_text().splitlines()):
        output = file.with_name(f"{number}.log")
        outputs[forked(json.loads(line), output)] = output
    while outputs:
        pid, status = os.wait()
        output = outputs.pop(pid)
        if status:
            for other in outputs:
                os.kill(other, signal.SIGKILL)
            print(output.read_text())
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
