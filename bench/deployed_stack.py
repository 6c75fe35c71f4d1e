"""The deployed stack on an embedded cloud of its own, for benchmarks that start runs."""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.contract.layout import RunLayout
from muster.contract.run.result import Result
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.cluster_tables import ClusterTable
from muster.infra.settings.stack_settings import LOCAL_IMAGE, Platform, ReplicasTable, StackSettings
from muster.local import LocalCloud, Settings
from muster.options.hyperpod.local.cluster_settings import ClusterSettings

_TIMEOUT_SECONDS = 900.0  # of one run: a busy machine needs long for dozens of attempts in a row
# The functions' roles are named after their constructs; SageMaker's own calls and the benchmark's are not counted.
_FUNCTION_ROLE = "Handler"
KUBERNETES = "kubernetes"
"""The service under which calls to a cluster's API are counted."""


@dataclass(frozen=True)
class Stack:
    """The stack on a cloud of its own."""

    cloud: LocalCloud
    outputs: dict[str, str]
    cloud_seconds: float
    """From the cloud's start until it answered."""

    def train(self, name: str, spec: dict[str, Any], *, succeeds: bool = True) -> Result:
        """One run from start to settlement."""
        stepfunctions = self.cloud.client("stepfunctions")
        execution = stepfunctions.start_execution(
            stateMachineArn=self.outputs["StateMachineArn"], name=name, input=json.dumps(spec)
        )["executionArn"]
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while (status := stepfunctions.describe_execution(executionArn=execution)["status"]) == "RUNNING":
            if time.monotonic() > deadline:
                message = f"the run {name} did not end within {_TIMEOUT_SECONDS:.0f} s"
                raise TimeoutError(message)
            time.sleep(0.2)
        if status != ("SUCCEEDED" if succeeds else "FAILED"):
            message = f"the run {name} ended as {status}"
            raise RuntimeError(message)
        key = RunLayout(name).result
        body = self.cloud.client("s3").get_object(Bucket=self.outputs["BucketName"], Key=key)["Body"].read()
        return Result.from_json(body, key)

    def count_calls(self, name: str, spec: dict[str, Any]) -> Counter[str]:
        """The functions' AWS calls for one run, by kind, like `s3 PutObject`."""
        self.cloud.calls.reset()
        self.train(name, spec)
        calls: Counter[str] = Counter()
        for call in self.cloud.calls.report():
            if _FUNCTION_ROLE in call.caller:
                calls[f"{call.service} {call.operation}"] += call.count
        return calls


def settings_with(cluster: ClusterSettings | None) -> StackSettings:
    """The settings of a stack that may use this cluster."""
    replicas = ReplicasTable(image=LOCAL_IMAGE)
    if cluster is None:
        return StackSettings(replicas=replicas)
    table = ClusterTable(eks_cluster=cluster.eks_cluster, namespaces=[cluster.namespace])
    return StackSettings(replicas=replicas, hyperpod_clusters={cluster.name: table})


@contextmanager
def open_stack(cluster: ClusterSettings | None = None, code: tuple[Path, ...] = ()) -> Iterator[Stack]:
    """Start the cloud, with a HyperPod cluster or without, and deploy; stop it and remove its state afterwards.

    `code` are folders of code that the image contains.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, began = Path(folder), time.monotonic()
        services = {} if cluster is None else {"hyperpod": cluster}
        settings = Settings(port=0, end_with_parent=True, services=services, code=code)
        with LocalCloud.start(path / "cloud", settings) as cloud:
            cloud_seconds = time.monotonic() - began
            outputs = deploy(
                cloud.environment(),
                target=Platform.LOCAL,
                settings=settings_with(cluster),
                outputs=path / "outputs.json",
                log=path / "cdk.log",
            )
            yield Stack(cloud, outputs, cloud_seconds)
