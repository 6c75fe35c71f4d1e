"""The replicas of one run as SageMaker starts them: `python -m muster.replica`, each with its processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.contract.run.replica_variables import ENV_ATTEMPT, ENV_DOCUMENT, ENV_PROCESSES, ENV_RANK, ENV_RUN
from muster.contract.run.run_document import RunDocument
from muster.contract.training.source_delivery import ENV_BASE_DIR

TIMEOUT_SECONDS = 600

_METRIC = re.compile(r"(\w+)=(\S+)")


@dataclass(frozen=True)
class Training:
    """What the replicas train.

    Attributes:
        processes: of each replica.
        rendezvous: where they meet; None: a local directory.
        environments: the variables of each replica, instead of this process's.
    """

    trainer: str
    kwargs: dict[str, Any]
    processes: Sequence[int]
    rendezvous: str | None = None
    environments: Sequence[Mapping[str, str]] = field(default_factory=list)
    snapshot_rounds: int = 10

    def printed(self) -> list[str]:
        """Train to the end, all replicas at the same time; returns what each has printed.

        Raises:
            RuntimeError: a replica failed.
        """
        with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(len(self.processes)) as pool:
            root = Path(folder)
            document = RunDocument(
                run="bench",
                plan_digest="0",
                replicas=len(self.processes),
                trainer=self.trainer,
                kwargs=self.kwargs,
                rendezvous_uri=self.rendezvous or f"{(root / 'rendezvous').as_uri()}/",
                min_participants=len(self.processes),
                grace_seconds=30,
                timeout_seconds=TIMEOUT_SECONDS,
                snapshot_rounds=self.snapshot_rounds,
            )
            (root / "run.json").write_bytes(document.to_json())
            return list(pool.map(lambda rank: self._replica(root, rank), range(len(self.processes))))

    def _replica(self, root: Path, rank: int) -> str:
        base = root / f"replica-{rank}"
        base.mkdir()
        environment = {
            **(self.environments[rank] if self.environments else os.environ),
            ENV_DOCUMENT: (root / "run.json").as_uri(),
            ENV_RUN: "bench",
            ENV_RANK: str(rank),
            ENV_ATTEMPT: "1",
            ENV_PROCESSES: str(self.processes[rank]),
            ENV_BASE_DIR: str(base),
            "OMP_NUM_THREADS": "1",
        }
        done = subprocess.run(
            [sys.executable, "-m", "muster.replica"],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        if done.returncode:
            message = f"replica {rank} ended with {done.returncode}: {done.stderr[-2000:]}"
            raise RuntimeError(message)
        return done.stdout


def metrics_of(printed: Sequence[str]) -> list[dict[str, str]]:
    """The metrics that replicas have printed, line by line."""
    return [dict(_METRIC.findall(line)) for output in printed for line in output.splitlines()]
