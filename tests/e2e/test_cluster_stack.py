"""A stack with a HyperPod cluster: a run on both backends, and what the functions may do there."""

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from muster import Backend, Muster, Run, RunStatus
from muster.contract.run.result import Result, Verdict
from muster.local.faults import LostNode
from muster.options.hyperpod.client.checks import ClusterChecks
from muster.options.hyperpod.client.cluster_api import ClusterApi
from muster.options.verify.client.check_outcomes import Check, CheckOutcome
from muster.options.verify.client.verified_stack import Account
from tests.plugins.cluster_stack import CLUSTER, ClusterStack
from tests.support.workshop import turn_to

TRAINERS = Path(__file__).parents[1] / "support" / "hyperpod" / "trainers"
ROUNDS, GATED_ROUND = 4, 2
RANKS, ON_CLUSTER = range(3), (1, 2)
LOST = 2
BACKENDS = [Backend.HYPERPOD if rank in ON_CLUSTER else Backend.TRAINING_JOB for rank in RANKS]
SPEC = {
    "trainer": "gated:train",
    "source_dir": str(TRAINERS),
    "replicas": len(RANKS),
    "instance_type": "ml.m5.xlarge",
    "overrides": {"1-2": {"backend": "hyperpod", "hyperpod": {"queue": "hyperpod-ns-team-localqueue"}}},
}
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces"
_names = itertools.count(1)


@pytest.fixture
def muster(cluster_stack: ClusterStack, monkeypatch: pytest.MonkeyPatch) -> Muster:
    turn_to(monkeypatch, cluster_stack.cloud)
    return Muster()


def test_training_jobs_and_jobs_on_a_cluster_lose_a_node_and_end_with_the_same_bytes(
    muster: Muster, cluster_stack: ClusterStack, tmp_path: Path
) -> None:
    # The last rank stays in a round until the gate is there.
    gate, seen = tmp_path / "gate", list[RunStatus]()
    kwargs = {"rounds": ROUNDS, "gate": str(gate), "gated_rank": LOST, "gated_round": GATED_ROUND}
    run = muster.launch({**SPEC, "name": f"mixed-{next(_names)}", "kwargs": kwargs})

    def watch(status: RunStatus) -> None:
        seen.append(status)
        if status.round == GATED_ROUND and not gate.exists():
            job = f"{cluster_stack.outputs['JobPrefix']}-{run.name}-r{LOST}-a1"
            cluster_stack.cloud.faults.add(LostNode(job=job)).wait()
            gate.touch()

    last, result = run.wait(240, watch, 0.2), run.result()
    assert [replica.backend for replica in seen[0].replicas] == BACKENDS, "known before anything is launched"
    assert [replica.backend for replica in last.replicas] == BACKENDS
    assert_all_have_the_same_bytes(result)
    for replica in result.replicas:
        # The operator started the lost pod again on another node: an incarnation, and no attempt.
        [attempt] = replica.attempts
        assert (attempt.cluster is not None) is (replica.rank in ON_CLUSTER)
        if attempt.cluster is not None:
            assert (attempt.cluster.cluster, attempt.cluster.instances) == (CLUSTER.name, 1)
            assert replica.instance_seconds
            assert replica.usd
    assert_logs_are_merged(run)
    assert cluster_stack.cloud.running_jobs() == []
    assert run.model_download(tmp_path / "model").fetch().files
    assert CLUSTER.name in run.report().decode()


def assert_all_have_the_same_bytes(result: Result) -> None:
    assert result.verdict is Verdict.SUCCEEDED, result.reason
    assert result.parameters_identical
    assert len({replica.checksum for replica in result.replicas}) == 1
    assert [replica.round for replica in result.replicas] == [ROUNDS] * len(RANKS)
    assert all(replica.checkpoint_uri is not None for replica in result.replicas)


def assert_logs_are_merged(run: Run) -> None:
    lines = list(run.logs())
    assert {line.rank for line in lines} == set(RANKS)
    assert [line.at for line in lines] == sorted(line.at for line in lines)
    seats = [line.message for line in run.logs((LOST,)) if "event=seated" in line.message]
    assert ["incarnation=1" in seat for seat in seats] == [True, False], seats


@dataclass(frozen=True)
class Rights:
    """What the functions of the stack may do on the cluster."""

    account: Account
    eks: Any

    @property
    def cluster(self) -> Any:
        [cluster] = self.account.defaults.clusters or ()
        return cluster

    @property
    def api(self) -> ClusterApi:
        return ClusterApi(self.account.session, self.eks.describe_cluster(name=self.cluster.eks_cluster)["cluster"])

    def failed_checks(self) -> dict[str, Check]:
        found = ClusterChecks(self.account, self.cluster).checks(self.account)
        return {
            check.name.removesuffix(f"-{self.cluster.name}"): check
            for check in found
            if check.outcome is not CheckOutcome.OK
        }

    def roles(self) -> list[str]:
        found = self.api.call("GET", f"{RBAC}/{CLUSTER.namespace}/roles").body["items"]
        return [item["metadata"]["name"] for item in found if "muster/stack" in item["metadata"].get("labels", {})]

    def entries(self) -> list[str]:
        found = self.eks.list_access_entries(clusterName=CLUSTER.eks_cluster)["accessEntries"]
        return [arn for arn in found if "Muster" in arn]


def test_the_functions_are_let_in_what_is_taken_from_them_is_found_and_a_deletion_does_not_wait_for_it(
    muster: Muster, cluster_stack: ClusterStack
) -> None:
    account = Account(muster._cloud)
    rights = Rights(account, cluster_stack.cloud.client("eks"))
    assert rights.failed_checks() == {}
    made = rights.roles()
    assert len(made) == 9
    path = f"{RBAC}/{CLUSTER.namespace}/rolebindings/{made[0]}"
    assert rights.api.call("DELETE", path).status == 200
    assert [*rights.failed_checks()] == ["cluster-roles"]
    [*_, entry] = [
        wanted for _, _, wanted in account.template.of_type("AWS::EKS::AccessEntry") if "KubernetesGroups" in wanted
    ]
    rights.eks.delete_access_entry(clusterName=CLUSTER.eks_cluster, principalArn=entry["PrincipalArn"])
    failed = rights.failed_checks()
    assert [*failed] == ["cluster-access-entries", "cluster-roles"]
    assert entry["PrincipalArn"] in failed["cluster-access-entries"].seen

    cluster_stack.delete()
    assert (rights.roles(), rights.entries()) == ([], [])
