"""A stack with HyperPod clusters: its settings, what the template has for them, and what a stack without has not."""

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from moto.events.models import EventPattern

from muster.contract.errors import SettingsError
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.clusters import Clusters
from muster.infra.deploy.settings_changes import pinned_changes, setting_changes
from muster.infra.settings.cluster_tables import ClusterTable
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform
from muster.options.hyperpod.contract.object_identity import IDENTITY_AGENT, OPERATOR
from muster.options.hyperpod.contract.wake_events import CLUSTER_EVENTS
from muster.options.hyperpod.infra.cluster_preflight import ClusterState, Unseen, cluster_problems, cluster_state
from muster.options.hyperpod.local.cluster_events import ClusterEvents
from tests.infra.variants import Variant
from tests.support.template import Template

BUCKET = "arn:aws:s3:::BUCKET"
EKS = "arn:aws:eks:REGION:ACCOUNT"
CALLERS = ["plan", "attempt", "react", "look", "scale", "settle", "stop", "sweep", "timer"]
KINDS = ("AWS::EKS::AccessEntry", "Custom::MusterClusterAccess")
RESEARCH = {"eks_cluster": "research-eks", "namespaces": ["team-a", "team-b"]}


def refused_fields(tables: dict[str, Any]) -> set[str]:
    with pytest.raises(SettingsError) as caught:
        parse_settings(tables, Platform.AWS)
    return {problem.field for problem in caught.value.problems}


def clusters(**tables: Any) -> dict[str, Any]:
    return {"hyperpod_clusters": {name.replace("_", "-"): {**RESEARCH, **table} for name, table in tables.items()}}


NETWORK = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}


def test_a_cluster_that_cannot_be_is_refused_by_its_place() -> None:
    many = [f"{number}" * 60 for number in range(10)]
    elsewhere = {"eks_cluster": "other", **NETWORK, "subnets": ["subnet-2"]}
    for tables, field in (
        (clusters(a={"subnets": ["subnet-1"]}), "hyperpod_clusters.a.security_group_ids"),
        (clusters(a={"security_group_ids": ["sg-1"]}), "hyperpod_clusters.a.subnets"),
        (clusters(a={"namespaces": ["x", "x"]}), "hyperpod_clusters.a.namespaces"),
        (clusters(a={"namespaces": []}), "hyperpod_clusters.a.namespaces"),
        (clusters(a={"namespaces": ["Upper"]}), "hyperpod_clusters.a.namespaces.0"),
        (clusters(a={"service_accounts": ["muster-victim"]}), "hyperpod_clusters.a.service_accounts"),
        (clusters(a={"host_paths": ["/data/../etc"]}), "hyperpod_clusters.a.host_paths"),
        (clusters(a={"eks": "x"}), "hyperpod_clusters.a.eks"),
        (clusters(a={}, b={}), "hyperpod_clusters.b.eks_cluster"),
        (clusters(a=NETWORK, b=elsewhere), "hyperpod_clusters.b.subnets"),
        ({"hyperpod_clusters": {"a.b": RESEARCH}}, "hyperpod_clusters.a.b"),
        ({**clusters(a={}), "stack": {"job_prefix": "TeamA"}}, "stack.job_prefix"),
        # Together they are longer than a variable of a function may be.
        (
            clusters(a={"namespaces": many}, b={"eks_cluster": "o", "namespaces": [name[1:] for name in many]}),
            "hyperpod_clusters",
        ),
    ):
        assert field in refused_fields(tables), tables


def test_each_cluster_is_one_setting() -> None:
    tables = clusters(research=NETWORK, prod={"eks_cluster": "prod-eks"})
    [change] = setting_changes(tables, clusters(prod={"eks_cluster": "prod-eks"}))
    assert (change.key, change.new) == ("hyperpod_clusters.research", None)


