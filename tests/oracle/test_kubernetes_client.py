"""The public client of Kubernetes on an embedded cluster: it finds there what a kube-apiserver would answer."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from muster.local import LocalCloud, Settings
from muster.local.hyperpod.cluster_settings import ClusterSettings

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "kubernetes" / "bin" / "python"
SETTINGS = ClusterSettings(nodes=1)
EKS, NAMESPACE = SETTINGS.eks_cluster, SETTINGS.namespaces[0]
ON_JOBS = 'resource "hyperpodpytorchjobs" in API group "sagemaker.amazonaws.com" in the namespace "hyperpod-ns-team"'


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCloud]:
    """A cloud of its own: with a cluster."""
    settings = Settings(port=0, hyperpod=SETTINGS, end_with_parent=True)
    with LocalCloud.start(tmp_path_factory.mktemp("cloud"), settings) as running:
        yield running


@pytest.fixture(scope="module")
def seen(cloud: LocalCloud, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the client has seen, by scenarios."""
    cluster = cloud.client("eks").describe_cluster(name=EKS)["cluster"]
    ca_file = tmp_path_factory.mktemp("client") / "ca.pem"
    ca_file.write_bytes(base64.b64decode(cluster["certificateAuthority"]["data"]))
    developer, keys = role_keys(cloud, "developer")
    cloud.client("eks").create_access_entry(
        clusterName=EKS, principalArn=developer, kubernetesGroups=["oracle-developers"]
    )
    given = {
        "name": EKS,
        "region": cloud.state.region,
        "endpoint": cluster["endpoint"],
        "ca_file": str(ca_file),
        "namespace": NAMESPACE,
        "keys": {
            "root": (cloud.state.access_key_id, cloud.state.secret_access_key, None),
            "developer": keys,
            "stranger": role_keys(cloud, "stranger")[1],
        },
    }
    answer = subprocess.run(
        [PYTHON, "-m", "tests.oracle.kubernetes_side.scenarios"],
        input=json.dumps(given),
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    found: dict[str, Any] = json.loads(answer.stdout)
    return found


def role_keys(cloud: LocalCloud, name: str) -> tuple[str, tuple[str, str, str]]:
    """A new role with a right to everything of EKS, and the keys of a session."""
    root = {"AWS": f"arn:aws:iam::{cloud.state.account_id}:root"}
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Principal": root, "Action": "sts:AssumeRole"}]}
    iam, sts = cloud.client("iam"), cloud.client("sts")
    role = iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(trust))["Role"]["Arn"]
    rights = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "eks:*", "Resource": "*"}]}
    iam.put_role_policy(RoleName=name, PolicyName="eks", PolicyDocument=json.dumps(rights))
    keys = sts.assume_role(RoleArn=role, RoleSessionName="oracle")["Credentials"]
    return role, (keys["AccessKeyId"], keys["SecretAccessKey"], keys["SessionToken"])


def answers(seen: dict[str, Any], name: str) -> Any:
    """What a scenario has seen; it must have come to its end."""
    found = seen[name]
    assert "failed" not in found, found["failed"]
    return found


def brief(refused: dict[str, Any]) -> tuple[int, str]:
    return refused["status"], refused["reason"]


def test_the_client_discovers_the_api(seen: dict[str, Any]) -> None:
    found = answers(seen, "discovery")
    assert found["version"] == "33"
    assert {"pods", "pods/log", "pods/status", "namespaces", "nodes", "serviceaccounts", "events"} <= set(found["core"])
    assert {"sagemaker.amazonaws.com", "rbac.authorization.k8s.io", "kueue.x-k8s.io"} <= set(found["groups"])
    assert found["jobs"] == ["hyperpodpytorchjobs", "hyperpodpytorchjobs/status"]
    assert found["definition"] == "HyperPodPyTorchJob"


def test_a_job_lives_through_all_verbs(seen: dict[str, Any]) -> None:
    found = answers(seen, "lifecycle")
    gone = found.pop("gone")
    assert found == {
        "created": "auto",
        "uid": True,
        "patched": "2",
        "replaced": "4",
        "operated": {"oracle": "yes", "further": "yes"},
        "found": ["lifecycle"],
        "restarts": 1,
        "deleted": "Success",
    }
    assert brief(gone) == (404, "NotFound")
    assert gone["message"] == 'hyperpodpytorchjobs.sagemaker.amazonaws.com "lifecycle" not found'


