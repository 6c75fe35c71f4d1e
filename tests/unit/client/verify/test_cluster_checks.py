"""What `muster verify` says of a HyperPod cluster, from what EKS and the cluster's own API say of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from muster.client.aws.cluster_api import ClusterAnswer
from muster.client.verify.cluster_checks import (
    NEEDED_ADDONS,
    ClusterFacts,
    Entry,
    WantedRole,
    judge_cluster,
    names,
)
from muster.client.verify.verification import Outcome
from muster.contract.hyperpod.clusters import Cluster

CLUSTER = Cluster(name="research", eks_cluster="research-eks", namespaces=("team-a",))
GROUP = "muster:muster:plan:0a1b2c3d"
RULES: tuple[dict[str, Any], ...] = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},)
ROLE = WantedRole(
    "team-a",
    "muster-muster-plan-0a1b2c3d",
    GROUP,
    RULES,
    ClusterAnswer(200, {"rules": list(RULES)}),
    ClusterAnswer(200, {"subjects": [{"kind": "Group", "name": GROUP}]}),
)
WHOLE = ClusterFacts(
    cluster=CLUSTER,
    hyperpod={
        "ClusterStatus": "InService",
        "Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-1:123456789012:cluster/research-eks"}},
    },
    eks={"status": "ACTIVE", "accessConfig": {"authenticationMode": "API"}},
    addons=dict.fromkeys(NEEDED_ADDONS, "ACTIVE"),
    entries=(Entry("role/plan", (GROUP,), (), (GROUP,)), Entry("role/access", (), ("policy",), (), ("policy",))),
    review=ClusterAnswer(201, {"status": {"allowed": True}}),
    kind=ClusterAnswer(200, {"resources": [{"name": "hyperpodpytorchjobs"}]}),
    roles=(ROLE,),
)
DENIED = ClusterAnswer(403, {"message": "forbidden"})


def outcomes(facts: ClusterFacts) -> dict[str, tuple[Outcome, str]]:
    """Every check that is not ok, by its name without the cluster's."""
    checks = list(judge_cluster(facts))
    assert tuple(check.name for check in checks) == names(CLUSTER)
    return {
        check.name.removesuffix("-research"): (check.outcome, check.seen)
        for check in checks
        if check.outcome is not Outcome.OK
    }


def test_a_cluster_on_which_replicas_can_run_is_in_order() -> None:
    assert outcomes(WHOLE) == {}


@pytest.mark.parametrize(
    ("change", "check", "words"),
    [
        ({"hyperpod": None}, "cluster", "there is no HyperPod cluster research"),
        ({"hyperpod": {"ClusterStatus": "Deleting"}}, "cluster", "research is Deleting"),
        (
            {"hyperpod": {"ClusterStatus": "InService", "Orchestrator": {"Eks": {"ClusterArn": "x:cluster/other"}}}},
            "cluster",
            "on the EKS cluster other",
        ),
        ({"eks": {"status": "CREATING", "accessConfig": {"authenticationMode": "API"}}}, "cluster", "CREATING"),
        ({"eks": {"status": "ACTIVE", "accessConfig": {"authenticationMode": "CONFIG_MAP"}}}, "cluster", "CONFIG_MAP"),
        ({"addons": {NEEDED_ADDONS[0]: "missing"}}, "cluster-add-ons", f"{NEEDED_ADDONS[0]} is missing"),
        ({"addons": {NEEDED_ADDONS[1]: "DEGRADED"}}, "cluster-add-ons", "DEGRADED"),
        ({"entries": (Entry("role/plan", (GROUP,), (), None),)}, "cluster-access-entries", "has no access entry"),
        (
            {"entries": (Entry("role/plan", (GROUP,), (), ("x",)),)},
            "cluster-access-entries",
            f"lacks the group {GROUP}",
        ),
        ({"entries": (Entry("role/x", (), ("policy",), ()),)}, "cluster-access-entries", "lacks policy"),
        ({"kind": ClusterAnswer(404, {})}, "cluster-job-kind", "does not know hyperpodpytorchjobs"),
        ({"kind": ClusterAnswer(200, {"resources": []})}, "cluster-job-kind", "does not know hyperpodpytorchjobs"),
        ({"roles": (replace(ROLE, role=ClusterAnswer(404, {})),)}, "cluster-roles", "there is no role"),
        ({"roles": (replace(ROLE, role=ClusterAnswer(200, {"rules": []})),)}, "cluster-roles", "has other rules"),
        ({"roles": (replace(ROLE, binding=ClusterAnswer(404, {})),)}, "cluster-roles", "there is no binding"),
        ({"roles": (replace(ROLE, binding=ClusterAnswer(200, {"subjects": []})),)}, "cluster-roles", "is not of"),
    ],
)
def test_what_is_missing_is_a_failed_check(change: dict[str, Any], check: str, words: str) -> None:
    found = outcomes(replace(WHOLE, **change))
    assert list(found) == [check]
    outcome, seen = found[check]
    assert outcome is Outcome.FAILED
    assert words in seen


@pytest.mark.parametrize(
    ("change", "checks"),
    [
        ({"kind": DENIED}, {"cluster-job-kind"}),
        ({"roles": (replace(ROLE, role=DENIED),)}, {"cluster-roles"}),
        (
            {"review": ClusterAnswer(401, {"message": "Unauthorized"}), "kind": None, "roles": ()},
            {"cluster-api", "cluster-job-kind", "cluster-roles"},
        ),
        (
            {"api": "the API of research-eks does not answer", "review": None, "kind": None, "roles": ()},
            {"cluster-api", "cluster-job-kind", "cluster-roles"},
        ),
    ],
)
def test_what_these_credentials_cannot_see_is_unchecked(change: dict[str, Any], checks: set[str]) -> None:
    found = outcomes(replace(WHOLE, **change))
    assert set(found) == checks
    assert {outcome for outcome, _ in found.values()} == {Outcome.UNCHECKED}


def test_without_an_eks_cluster_nothing_else_is_judged() -> None:
    found = outcomes(ClusterFacts(CLUSTER, WHOLE.hyperpod, None))
    assert found.pop("cluster")[0] is Outcome.FAILED
    assert len(found) == 5
    assert {outcome for outcome, _ in found.values()} == {Outcome.UNCHECKED}