def test_running_runs_keep_their_clusters() -> None:
    for after, pinned in (
        (clusters(research={}), False),
        (clusters(research={"namespaces": ["team-c", "team-b", "team-a"]}), False),
        (clusters(research=NETWORK), False),
        (clusters(research={"namespaces": ["team-a"]}), True),
        (clusters(research={"eks_cluster": "other"}), True),
        ({}, True),
    ):
        changes = [change.key for change in pinned_changes(clusters(research={}), after)]
        assert changes == (["hyperpod_clusters.research"] if pinned else []), after


def test_a_stack_without_clusters_has_nothing_of_them(template: Template) -> None:
    assert not [name for kind in KINDS for name in template.of_type(kind)]
    text = json.dumps(template.body)
    for word in (
        "eks",
        "hyperpod",
        "otices",
        "lambdas.look",
        "EventSource",
        "MUSTER_CLUSTERS",
        "MUSTER_POD_ROLE_ARN",
        "cluster_access",
    ):
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
    # With other namespaces they are in other groups: what is left in a namespace that the settings have given up are
    # roles of groups without members.
    assert groups_of(found, "research-eks")
    assert not groups_of(found, "research-eks") & groups_of(entries(variant("private")), "research-eks")


def groups_of(found: list[dict[str, Any]], cluster: str) -> set[str]:
    return {group for entry in found if entry["ClusterName"] == cluster for group in entry.get("KubernetesGroups", ())}


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
    assert verbs["attempt"] == {*((jobs, verb) for verb in ("create", "delete", "get", "list")), ("pods", "list")}
    assert (
        verbs["look"]
        == verbs["react"]
        == verbs["scale"]
        == verbs["timer"]
        == {(jobs, "delete"), (jobs, "get"), (jobs, "list"), ("pods", "list")}
    )
    assert (
        verbs["stop"]
        == verbs["settle"]
        == verbs["sweep"]
        == {*verbs["react"], ("serviceaccounts", "delete"), ("serviceaccounts", "get")}
    )
    for found in rules.values():
        assert "*" not in json.dumps(found)


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
    notice = f"{BUCKET}/notices/run/end-r0-a1-x.json"
    actions = ("s3:GetObject", "s3:PutObject", "s3:DeleteObject")
    assert [action for action in actions if template.allows("Pod", action, notice)] == ["s3:PutObject"]
    for key in ("control/run/plan.json", "control/run/replicas/0.json", "queue/queue.json", "ended/x", "inbox/x.yaml"):
        assert not [action for action in actions if template.allows("Pod", action, f"{BUCKET}/{key}")], key
    for prefix in ("runs/run/x", "source/x", "packages/x"):
        assert template.allows("Pod", "s3:GetObject", f"{BUCKET}/{prefix}")
        assert not template.allows("Pod", "s3:PutObject", f"{BUCKET}/{prefix}")
    # A training job may say that a replica on a cluster was missing.
    keys = {"aws:PrincipalTag/MusterRun": "run", "aws:PrincipalTag/MusterLineage": "run"}
    assert template.allows("Replica", "s3:PutObject", f"{BUCKET}/notices/run/missing-r0-1.json", keys)
    assert not template.allows("Replica", "s3:PutObject", f"{BUCKET}/notices/other/x", keys)
    assert not template.allows("Replica", "s3:GetObject", f"{BUCKET}/notices/run/missing-r0-1.json", keys)
    for listed in ("", "control/", "notices/", "source/"):
        assert not template.allows("Pod", "s3:ListBucket", BUCKET, {"s3:prefix": listed})
    assert template.allows("Pod", "s3:GetObject", "arn:aws:s3:::team-data/sets/x")
    assert not template.allows("Pod", "s3:GetObject", "arn:aws:s3:::team-data/other/x")


