"""Muster on a HyperPod cluster, on this machine: `make demo-hyperpod`, or `python -m examples.digits.hyperpod_demo`.

Starts the embedded cloud with a cluster of five nodes, deploys the real stack to it, and launches
examples/digits/hyperpod.yaml: four replicas, each a job on the cluster. It takes one replica's node away in the middle,
and the operator restarts the job on another. Replica 3 grows from one instance to two, because the fifth node is free.
The result is held against the same model trained by one process. Writes build/demo-hyperpod/result.json; ends with 0
only if the run truly succeeded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from examples.digits.baseline import baseline_accuracy
from examples.digits.report import concluded, last_jobs, reported
from examples.stage import ROOT, Stage, perform, replica_arguments
from muster import Result, RunStatus, Spec
from muster.infra.settings.cluster_tables import ClusterTable
from muster.local.admin_client import PlacedFault
from muster.local.faults import LostNode
from muster.options.hyperpod.local.cluster_settings import ClusterSettings

SPEC = Path(__file__).with_name("hyperpod.yaml")

VICTIM, ELASTIC = 2, 3
LOST_AFTER = 0.4
"""The share of the rounds after which the node is taken away."""
NODES = 5
RUN_TIMEOUT_SECONDS = 240.0

_INTRODUCTION = """\
Muster demo: {replicas} replicas train one classifier of handwritten digits on a HyperPod
cluster of {nodes} nodes. They exchange through an S3 bucket alone. One of them will lose
its node, and another will grow from one instance to two.
"""


def demo(console: Console, folder: Path, spec: Spec) -> bool:
    """Run the demo; returns whether the run succeeded with the expected result.

    Raises:
        MusterError: a part could not be started, or the run could not be followed.
    """
    console.print(_INTRODUCTION.format(replicas=spec.replicas, nodes=NODES))
    cluster = ClusterSettings(nodes=NODES, node_type=spec.instance_types[0])
    table = ClusterTable(eks_cluster=cluster.eks_cluster, namespaces=[cluster.namespace])
    stage = Stage(console, folder, {"hyperpod": cluster}, {"hyperpod_clusters": {cluster.name: table}})
    with ThreadPoolExecutor(max_workers=1) as pool:
        shared = replica_arguments(spec, "outer_learning_rate", "outer_momentum", "seconds_per_round")
        baseline = pool.submit(baseline_accuracy, replicas=spec.replicas, **shared)
        with stage.open():
            result = stage.play(spec, RUN_TIMEOUT_SECONDS, _Events(stage, spec))
            report = reported(stage, result, baseline.result(), _missed)
    return concluded(console, folder, report)


def _missed(result: Result) -> Iterator[str]:
    """What should have happened on the cluster and has not."""
    jobs = last_jobs(result)
    victim, elastic = jobs.get(VICTIM), jobs.get(ELASTIC)
    if victim is None or not (victim.restarts or len(result.replicas[VICTIM].attempts) > 1):
        yield f"replica {VICTIM} was not restarted: the lost node was not noticed"
    if elastic is None or elastic.instances != 2:
        found = "none" if elastic is None else elastic.instances
        yield f"replica {ELASTIC} has not grown to 2 instances, but has {found}"


class _Events:
    """Takes one replica's node away during its rounds, and prints that and what follows."""

    def __init__(self, stage: Stage, spec: Spec) -> None:
        self._console, self._faults = stage.console, stage.cloud.faults
        self._round = LOST_AFTER * replica_arguments(spec).get("rounds", 0)
        self._lost: PlacedFault | None = None
        self._printed: set[str] = set()

    def __call__(self, status: RunStatus) -> None:
        jobs = {replica.rank: replica.cluster for replica in status.replicas if replica.cluster is not None}
        if self._lost is None and (status.round or 0) >= self._round:
            self._lost = self._faults.add(LostNode(job=f"*-r{VICTIM}-a1"))
        if self._lost is not None and self._lost.fired:
            self._print(f"⚡ took the node of replica {VICTIM} away")
        if VICTIM in jobs and jobs[VICTIM].restarts:
            self._print(f"↻ the operator has restarted replica {VICTIM} on another node")
        if ELASTIC in jobs and jobs[ELASTIC].instances == 2:
            self._print(f"×2 replica {ELASTIC} trains on two instances")

    def _print(self, words: str) -> None:
        if words not in self._printed:
            self._console.print(f"[yellow]{words}[/yellow]")
            self._printed.add(words)


if __name__ == "__main__":
    folder = ROOT / "build" / "demo-hyperpod"
    name = "examples.digits.hyperpod_demo"
    sys.exit(perform(demo, name, "Muster on a HyperPod cluster, on this machine.", folder=folder, spec=SPEC))
