"""An embedded HyperPod cluster inside the test's own process, without the service round it."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster.local.processes.process_pool import ProcessPool
from muster.local.service.fault_book import FaultBook
from muster.options.hyperpod.contract.job_document import PRIORITY_LABEL, QUEUE_LABEL
from muster.options.hyperpod.contract.object_identity import API_VERSION, KIND
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from muster.options.hyperpod.local.embedded_cluster import EmbeddedCluster
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore
from muster.options.hyperpod.local.kubernetes.served_resources import JOBS, PODS
from muster.options.hyperpod.local.kueue import local_queue
from muster.options.hyperpod.local.pods.pod_machine import PodMachine
from tests.support.waiting import wait_until

NAMESPACE = "hyperpod-ns-team"
PROGRAMS = Path(__file__).parent / "programs"
FAST = ClusterSettings(nodes=3, node_seconds=0.2, replace_seconds=0.5)
Document = dict[str, Any]
_names = itertools.count(1)


@dataclass
class PodCluster:
    """The cluster, its faults, and what it has put on the bus and into CloudWatch Logs."""

    place: Path
    settings: ClusterSettings = FAST
    sent: list[tuple[str, Mapping[str, object]]] = field(default_factory=list)
    shipped: list[tuple[str, str]] = field(default_factory=list)
    """Node and line."""
    faults: FaultBook = field(default_factory=FaultBook)

    def __post_init__(self) -> None:
        self.pool = ProcessPool()
        self.store = ObjectStore()
        endpoint = {"PATH_OF_TEST": "1"}
        machine = PodMachine((PROGRAMS,), self.pool, self.place, endpoint, lambda *_: {}, self._open_log)
        arn = "arn:aws:sagemaker:us-east-1:123456789012:cluster/c"
        events = ClusterEvents(lambda _source, kind, detail, _arn: self.sent.append((kind, detail)), "c", arn, "g")
        self.cluster = EmbeddedCluster(self.store, self.settings, machine, events, self.faults)

    def _open_log(self, node: str) -> Callable[[Sequence[tuple[int, str]]], None]:
        return lambda lines: self.shipped.extend((node, line) for _, line in lines)

    # --- jobs ----------------------------------------------------------------------------------

    def create(
        self,
        *program: str,
        replicas: int = 1,
        spares: int = 0,
        priority: str | None = None,
        queue: str = local_queue(NAMESPACE),
        elastic: Document | None = None,
        pod: Document | None = None,
        container: Document | None = None,
        agent: tuple[str, ...] = ("--tee=3", "--shutdown-signal=SIGTERM"),
        **policy: Any,
    ) -> str:
        """Create a job whose workers run `program`; its name. With a priority it is in the team's queue."""
        name = f"job-{next(_names)}"
        command = ["hyperpodrun", f"--nnodes={replicas}", *agent, *program]
        made = {
            "name": "worker",
            "image": "muster-local/python",
            "command": command,
            "env": [{"name": "NNODES", "value": str(replicas)}],
            "resources": {"requests": {"cpu": "3"}},
            **(container or {}),
        }
        replica: Document = {
            "name": "pod",
            "replicas": replicas,
            "spares": spares,
            "template": {"spec": {"containers": [made], "terminationGracePeriodSeconds": 5, **(pod or {})}},
        }
        labels = {}
        if priority is not None:
            labels = {QUEUE_LABEL: queue, PRIORITY_LABEL: priority}
        run_policy = {"ttlSecondsAfterFinished": 3600, "cleanPodPolicy": "None", **policy}
        spec: Document = {"nprocPerNode": "1", "replicaSpecs": [replica], "runPolicy": run_policy}
        if elastic:
            spec["elasticPolicy"] = elastic
        metadata = {"name": name, "labels": labels}
        document = {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}
        self.store.create(JOBS, document, NAMESPACE)
        return name

    def job(self, name: str) -> Document:
        """The job; empty where it is gone."""
        return self.store.find(JOBS, name, NAMESPACE) or {}

    def status(self, name: str) -> Document:
        """Its status."""
        found: Document = self.job(name).get("status", {})
        return found

    def condition(self, name: str, kind: str) -> Document | None:
        """A condition of the job that is True."""
        found = self.status(name).get("conditions") or ()
        return next((item for item in found if item["type"] == kind and item["status"] == "True"), None)

    def wait(self, name: str, kind: str) -> Document:
        """Wait for a condition of a job; the condition."""
        return wait_until(f"{kind} of {name}", lambda: self.condition(name, kind))

    def pods(self, name: str) -> list[Document]:
        """The pods of a job."""
        found = self.store.list(PODS, NAMESPACE)
        return [item for item in found if item["metadata"]["labels"]["HPJob"] == name]

    def pod_statuses(self, name: str) -> list[Document]:
        """The statuses of a job's pods."""
        return [pod["status"] for pod in self.pods(name)]

    def pod(self, name: str, index: int = 0) -> Document:
        """A pod of a job."""
        return self.store.get(PODS, f"{name}-pod-{index}", NAMESPACE)

    def log(self, name: str, index: int = 0) -> str:
        """The output of a pod."""
        pod = self.store.find(PODS, f"{name}-pod-{index}", NAMESPACE)
        file = self.place / "pods" / pod["metadata"]["uid"] / "output" if pod else None
        return file.read_text().rstrip("\n") if file and file.exists() else ""

    def remove(self, name: str) -> None:
        """Delete a job, as its owner does."""
        self.store.delete(JOBS, name, NAMESPACE)

    def close(self) -> None:
        """End all processes."""
        self.pool.end_all()
