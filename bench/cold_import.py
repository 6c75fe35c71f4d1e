"""The CPU of a function's cold start: importing its handler, against `import boto3` and making the same clients.

The handler is imported from the bundle that is deployed, unpacked as Lambda unpacks it; boto3 as it is installed, which
has the descriptions of all services. Each time in a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import boto3

from bench.table import Row
from muster.infra.deploy.bundle import build_bundle
from muster.infra.settings.stack_settings import Platform

_ROOT = Path(__file__).parents[1]
_HANDLERS = ("plan", "attempt", "react", "settle", "stop")
_REPETITIONS = 9

_TIMED = """
import time
start = time.process_time()
{statements}
print(time.process_time() - start)
"""

_CLIENTS = """
import json
from botocore.session import Session
make, made = Session.create_client, []
Session.create_client = lambda self, name, **options: (made.append(name), make(self, name, **options))[1]
import lambdas.{handler}
print(json.dumps(made))
"""

ENVIRONMENT = {
    "MUSTER_BUCKET": "muster-bench",
    "MUSTER_JOB_PREFIX": "muster",
    "MUSTER_BUS": "bus",
    "MUSTER_REPLICA_ROLE_ARN": "arn:aws:iam::123456789012:role/muster-replica",
    "MUSTER_LAUNCHER_ROLE_ARN": "arn:aws:iam::123456789012:role/muster-replica",
    "MUSTER_DEFAULTS": "{}",
    "MUSTER_LAUNCHES_PER_SECOND": "10",
    "MUSTER_TIMER_FUNCTION_ARN": "arn:aws:lambda:us-east-1:123456789012:function:alarm",
    "MUSTER_TIMER_ROLE_ARN": "arn:aws:iam::123456789012:role/alarm",
    "POWERTOOLS_SERVICE_NAME": "muster",
    "POWERTOOLS_METRICS_NAMESPACE": "Muster",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "bench",
    "AWS_SECRET_ACCESS_KEY": "bench",
    "PYTHONDONTWRITEBYTECODE": "1",
}


def run() -> list[Row]:
    """Per handler: the ratio to boto3 with the same clients, and the CPU seconds of both."""
    return measured(_HANDLERS)


def measured(handlers: Iterable[str]) -> list[Row]:
    """The same for some of the handlers."""
    bundle = build_bundle(Platform.LOCAL)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
        python = _Interpreter(Path(folder))
        clients = {handler: python.clients(handler) for handler in handlers}
        pairs: dict[str, list[_Pair]] = {handler: [] for handler in clients}
        # Both of a pair directly after each other, and the handlers alternating, so that a busy period affects all of
        # them.
        for _ in range(_REPETITIONS):
            for handler, made in clients.items():
                ours = python.cpu_seconds(f"import lambdas.{handler}")
                pairs[handler].append(_Pair(ours, python.cpu_seconds(_boto3(made))))
    return [row for handler, made in clients.items() for row in _rows(handler, made, pairs[handler])]


@dataclass(frozen=True)
class _Pair:
    """CPU seconds of a handler and of boto3, measured one after the other."""

    ours: float
    peer: float


def _rows(handler: str, made: list[str], pairs: list[_Pair]) -> list[Row]:
    ratio = median(pair.ours / pair.peer for pair in pairs)
    ours, peer = median(pair.ours for pair in pairs), median(pair.peer for pair in pairs)
    against = f"median of {_REPETITIONS} pairs, against boto3 with {', '.join(made)}"
    where = f"the bundle for {Platform.LOCAL}, Python {sys.version.split()[0]}"
    return [
        Row(f"{handler}: ratio to boto3", ratio, "x", "<= 1.15", None, against),
        Row(f"{handler}: CPU of a cold import", ours, "s", None, peer, where),
    ]


def _boto3(clients: list[str]) -> str:
    here = f"import sys; sys.path[0] = {str(Path(boto3.__file__).parents[1])!r}"
    return "; ".join([here, "import boto3", *(f"boto3.client({name!r})" for name in clients)])


class _Interpreter:
    """Fresh interpreters that see the unpacked bundle and the standard library alone."""

    def __init__(self, bundle: Path) -> None:
        self._bundle = bundle

    def cpu_seconds(self, statements: str) -> float:
        """User and system CPU of `statements`, without the interpreter's own start."""
        return float(self._run(_TIMED.format(statements=statements)))

    def clients(self, handler: str) -> list[str]:
        """The services for which a handler makes clients when it is imported."""
        return sorted(json.loads(self._run(_CLIENTS.format(handler=handler))))

    def _run(self, program: str) -> str:
        # No site-packages (-S): a package that is missing from the bundle must not be found here.
        environment = ENVIRONMENT | {"PATH": os.environ["PATH"], "HOME": str(self._bundle)}
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(
            command, cwd=self._bundle, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
        ).stdout