def test_who_gives_pods_their_rights_and_who_takes_them(variant: Variant) -> None:
    template = variant("clusters")
    cluster, association = f"{EKS}:cluster/research-eks", f"{EKS}:podidentityassociation/research-eks/a-1"
    roles = ("Plan", "Attempt", "React", "Look", "Settle", "Stop", "Sweep", "Timer", "Start", "Notify", "Admit")
    for role in roles:
        takes = role in {"Settle", "Stop", "Sweep"}
        assert template.allows(role, "eks:DescribeCluster", cluster) == (role.lower() in CALLERS)
        assert template.allows(role, "eks:CreatePodIdentityAssociation", cluster) == (role == "Plan")
        assert template.allows(role, "eks:DeletePodIdentityAssociation", association) == takes
        passed = {"iam:PassedToService": "pods.eks.amazonaws.com"}
        assert template.allows(role, "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Pod", passed) == (role == "Plan")
        assert not template.allows(role, "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Pod")
        assert template.allows(role, "s3:GetObject", f"{BUCKET}/notices/run/x") == (role == "Look")
        for other in (f"{EKS}:cluster/other", f"{EKS}:podidentityassociation/other/a-1"):
            for action in ("DescribeCluster", "CreatePodIdentityAssociation", "DeletePodIdentityAssociation"):
                assert not template.allows(role, f"eks:{action}", other)


def test_notices_wake_a_function_of_their_own_in_a_bounded_number_of_calls(variant: Variant) -> None:
    template = variant("clusters")
    subscribed = [template.resolve(item["Properties"]) for item in template.of_type("AWS::SNS::Subscription").values()]
    [queued] = [item for item in subscribed if item["TopicArn"].endswith("Notices")]
    assert (queued["Protocol"], queued["Endpoint"]) == ("sqs", "arn:aws:sqs:REGION:ACCOUNT:Notices")
    calls = template.one("AWS::Lambda::EventSourceMapping")
    assert calls["EventSourceArn"] == queued["Endpoint"]
    assert "Look" in json.dumps(calls["FunctionName"])
    # A new account may run ten functions at a time, and none of them can be reserved.
    assert calls["ScalingConfig"]["MaximumConcurrency"] <= 5
    assert "ReservedConcurrentExecutions" not in json.dumps(template.body)
    queues = [template.resolve(item["Properties"]) for item in template.of_type("AWS::SQS::Queue").values()]
    [queue] = [item for item in queues if "RedrivePolicy" in item]
    assert queue["VisibilityTimeout"] >= functions(template)["look"]["Timeout"]
    for role in ("Look", "React", "Attempt"):
        for action in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes"):
            assert template.allows(role, f"sqs:{action}", queued["Endpoint"]) == (role == "Look")
    assert not template.allows(
        "Look", "sagemaker:StopTrainingJob", "arn:aws:sagemaker:REGION:ACCOUNT:training-job/muster-x"
    )


def test_notices_and_the_events_of_the_clusters_are_heard(variant: Variant) -> None:
    template = variant("clusters")
    bucket = template.resolve(next(iter(template.of_type("AWS::S3::Bucket").values()))["Properties"])
    topics = bucket["NotificationConfiguration"]["TopicConfigurations"]
    [notices] = [item for item in topics if "notices/" in json.dumps(item)]
    assert {"Name": "suffix", "Value": ".json"} in notices["Filter"]["S3Key"]["Rules"]
    assert {rule["Id"] for rule in bucket["LifecycleConfiguration"]["Rules"]} > {"notices-expire"}
    patterns = [item["Properties"].get("EventPattern", {}) for item in template.of_type("AWS::Events::Rule").values()]
    [pattern] = [item for item in patterns if "HyperPod" in json.dumps(item)]
    rule = EventPattern.load(json.dumps(pattern))
    sent: list[tuple[str, str, Mapping[str, object], str]] = []
    put = ClusterEvents(lambda *event: sent.append(event), "research", "arn", "workers")
    put.node_health("i-1", healthy=False, why="x", repair="Replace", recommendation="x")
    put.instance("i-1", "Instance is being replaced")
    # The embedded cluster keeps its number of nodes, and sends none of these.
    changed = {"ClusterName": "research", "ClusterArn": "arn", "ClusterStatus": "Updating"}
    sent.append(("aws.sagemaker", "SageMaker HyperPod Cluster State Change", changed, "arn"))
    for source, kind, detail, _ in sent:
        event = {"source": source, "detail-type": kind, "detail": detail}
        assert rule.matches_event(event), kind
        other = json.loads(json.dumps(event).replace('"research"', '"other"'))
        assert not rule.matches_event(other), kind
    assert {kind for _, kind, *_ in sent} == set(CLUSTER_EVENTS)


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
    known = Clusters.from_json(text, "MUSTER_CLUSTERS").clusters
    assert [cluster.name for cluster in known] == ["prod", "research"]
    # Clients know them from the stack's output.
    text = variant("clusters").body["Outputs"]["ReplicaDefaults"]["Value"]
    assert StackDefaults.from_json(text, "ReplicaDefaults").clusters == known


