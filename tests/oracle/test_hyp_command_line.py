"""AWS's own command line, `hyp` of sagemaker-hyperpod, on the embedded cluster: it creates, reads and deletes a job."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from muster.local import LocalCloud, Settings
from muster.local.hyperpod.cluster_settings import ClusterSettings
from tests.support.hyperpod.cluster import PROGRAMS

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "kubernetes" / "bin" / "python"
SETTINGS = ClusterSettings(nodes=1)
EKS, NAMESPACE = SETTINGS.eks_cluster, SETTINGS.namespaces[0]
# The command line reports each call to AWS, unless the context names a region that AWS does not have.
CONTEXT = f"arn:aws:eks:xx-none-1:123456789012:cluster/{EKS}"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud of its own: with a cluster."""
    settings = Settings(port=0, hyperpod=SETTINGS, code=(PROGRAMS,), end_with_parent=True)
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


def kubeconfig(cloud: LocalCloud) -> dict[str, Any]:
    """What `aws eks update-kubeconfig` writes; the token comes from a program of ours, in place of `aws`."""
    cluster = cloud.client("eks").describe_cluster(name=EKS)["cluster"]
    place = {"server": cluster["endpoint"], "certificate-authority-data": cluster["certificateAuthority"]["data"]}
    program = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": str(PYTHON),
        "args": ["-m", "tests.oracle.kubernetes_side.get_token", EKS, cloud.state.region],
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


@pytest.fixture(scope="module")
def said(cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each command has said."""
    home = tmp_path_factory.mktemp("home")
    (home / ".kube").mkdir()
    (home / ".kube" / "config").write_text(yaml.safe_dump(kubeconfig(cloud)))
    environment = {**cloud.environment(), "HOME": str(home)}
    environment.pop("KUBECONFIG", None)
    answer = subprocess.run(
        [PYTHON, "-m", "tests.oracle.kubernetes_side.hyp_commands", NAMESPACE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr[-3000:]
    assert "telemetry" not in answer.stderr.lower() or "will not be emitted" in answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout[answer.stdout.index('{"list before"') :])
    return found


def output(said: dict[str, Any], command: str) -> str:
    assert said[command]["code"] == 0, said[command]
    return str(said[command]["output"])


def test_a_job_is_created_and_listed(said: dict[str, Any]) -> None:
    assert "No jobs found" in output(said, "list before")
    output(said, "create")
    row = next(line for line in output(said, "list").splitlines() if line.startswith("oracle"))
    assert row.split()[:3] == ["oracle", NAMESPACE, "Running"]


def test_the_same_name_is_refused(said: dict[str, Any]) -> None:
    assert "already exists" in f"{said['create again']['output']}{said['create again']['error']}"


def test_a_job_is_described(said: dict[str, Any]) -> None:
    text = output(said, "describe")
    types = [line.split()[-1] for line in text.splitlines() if line.strip().startswith("Type:")]
    assert types == ["Created", "PodsRunning", "Running"]


def test_pods_and_logs_are_read(said: dict[str, Any]) -> None:
    assert "oracle-pod-0" in output(said, "list-pods")
    assert "[default0]:step 3" in output(said, "get-logs")


def test_a_job_is_deleted_with_its_processes(said: dict[str, Any], cloud: LocalCloud) -> None:
    output(said, "delete")
    assert "oracle" not in output(said, "list after")
    assert said["describe after"]["code"] != 0
    assert cloud.cluster_jobs() == []
