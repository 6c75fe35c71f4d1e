"""The CPU of a function's cold start: importing its handler, against `import boto3` and making the same clients.

Both import from the bundle that is deployed, unpacked as Lambda unpacks it, each time in a fresh interpreter.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median

from bench.table import Row
from infra.bundle import build_bundle
from infra.settings import Platform

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
import boto3, json
make, made = boto3.client, []
boto3.client = lambda name, *rest, **options: (made.append(name), make(name, *rest, **options))[1]
import lambdas.{handler}
print(json.dumps(made))
"""

_ENVIRONMENT = {
    "MUSTER_BUCKET": "muster-bench",
    "MUSTER_JOB_PREFIX": "muster",
    "MUSTER_REPLICA_ROLE_ARN": "arn:aws:iam::123456789012:role/muster-replica",
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
    bundle = build_bundle(_ROOT, Platform.LOCAL)
    with tempfile.TemporaryDirectory() as folder:
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
        python = _Interpreter(Path(folder))
        clients = {handler: python.clients(handler) for handler in _HANDLERS}
        statements = {f"import lambdas.{handler}" for handler in _HANDLERS} | {
            _boto3(made) for made in clients.values()
        }
        seconds: dict[str, list[float]] = {statement: [] for statement in statements}
        # Taken in turns, so that a busy moment of the machine falls on all of them.
        for _ in range(_REPETITIONS):
            for statement, times in seconds.items():
                times.append(python.cpu_seconds(statement))
    return [row for handler, made in clients.items() for row in _rows(handler, made, seconds)]


def _rows(handler: str, made: list[str], seconds: Mapping[str, list[float]]) -> list[Row]:
    ours, peer = median(seconds[f"import lambdas.{handler}"]), median(seconds[_boto3(made)])
    against = f"boto3 with {', '.join(made)}"
    measured = f"median of {_REPETITIONS}; function bundle for {Platform.LOCAL}, Python {sys.version.split()[0]}"
    return [
        Row(f"{handler}: ratio to boto3", ours / peer, "x", "<= 1.5", 1.0, against),
        Row(f"{handler}: CPU of a cold import", ours, "s", None, peer, measured),
    ]


def _boto3(clients: list[str]) -> str:
    return "; ".join(["import boto3", *(f"boto3.client({name!r})" for name in clients)])


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
        # No site-packages (-S): what the bundle lacks must not come from here.
        environment = _ENVIRONMENT | {"PATH": os.environ["PATH"], "HOME": str(self._bundle)}
        command = [sys.executable, "-S", "-c", program]
        return subprocess.run(
            command, cwd=self._bundle, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=60
        ).stdout