def test_conflicts_are_those_of_a_server(seen: dict[str, Any]) -> None:
    found = answers(seen, "conflicts")
    assert brief(found["taken"]) == (409, "AlreadyExists")
    for name in ("old", "old_patch", "wrong"):
        assert brief(found[name]) == (409, "Conflict")
    assert "the object has been modified" in found["old"]["message"]
    assert "Precondition failed: UID in precondition: other" in found["wrong"]["message"]


def test_what_is_no_job_is_refused(seen: dict[str, Any]) -> None:
    found = answers(seen, "validation")
    assert brief(found["unknown"]) == (400, "BadRequest")
    assert 'unknown field "spec.surprise"' in found["unknown"]["message"]
    assert 'unknown field "spec.replicaSpecs[0].template.spec.containers[0].images"' in found["unknown"]["message"]
    assert brief(found["wrong"]) == (422, "Invalid")
    assert {cause["field"] for cause in found["wrong"]["details"]["causes"]} == {
        "spec.replicaSpecs[1].name",
        "spec.runPolicy.cleanPodPolicy",
        "spec.runPolicy.ttlSecondsAfterFinished",
    }
    assert brief(found["name"]) == (422, "Invalid")
    for name in ("namespace", "kind", "selector", "label"):
        assert brief(found[name]) == (400, "BadRequest")
    assert found["tried"] == "validation"
    assert found["kept"]["status"] == 404


def test_a_watch_sees_every_change_and_410(seen: dict[str, Any]) -> None:
    found = answers(seen, "watching")
    # The operator may write the status of the job at the same time.
    assert [kind for kind, _ in groupby(kind for kind, _ in found["seen"])] == ["ADDED", "MODIFIED", "DELETED"]
    assert found["bookmarks"]
    assert found["forgotten"]["type"] == "ERROR"
    assert found["forgotten"]["object"]["code"] == 410
    assert found["forgotten_raised"]["status"] == 410


def test_a_list_comes_in_pages(seen: dict[str, Any]) -> None:
    found = answers(seen, "pages")
    assert found["names"] == [["page-0", "page-1"], ["page-2", "page-3"], ["page-4"]]
    assert found["left"] == 0


def test_a_pod_runs_and_its_log_is_read(seen: dict[str, Any]) -> None:
    found = answers(seen, "pods")
    assert found["created"] == "Pending"
    assert found["followed"] == "line 0\nline 1\nline 2\n"
    assert found["tail"] == "line 2\n"
    assert found["timestamps"].endswith("Z line 2\n")
    assert found["limited"] == "line 0"
    assert found["succeeded"] == ["prints"]
    assert found["node"]
    assert found["container"]["message"] == "container other is not valid for pod prints"
    assert found["previous"]["message"] == 'previous terminated container "main" in pod "prints" not found'
    assert brief(found["account"]) == (403, "Forbidden")


def test_rights_are_those_of_roles_and_entries(seen: dict[str, Any]) -> None:
    found = answers(seen, "rights")
    user = f'User "{found["who"][0]}"'
    assert found["who"] == [
        "arn:aws:sts::123456789012:assumed-role/developer/oracle",
        ["system:authenticated", "oracle-developers"],
    ]
    assert found["before"]["message"] == (
        f"hyperpodpytorchjobs.sagemaker.amazonaws.com is forbidden: {user} cannot create {ON_JOBS}"
    )
    assert (found["created"], found["allowed"]) == ("rights", True)
    assert found["delete"]["message"].endswith(f"{user} cannot delete {ON_JOBS}")
    assert found["nodes"]["message"] == (
        f'nodes is forbidden: {user} cannot list resource "nodes" in API group "" at the cluster scope'
    )
    for name in ("before", "delete", "pods", "nodes", "escalate", "elsewhere", "after"):
        assert brief(found[name]) == (403, "Forbidden")


def test_only_a_fresh_token_for_this_cluster_is_taken(seen: dict[str, Any]) -> None:
    found = answers(seen, "tokens")
    assert "answer" in found["fresh"]
    assert "answer" in found["older"]
    for name in ("expired", "foreign", "stranger", "nonsense"):
        assert brief(found[name]) == (401, "Unauthorized")


def test_a_deletion_waits_for_finalizers(seen: dict[str, Any]) -> None:
    found = answers(seen, "deletion")
    assert found["finalizers"] == ["oracle/waits", "foregroundDeletion"]
    assert found["timestamp"]
    assert brief(found["added"]) == (422, "Invalid")
    assert found["gone"]["status"] == 404
    assert found["dependent"]["status"] == 404
