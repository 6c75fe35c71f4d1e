"""A stack with HyperPod clusters: its settings, what the template has for them, and what a stack without has not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.contract.errors import SettingsError
from muster.contract.hyperpod.clusters import Clusters
from muster.contract.spec.stack_defaults import StackDefaults
from muster.infra.deploy.cluster_preflight import IDENTITY_AGENT, OPERATOR, ClusterState, cluster_problems
from muster.infra.deploy.pinned_settings import pinned_changes
from muster.infra.deploy.settings_changes import merge
from muster.infra.functions.function_table import FUNCTIONS
from muster.infra.settings.cluster_table import ClusterTable
from muster.infra.settings.completed_file import completed
from muster.infra.settings.settings_file import parse_settings, parse_tables
from muster.infra.settings.stack_settings import Platform
from muster.infra.settings.toml_text import toml_text
from tests.infra.variants import Variant
from tests.support.template import Template

BUCKET = "arn:aws:s3:::BUCKET"
EKS = "arn:aws:eks:REGION:ACCOUNT"
CALLERS = [row.name for row in FUNCTIONS if row.on_clusters is not None]
KINDS = ("AWS::EKS::AccessEntry", "Custom::MusterClusterAccess")
RESEARCH = {"eks_cluster": "research-eks", "namespaces": ["team-a", "team-b"]}


def refusal(tables: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings(tables, Platform.AWS)
    return {problem.field: str(problem) for problem in caught.value.problems}


def clusters(**tables: Any) -> dict[str, Any]:
    return {"hyperpod_clusters": {name.replace("_", "-"): {**RESEARCH, **table} for name, table in tables.items()}}


NETWORK = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}


@pytest.mark.parametrize(
    ("tables", "field"),
    [
        (clusters(a={"subnets": ["subnet-1"]}), "hyperpod_clusters.a.security_group_ids"),
        (clusters(a={"security_group_ids": ["sg-1"]}), "hyperpod_clusters.a.subnets"),
        (clusters(a={"namespaces": ["x", "x"]}), "hyperpod_clusters.a.namespaces"),
        (clusters(a={"namespaces": []}), "hyperpod_clusters.a.namespaces"),
        (clusters(a={"namespaces": ["Upper"]}), "hyperpod_clusters.a.namespaces.0"),
        (clusters(a={"eks": "x"}), "hyperpod_clusters.a.eks"),
        (clusters(a={}, b={}), "hyperpod_clusters.b.eks_cluster"),
        (
            clusters(a=NETWORK, b={"eks_cluster": "other", **NETWORK, "subnets": ["subnet-2"]}),
            "hyperpod_clusters.b.subnets",
        ),
        ({"hyperpod_clusters": {"a.b": RESEARCH}}, "hyperpod_clusters.a.b"),
        ({**clusters(a={}), "stack": {"job_prefix": "TeamA"}}, "stack.job_prefix"),
        (
            clusters(
                a={"namespaces": [f"{n}" * 60 for n in range(10)]},
                b={"eks_cluster": "o", "namespaces": ["y" * 60] * 1 + [f"{n}" * 59 for n in range(9)]},
            ),
            "hyperpod_clusters",
        ),
    ],
)
def test_a_cluster_that_cannot_be_is_refused_by_its_place(tables: dict[str, Any], field: str) -> None:
    assert any(found == field for found in refusal(tables))


def test_clusters_survive_their_file_and_keep_what_a_file_leaves_out() -> None:
    tables = clusters(research=NETWORK, prod={"eks_cluster": "prod-eks"})
    assert parse_tables(toml_text(tables)) == tables
    merged = merge(tables, clusters(prod={"eks_cluster": "prod-eks"}), [])
    assert merged.kept == ("hyperpod_clusters.research",)
    assert parse_tables(completed("[stack]\n", tables))["hyperpod_clusters"] == tables["hyperpod_clusters"]
    assert "hyperpod_clusters.research" in [
        change.key for change in merge(tables, {}, ["hyperpod_clusters.research"]).changes
    ]


def test_functions_and_clients_know_the_clusters() -> None:
    settings = parse_settings(clusters(research={}, prod={"eks_cluster": "prod-eks"}), Platform.AWS)
    assert [cluster.name for cluster in settings.clusters.clusters] == ["prod", "research"]
    assert settings.defaults.clusters == settings.clusters.clusters
    assert parse_settings({}, Platform.AWS).defaults.clusters is None


@pytest.mark.parametrize(
    ("after", "pinned"),
    [
        (clusters(research={}), False),
        (clusters(research={"namespaces": ["team-c", "team-b", "team-a"]}), False),
        (clusters(research=NETWORK), False),
        (clusters(research={"namespaces": ["team-a"]}), True),
        (clusters(research={"eks_cluster": "other"}), True),
        ({}, True),
    ],
)
def test_running_runs_keep_their_clusters(after: dict[str, Any], pinned: bool) -> None:
    changes = pinned_changes(clusters(research={}), after)
    assert [change.key for change in changes] == (["hyperpod_clusters.research"] if pinned else [])


def test_a_stack_without_clusters_has_nothing_of_them(template: Template) -> None:
    assert not [name for kind in KINDS for name in template.of_type(kind)]
    text = json.dumps(template.body)
    for word in ("eks", "hyperpod", "notices", "MUSTER_CLUSTERS", "MUSTER_POD_ROLE_ARN", "cluster_access"):
        assert word not in text, word


def entries(template: Template) -> list[dict[str, Any]]:
    return [template.resolve(item["Properties"]) for item in template.of_type("AWS::EKS::AccessEntry").values()]


def test_each_function_has_an_entry_and_a_group_of_its_own_on_each_cluster(variant: Variant) -> None:
    found = entries(variant("clusters"))
    groups = [entry["KubernetesGroups"][0] for entry in found if "KubernetesGroups" in entry]
    assert len(groups) == len(set(groups)) == 2 * len(CALLERS)
    for entry in found:
        assert entry["ClusterName"] in {"research-eks", "prod-eks"}
        assert ("KubernetesGroups" in entry) != ("AccessPolicies" in entry)
        for group in entry.get("KubernetesGroups", ()):
            _, prefix, name, _ = group.split(":")
            assert prefix == "muster"
            assert name.capitalize() in entry["PrincipalArn"]


def test_the_function_that_makes_roles_administers_the_namespaces_of_the_settings_alone(variant: Variant) -> None:
    template = variant("clusters")
    admins = {entry["ClusterName"]: entry for entry in entries(template) if "AccessPolicies" in entry}
    for name, namespaces in (("research-eks", ["team-a", "team-b"]), ("prod-eks", ["default"])):
        [policy] = admins[name]["AccessPolicies"]
        assert policy["PolicyArn"] == "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        assert policy["AccessScope"] == {"Type": "namespace", "Namespaces": namespaces}
    own = [item for item in template.statements if item.role == "ClusterAccess"]
    allowed = {action for item in own for action in item.actions}
    assert allowed == {"eks:DescribeCluster", "logs:CreateLogStream", "logs:PutLogEvents", "sqs:SendMessage"}
    for item in own:
        assert "*" not in item.resources


def test_the_rules_of_each_function_are_what_it_calls(variant: Variant) -> None:
    template = variant("clusters")
    [research] = [
        template.resolve(item["Properties"])
        for item in template.of_type("Custom::MusterClusterAccess").values()
        if item["Properties"]["Cluster"] == "research"
    ]
    assert research["Namespaces"] == ["team-a", "team-b"]
    assert int(research["ServiceTimeout"]) <= 600
    rules = {role["Name"].split("-")[2]: role["Rules"] for role in research["Roles"]}
    assert sorted(rules) == sorted(CALLERS)
    verbs = {
        name: {(rule["resources"][0], verb) for rule in found for verb in rule["verbs"]}
        for name, found in rules.items()
    }
    jobs = "hyperpodpytorchjobs"
    assert verbs["plan"] == {(jobs, "list"), ("serviceaccounts", "create"), ("serviceaccounts", "get")}
    assert verbs["attempt"] == {(jobs, "create"), (jobs, "delete"), (jobs, "get"), ("pods", "list")}
    assert verbs["react"] == verbs["timer"] == {(jobs, "delete"), (jobs, "get"), (jobs, "list"), ("pods", "list")}
    assert (
        verbs["stop"]
        == verbs["settle"]
        == verbs["sweep"]
        == {*verbs["react"], ("serviceaccounts", "delete"), ("serviceaccounts", "get")}
    )
    for found in rules.values():
        assert "*" not in json.dumps(found)


def test_a_change_of_namespaces_gives_the_functions_other_groups(variant: Variant) -> None:
    """So roles that are left in a namespace which the settings have given up are those of groups without members."""
    both = [
        {
            entry["KubernetesGroups"][0]
            for entry in entries(variant(name))
            if entry["ClusterName"] == "research-eks" and "KubernetesGroups" in entry
        }
        for name in ("clusters", "private")
    ]
    assert not both[0] & both[1]


def test_only_pod_identity_assumes_the_role_of_pods_and_only_for_the_clusters(variant: Variant) -> None:
    template = variant("clusters")
    [role] = [item for name, item in template.of_type("AWS::IAM::Role").items() if name.startswith("PodRole")]
    [trust] = template.resolve(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]
    assert trust["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert trust["Condition"] == {
        "StringEquals": {"aws:SourceAccount": "ACCOUNT"},
        "ArnEquals": {"aws:SourceArn": [f"{EKS}:cluster/prod-eks", f"{EKS}:cluster/research-eks"]},
    }


def test_pods_reach_what_runs_write_and_nothing_of_the_control_plane(variant: Variant) -> None:
    template = variant("clusters")
    for prefix in ("rendezvous", "checkpoints", "output"):
        for action in ("s3:GetObject", "s3:PutObject", "s3:AbortMultipartUpload"):
            assert template.allows("Pod", action, f"{BUCKET}/{prefix}/run/x")
    for key in ("notices/run/end-r0-a1-x.json",):
        assert template.allows("Pod", "s3:PutObject", f"{BUCKET}/{key}")
        assert not template.allows("Pod", "s3:GetObject", f"{BUCKET}/{key}")
        assert not template.allows("Pod", "s3:DeleteObject", f"{BUCKET}/{key}")
    for key in ("control/run/plan.json", "control/run/replicas/0.json", "queue/queue.json", "ended/x", "inbox/x.yaml"):
        for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject"):
            assert not template.allows("Pod", action, f"{BUCKET}/{key}")
    for prefix in ("runs/run/x", "source/x", "packages/x"):
        assert template.allows("Pod", "s3:GetObject", f"{BUCKET}/{prefix}")
        assert not template.allows("Pod", "s3:PutObject", f"{BUCKET}/{prefix}")
    for listed in ("", "control/", "notices/", "source/"):
        assert not template.allows("Pod", "s3:ListBucket", BUCKET, {"s3:prefix": listed})
    assert template.allows("Pod", "s3:GetObject", "arn:aws:s3:::team-data/sets/x")
    assert not template.allows("Pod", "s3:GetObject", "arn:aws:s3:::team-data/other/x")


def test_who_gives_pods_their_rights_and_who_takes_them(variant: Variant) -> None:
    template = variant("clusters")
    cluster, association = f"{EKS}:cluster/research-eks", f"{EKS}:podidentityassociation/research-eks/a-1"
    roles = ("Plan", "Attempt", "React", "Settle", "Stop", "Sweep", "Timer", "Start", "Notify", "Admit")
    for role in roles:
        takes = role in {"Settle", "Stop", "Sweep"}
        assert template.allows(role, "eks:DescribeCluster", cluster) == (role.lower() in CALLERS)
        assert template.allows(role, "eks:CreatePodIdentityAssociation", cluster) == (role == "Plan")
        assert template.allows(role, "eks:DeletePodIdentityAssociation", association) == takes
        passed = {"iam:PassedToService": "pods.eks.amazonaws.com"}
        assert template.allows(role, "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Pod", passed) == (role == "Plan")
        assert not template.allows(role, "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Pod")
        assert template.allows(role, "s3:GetObject", f"{BUCKET}/notices/run/x") == (role == "React")
        for other in (f"{EKS}:cluster/other", f"{EKS}:podidentityassociation/other/a-1"):
            for action in (
                "eks:DescribeCluster",
                "eks:CreatePodIdentityAssociation",
                "eks:DeletePodIdentityAssociation",
            ):
                assert not template.allows(role, action, other)


def test_a_training_job_may_say_that_a_replica_on_a_cluster_was_missing(variant: Variant, template: Template) -> None:
    keys = {"aws:PrincipalTag/MusterRun": "run", "aws:PrincipalTag/MusterLineage": "run"}
    notice = f"{BUCKET}/notices/run/missing-r0-1.json"
    assert variant("clusters").allows("Replica", "s3:PutObject", notice, keys)
    assert not variant("clusters").allows("Replica", "s3:PutObject", f"{BUCKET}/notices/other/x", keys)
    assert not variant("clusters").allows("Replica", "s3:GetObject", notice, keys)
    assert not template.allows("Replica", "s3:PutObject", notice, keys)


def test_notices_and_the_events_of_the_clusters_wake_react(variant: Variant) -> None:
    template = variant("clusters")
    bucket = template.resolve(next(iter(template.of_type("AWS::S3::Bucket").values()))["Properties"])
    topics = bucket["NotificationConfiguration"]["TopicConfigurations"]
    [notices] = [item for item in topics if "notices/" in json.dumps(item)]
    assert {"Name": "suffix", "Value": ".json"} in notices["Filter"]["S3Key"]["Rules"]
    assert {rule["Id"] for rule in bucket["LifecycleConfiguration"]["Rules"]} > {"notices-expire"}
    subscriptions = [
        template.resolve(item["Properties"]) for item in template.of_type("AWS::SNS::Subscription").values()
    ]
    assert any("React" in item["Endpoint"] and "Notices" in item["TopicArn"] for item in subscriptions)
    patterns = [item["Properties"].get("EventPattern", {}) for item in template.of_type("AWS::Events::Rule").values()]
    [pattern] = [item for item in patterns if "HyperPod" in json.dumps(item)]
    assert pattern["detail"] == {"ClusterName": ["prod", "research"]}
    assert len(pattern["detail-type"]) == 3


def functions(template: Template) -> dict[str, dict[str, Any]]:
    return {
        item["Properties"]["Handler"].split(".")[1]: item["Properties"]
        for item in template.of_type("AWS::Lambda::Function").values()
    }


def test_only_functions_that_call_clusters_know_them(variant: Variant) -> None:
    for name, properties in functions(variant("clusters")).items():
        found = properties["Environment"]["Variables"]
        assert ("MUSTER_CLUSTERS" in found) == (name in CALLERS)
        assert ("MUSTER_POD_ROLE_ARN" in found) == (name == "plan")
        assert "VpcConfig" not in properties
    text = functions(variant("clusters"))["react"]["Environment"]["Variables"]["MUSTER_CLUSTERS"]
    assert Clusters.from_json(text, "MUSTER_CLUSTERS").named("research") is not None


def test_only_functions_that_call_clusters_are_in_the_vpc_of_a_private_endpoint(variant: Variant) -> None:
    template = variant("private")
    for name, properties in functions(template).items():
        inside = name in CALLERS or name == "cluster_access"
        assert ("VpcConfig" in properties) == inside
        if inside:
            assert properties["VpcConfig"] == {"SubnetIds": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}
    assert template.allows("React", "ec2:CreateNetworkInterface", "*")
    assert not template.allows("Start", "ec2:CreateNetworkInterface", "*")


def test_the_stacks_output_names_the_clusters(variant: Variant) -> None:
    text = variant("clusters").body["Outputs"]["ReplicaDefaults"]["Value"]
    found = StackDefaults.from_json(text, "ReplicaDefaults").clusters
    assert found is not None
    assert [cluster.name for cluster in found] == ["prod", "research"]


TABLE = ClusterTable(eks_cluster="research-eks", namespaces=["team-a"])
HYPERPOD = {"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-1:123456789012:cluster/research-eks"}}}
ACTIVE = {"status": "ACTIVE", "accessConfig": {"authenticationMode": "API"}, "resourcesVpcConfig": {}}
ADDONS = frozenset({OPERATOR, IDENTITY_AGENT})


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (ClusterState(HYPERPOD, ACTIVE, ADDONS), []),
        (ClusterState(None, None, None, hyperpod_asked=False, eks_asked=False), []),
        (ClusterState(HYPERPOD, ACTIVE, None), []),
        (ClusterState(None, ACTIVE, ADDONS), ["this account has no HyperPod cluster research"]),
        (ClusterState({"Orchestrator": {}}, ACTIVE, ADDONS), ["is not orchestrated by EKS"]),
        (ClusterState(HYPERPOD, None, None), ["this account has no EKS cluster research-eks"]),
        (
            ClusterState({"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:r:1:cluster/other"}}}, ACTIVE, ADDONS),
            ["write other"],
        ),
        (ClusterState(HYPERPOD, {**ACTIVE, "status": "DELETING"}, ADDONS), ["is DELETING"]),
        (
            ClusterState(HYPERPOD, {**ACTIVE, "accessConfig": {"authenticationMode": "CONFIG_MAP"}}, ADDONS),
            ["authenticationMode=API_AND_CONFIG_MAP"],
        ),
        (
            ClusterState(HYPERPOD, {**ACTIVE, "resourcesVpcConfig": {"endpointPublicAccess": False}}, ADDONS),
            ["the endpoint of research-eks is private"],
        ),
        (
            ClusterState(HYPERPOD, {**ACTIVE, "resourcesVpcConfig": {"publicAccessCidrs": ["10.0.0.0/8"]}}, ADDONS),
            ["admits 10.0.0.0/8 alone"],
        ),
        (ClusterState(HYPERPOD, ACTIVE, frozenset()), [f"--addon-name {OPERATOR}", f"--addon-name {IDENTITY_AGENT}"]),
    ],
)
def test_a_cluster_on_which_no_replica_could_run_is_said_before_the_deployment(
    state: ClusterState, words: list[str]
) -> None:
    problems = [str(problem) for problem in cluster_problems("research", TABLE, state)]
    assert len(problems) == len(words)
    for problem, word in zip(problems, words, strict=True):
        assert word in problem
        assert problem.startswith("hyperpod_clusters.research")


def test_a_network_answers_for_a_private_endpoint() -> None:
    private = {**ACTIVE, "resourcesVpcConfig": {"endpointPublicAccess": False}}
    table = ClusterTable(
        eks_cluster="research-eks", namespaces=["team-a"], subnets=["subnet-1"], security_group_ids=["sg-1"]
    )
    assert list(cluster_problems("research", table, ClusterState(HYPERPOD, private, ADDONS))) == []
