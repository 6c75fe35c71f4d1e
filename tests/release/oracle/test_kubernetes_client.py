"""AWS's own command line `hyp`, with the public client of Kubernetes, on an embedded cluster.

It finds there what a kube-apiserver would answer. The committed schema of a job is the one that AWS's SDK gives.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.local import LocalCloud, Settings
from muster.options.hyperpod.local.cluster_settings import ClusterSettings
from tests.support.hyperpod.cluster import PROGRAMS

ROOT = Path(__file__).resolve().parents[3]
PYTHON = ROOT / "build" / "kubernetes" / "bin" / "python"
SETTINGS = ClusterSettings(nodes=1)
EKS, NAMESPACE = SETTINGS.eks_cluster, SETTINGS.namespace
# `hyp` reports each call to AWS, unless the context names a region that AWS does not have.
CONTEXT = f"arn:aws:eks:xx-none-1:123456789012:cluster/{EKS}"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud of its own: with a cluster."""
    settings = Settings(port=0, services={"hyperpod": SETTINGS}, code=(PROGRAMS,), end_with_parent=True)
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


def test_the_committed_schema_is_the_one_of_the_pinned_sdk() -> None:
    generator = Path(__file__).parent / "hyperpod_side" / "job_schema.py"
    committed = ROOT / "muster/options/hyperpod/contract/job_schema.json"
    made = subprocess.run([PYTHON, generator], capture_output=True, text=True, check=True, timeout=60).stdout
    assert made == committed.read_text(encoding="utf-8"), "run `make job-schema`"


def kubeconfig(cloud: LocalCloud) -> dict[str, Any]:
    """What `aws eks update-kubeconfig` writes; the token comes from a program of ours, in place of `aws`."""
    cluster = cloud.client("eks").describe_cluster(name=EKS)["cluster"]
    place = {"server": cluster["endpoint"], "certificate-authority-data": cluster["certificateAuthority"]["data"]}
    program = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": str(PYTHON),
        "args": ["-m", "tests.release.oracle.kubernetes_side.get_token", EKS, cloud.state.region],
        "env": [{"name": "PYTHONPATH", "value": str(ROOT)}],
        "interactiveMode": "Never",
    }
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": place}],
        "users": [{"name": CONTEXT, "user": {"exec": program}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": CONTEXT}}],
        "current-context": CONTEXT,
    }


def output(said: dict[str, Any], command: str) -> str:
    assert said[command]["code"] == 0, said[command]
    return str(said[command]["output"])


def test_aws_command_line_creates_reads_and_deletes_a_job(cloud: LocalCloud, tmp_path: Path) -> None:
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(yaml.safe_dump(kubeconfig(cloud)))
    environment = {**cloud.environment(), "HOME": str(tmp_path)}
    environment.pop("KUBECONFIG", None)
    answer = subprocess.run(
        [PYTHON, "-m", "tests.release.oracle.kubernetes_side.hyp_commands", NAMESPACE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "telemetry" not in answer.stderr.lower() or "will not be emitted" in answer.stderr
    said: dict[str, Any] = json.loads(answer.stdout[answer.stdout.index('{"list before"') :])
    assert "oracle" not in output(said, "list before")
    output(said, "create")
    row = next(line for line in output(said, "list").splitlines() if line.startswith("oracle"))
    assert row.split()[:3] == ["oracle", NAMESPACE, "Running"]
    assert "already exists" in f"{said['create again']['output']}{said['create again']['error']}"
    described = output(said, "describe").splitlines()
    types = [line.split()[-1] for line in described if line.strip().startswith("Type:")]
    assert types == ["Created", "PodsRunning", "Running"]
    assert "oracle-pod-0" in output(said, "list-pods")
    # It is deleted with its processes.
    output(said, "delete")
    assert "oracle" not in output(said, "list after")
    assert said["describe after"]["code"] != 0
    assert cloud.cluster_jobs() == []