def test_only_functions_that_call_clusters_are_in_the_vpc_of_a_private_endpoint(variant: Variant) -> None:
    template = variant("private")
    for name, properties in functions(template).items():
        inside = name in CALLERS or name == "cluster_access"
        assert ("VpcConfig" in properties) == inside
        if inside:
            assert properties["VpcConfig"] == {"SubnetIds": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}
    assert template.allows("React", "ec2:CreateNetworkInterface", "*")
    assert not template.allows("Start", "ec2:CreateNetworkInterface", "*")


TABLE = ClusterTable(eks_cluster="research-eks", namespaces=["team-a"])
HYPERPOD = {"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:us-east-1:123456789012:cluster/research-eks"}}}
ACTIVE = {"status": "ACTIVE", "accessConfig": {"authenticationMode": "API"}, "resourcesVpcConfig": {}}
ADDONS = frozenset({OPERATOR, IDENTITY_AGENT})


def state(
    hyperpod: dict[str, Any] | Unseen = HYPERPOD, addons: frozenset[str] | None = ADDONS, **eks: Any
) -> ClusterState:
    """A cluster on which replicas can run, but for what is given."""
    return ClusterState(hyperpod, {**ACTIVE, **eks}, addons)


def network(**config: Any) -> dict[str, Any]:
    return {"resourcesVpcConfig": config}


def test_a_cluster_on_which_no_replica_could_run_is_said_before_the_deployment() -> None:
    for found, words in (
        (state(), []),
        (state(addons=None), []),
        (ClusterState(Unseen.DENIED, Unseen.DENIED, None), []),
        (state(Unseen.ABSENT), ["no HyperPod cluster research"]),
        (state({"Orchestrator": {}}), ["not orchestrated by EKS"]),
        (state({"Orchestrator": {"Eks": {"ClusterArn": "arn:aws:eks:r:1:cluster/other"}}}), ["write other"]),
        (ClusterState(HYPERPOD, Unseen.ABSENT, None), ["no EKS cluster research-eks"]),
        (state(status="DELETING"), ["DELETING"]),
        (state(accessConfig={"authenticationMode": "CONFIG_MAP"}), ["authenticationMode=API_AND_CONFIG_MAP"]),
        (state(**network(endpointPublicAccess=False)), ["research-eks is private"]),
        (state(**network(publicAccessCidrs=["10.0.0.0/8"])), ["10.0.0.0/8"]),
        (state(addons=frozenset()), [f"--addon-name {OPERATOR}", f"--addon-name {IDENTITY_AGENT}"]),
    ):
        problems = [str(problem) for problem in cluster_problems("research", TABLE, found)]
        assert len(problems) == len(words), (found, problems)
        for problem, word in zip(problems, words, strict=True):
            assert word in problem
            assert problem.startswith("hyperpod_clusters.research")
    # A network answers for a private endpoint.
    table = TABLE.model_copy(update=NETWORK)
    assert list(cluster_problems("research", table, state(**network(endpointPublicAccess=False)))) == []


def unseen(*, may_ask: bool) -> ClusterState:
    """What is known to an account in which no cluster is seen."""
    account: Any = SimpleNamespace(client=lambda _: None, seen=lambda _: (None, may_ask))
    return cluster_state(account, "research", TABLE.eks_cluster)


def test_a_cluster_is_absent_only_where_the_caller_may_ask() -> None:
    assert unseen(may_ask=True) == ClusterState(Unseen.ABSENT, Unseen.ABSENT, None)
    assert unseen(may_ask=False) == ClusterState(Unseen.DENIED, Unseen.DENIED, None)
