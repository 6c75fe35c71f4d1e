"""AWS's own command line on a cluster: one job from its creation to its deletion. Prints what each command has said.

It runs in build/kubernetes. Its commands share a process, because loading them takes seconds.
"""

import json
import sys
import time
from collections.abc import Callable

from click.testing import CliRunner
from sagemaker.hyperpod.cli.hyp_cli import cli

NAMESPACE, JOB, KIND = sys.argv[1], "oracle", "hyp-pytorch-job"
_SECONDS = 60.0


def hyp(*arguments: str) -> dict[str, object]:
    """Run one command."""
    result = CliRunner().invoke(cli, list(arguments))
    return {"code": result.exit_code, "output": result.output, "error": repr(result.exception or "")}


def until(command: Callable[[], dict[str, object]], text: str) -> dict[str, object]:
    """Run a command until its output has `text`."""
    deadline = time.monotonic() + _SECONDS
    while text not in str((found := command())["output"]) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def listed() -> dict[str, object]:
    return hyp("list", KIND, "-n", NAMESPACE)


create = ("create", KIND, "--version", "1.1", "--job-name", JOB, "--namespace", NAMESPACE, "--node-count", "1")
what = ("--image", "muster-local/python", "--environment", '{"NNODES": "1"}')
found = {
    "list before": listed(),
    "create": hyp(*create, *what, "--command", "[hyperpodrun, --nnodes=1, --tee=3, steps.py, 600]"),
    "create again": hyp(*create, *what, "--command", "[hyperpodrun, steps.py, 1]"),
    "list": until(listed, " Running"),  # not PodsRunning
    "describe": hyp("describe", KIND, "--job-name", JOB, "-n", NAMESPACE),
    "list-pods": hyp("list-pods", KIND, "--job-name", JOB, "-n", NAMESPACE),
    "delete": hyp("delete", KIND, "--job-name", JOB, "-n", NAMESPACE),
    "list after": listed(),
    "describe after": hyp("describe", KIND, "--job-name", JOB, "-n", NAMESPACE),
}
sys.stdout.write(json.dumps(found))
