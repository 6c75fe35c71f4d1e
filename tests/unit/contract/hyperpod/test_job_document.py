"""The HyperPodPyTorchJob that a spec becomes, and what its schema refuses: everything at once, each with its path."""

import copy
from typing import Any

import pytest

from muster.contract.run.job_request import own_tags
from muster.contract.spec.spec_reader import parse_spec
from muster.options.hyperpod.contract.job_document import ClusterJobError, cluster_job, drafted_job
from muster.options.hyperpod.contract.job_schema import SchemaRule, job_schema, schema_problems
from muster.options.hyperpod.contract.object_identity import tags_of
from muster.options.hyperpod.contract.pod_bootstrap import POD_COMMAND
from muster.options.hyperpod.contract.pod_work import PodWork
from muster.options.hyperpod.local.pods import container_values
from tests.support.full_specs import channel
from tests.support.job_requests import plan_of

BASE: dict[str, Any] = {
    "replicas": 2,
    "trainer": "a.b:c",
    "image": "image:1",
    "backend": "hyperpod",
    "instance_type": "ml.p5.48xlarge",
    "hyperpod": {"cluster": "research", "namespace": "team"},
}


MIG = "nvidia.com/mig-"
GPU, EFA = "nvidia.com/gpu", "vpc.amazonaws.com/efa"


def job(rank: int = 1, attempt: int = 2, shortages: int = 0, /, **fields: Any) -> Any:
    return cluster_job(plan_of(parse_spec({**BASE, **fields})), rank, attempt, shortages)


def asked(**fields: Any) -> dict[str, Any]:
    return {"hyperpod": {**BASE["hyperpod"], **fields}}


def pods(document: Any) -> Any:
    return document["spec"]["replicaSpecs"][0]


def container(document: Any) -> Any:
    return pods(document)["template"]["spec"]["containers"][0]


def variables(document: Any) -> dict[str, str]:
    return {item["name"]: item["value"] for item in container(document)["env"] if "value" in item}


def in_a_container(document: Any) -> dict[str, str]:
    """The environment that a container gets, as Kubernetes replaces references."""
    return container_values.variables({"metadata": {"name": "pod-0"}}, container(document), "127.1.2.3")


def test_a_job_has_the_name_the_labels_and_the_digest_that_prove_whose_it_is() -> None:
    plan = plan_of(parse_spec(BASE))
    document: Any = cluster_job(plan, 1, 2)
    assert (document["metadata"]["name"], document["metadata"]["namespace"]) == ("muster-run-r1-a2", "team")
    assert document["metadata"]["labels"]["muster/stack"] == "muster"
    for metadata in (document["metadata"], pods(document)["template"]["metadata"]):
        assert tags_of(metadata) == own_tags(plan, 1, 2)


def test_kueue_reads_queue_priority_and_topology_on_the_job_and_on_its_pods() -> None:
    level = "topology.k8s.aws/network-node-layer-2"
    document = job(**asked(queue="local-queue", priority="high", topology={"level": level, "mode": "required"}))
    for metadata in (document["metadata"], pods(document)["template"]["metadata"]):
        assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == "local-queue"
        assert metadata["labels"]["kueue.x-k8s.io/priority-class"] == "high"
        assert metadata["annotations"]["kueue.x-k8s.io/podset-required-topology"] == level
    plain = job()["metadata"]
    assert not [name for name in (*plain["labels"], *plain["annotations"]) if "kueue" in name]


def test_an_elastic_replica_says_between_what_it_may_be_scaled() -> None:
    document = job(
        instance_count=2, **asked(spares=1, elastic={"min_instances": 2, "max_instances": 8, "counts": [2, 4, 8]})
    )
    assert [pods(document)[name] for name in ("name", "replicas", "spares", "maxReplicas")] == ["pod", 2, 1, 8]
    assert document["spec"]["elasticPolicy"] == {
        "minReplicas": 2,
        "maxReplicas": 8,
        "replicaDiscreteValues": [2, 4, 8],
        "scalingTimeoutInSeconds": 60,
        "gracefulShutdownTimeoutInSeconds": 600,
        "faultyScaleDownTimeoutInSeconds": 30,
    }
    stepped = job(instance_count=2, **asked(elastic={"min_instances": 2, "max_instances": 8, "step": 3}))
    assert stepped["spec"]["elasticPolicy"]["replicaIncrementStep"] == 3
    assert "replicaDiscreteValues" not in stepped["spec"]["elasticPolicy"]
    assert "elasticPolicy" not in job()["spec"]
    assert "maxReplicas" not in pods(job())
    # Ranks of an override have their own cluster and size.
    own = {"1": {"instance_count": 4, "hyperpod": {"cluster": "other", "namespace": "ns"}}}
    assert [pods(job(rank, overrides=own))["replicas"] for rank in range(2)] == [1, 4]
    assert job(1, overrides=own)["metadata"]["namespace"] == "ns"


def test_the_run_policy_keeps_the_job_and_bounds_each_of_its_phases() -> None:
    document = job(
        max_runtime_seconds=7_200,
        **asked(
            keep_seconds=3_600,
            startup_deadline_seconds=600,
            fault_deadline_seconds=900,
            restarts={"max_retries": 5, "period_seconds": 60, "max_full_restarts": 1, "before_full_restart": 2},
            log_rules=[
                {"name": "loss", "pattern": "loss=([0-9]+)", "threshold": 9, "operator": "gt", "data_points": 3},
                {"name": "begin", "pattern": "round 1", "start_within_seconds": 300, "stop_pattern": "done"},
            ],
        ),
    )
    assert document["spec"]["runPolicy"] == {
        "cleanPodPolicy": "All",
        "ttlSecondsAfterFinished": 3_600,
        "activeDeadlineSeconds": 7_200,
        "startupDeadlineSeconds": 600,
        "faultDeadlineSeconds": 900,
        "jobMaxRetryCount": 5,
        "restartPolicy": {"evalPeriodSeconds": 60, "maxFullJobRestarts": 1, "numRestartBeforeFullJobRestart": 2},
        "logMonitoringConfiguration": [
            {
                "name": "loss",
                "logPattern": "loss=([0-9]+)",
                "metricThreshold": 9,
                "operator": "gt",
                "metricEvaluationDataPoints": 3,
            },
            {"name": "begin", "logPattern": "round 1", "stopPattern": "done", "expectedStartCutOffInSeconds": 300},
        ],
    }


SHARES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    # All of two nodes, a part of one, Neuron devices, no accelerator, an unknown type.
    ({"instance_count": 2}, {GPU: 8, EFA: 32, "cpu": "179000m", "memory": "1935360Mi"}),
    (asked(accelerators=2), {GPU: 2, "cpu": "44000m", "memory": "483328Mi"}),
    (
        {"instance_type": "ml.trn1.32xlarge", **asked(vcpu=1.5, memory_gib=2, efa=8)},
        {"aws.amazon.com/neurondevice": 16, EFA: 8, "cpu": "1500m", "memory": "2048Mi"},
    ),
    ({"instance_type": "ml.m5.xlarge"}, {"cpu": "3000m", "memory": "11264Mi"}),
    ({"instance_type": "ml.new9.2xlarge", **asked(accelerators=4)}, {GPU: 4}),
    # Nodes of this type offer no EFA; whole processors; parts of a GPU, of which each has seven.
    ({"instance_type": "ml.c6i.32xlarge", "instance_count": 2}, {"cpu": "119000m", "memory": "228352Mi"}),
    ({"instance_type": "ml.c5.large"}, {"cpu": "1000m", "memory": "2048Mi"}),
    (asked(partition="mig-2g.20gb", accelerators=3), {f"{MIG}2g.20gb": 3, "cpu": "19000m", "memory": "206848Mi"}),
    (asked(partition="mig-1g.10gb", vcpu=2), {f"{MIG}1g.10gb": 1, "cpu": "2000m", "memory": "33792Mi"}),
]


def test_a_pod_asks_for_its_share_of_a_node() -> None:
    for fields, requests in SHARES:
        # More CPU than it asks for is no harm.
        limits = {name: value for name, value in requests.items() if name != "cpu"}
        assert container(job(**fields))["resources"] == {"requests": requests, "limits": limits}, fields


def test_a_spec_may_set_limits_of_its_own() -> None:
    found = container(job(**asked(vcpu_limit=4, memory_limit_gib=32, memory_gib=16)))["resources"]
    assert (found["requests"]["cpu"], found["limits"]["cpu"]) == ("4000m", "4000m")
    assert (found["requests"]["memory"], found["limits"]["memory"]) == ("16384Mi", "32768Mi")


def test_what_kubernetes_says_goes_into_the_pods_as_it_is_and_nothing_of_musters_is_replaced() -> None:
    more = {
        "tolerations": [{"key": "team", "operator": "Exists", "effect": "NoSchedule"}],
        "imagePullSecrets": [{"name": "registry"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "securityContext": {"runAsUser": 1000, "fsGroup": 1000},
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}},
    }
    own = {
        "envFrom": [{"secretRef": {"name": "keys"}}],
        "imagePullPolicy": "Always",
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"], "drop": ["ALL"]}},
    }
    sources = {"keys": {"secret": {"secretName": "keys"}}, "scratch": {"emptyDir": {"medium": "Memory"}}}
    volumes = [{"name": name, "mount_path": f"/{name}", "source": source} for name, source in sources.items()]
    elastic = {"min_instances": 1, "max_instances": 2, "scale_up_snooze_seconds": 60}
    document = job(**asked(pod=more, container=own, volumes=volumes, elastic=elastic, restarts={"avoided_nodes": 2}))
    plain, spec = pods(job())["template"]["spec"], pods(document)["template"]["spec"]
    assert {name: spec[name] for name in more} == more
    assert {name: container(document)[name] for name in own} == own
    assert spec.keys() - more.keys() == plain.keys()
    assert container(document).keys() - own.keys() == plain["containers"][0].keys()
    assert spec["volumes"][2:] == [{"name": name, **source} for name, source in sources.items()]
    policy = document["spec"]["runPolicy"]["restartPolicy"]
    assert (policy["scaleUpSnoozeTimeInSeconds"], policy["maxNumRepeatOffendersToAvoid"]) == (60, 2)


def test_pods_go_to_nodes_of_the_type_and_after_a_shortage_to_those_of_the_next() -> None:
    types = {"instance_type": "ml.p5.48xlarge", "fallback_instance_types": ["ml.p4d.24xlarge"]}
    extra = asked(deep_health_checks=True, node_labels={"team": "a"})
    first, second = (pods(job(1, 2, shortages, **types, **extra))["template"]["spec"] for shortages in (0, 1))
    assert first["nodeSelector"] == {
        "team": "a",
        "node.kubernetes.io/instance-type": "ml.p5.48xlarge",
        "sagemaker.amazonaws.com/deep-health-check-status": "Passed",
    }
    assert second["nodeSelector"]["node.kubernetes.io/instance-type"] == "ml.p4d.24xlarge"
    assert second["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == 8


def test_the_first_process_gets_its_work_and_the_program_what_a_training_job_has() -> None:
    document = job(
        source_dir="s3://bucket/source/1.tar.gz",
        hyper_parameters={"epochs": "3"},
        input_data_config=[channel("train")],
        environment={"A": "b"},
        processes=2,
    )
    found = variables(document)
    expected = {"A": "b", "MUSTER_RUN": "run", "MUSTER_RANK": "1", "MUSTER_ATTEMPT": "2", "MUSTER_PROCESSES": "2"}
    assert expected.items() <= found.items()
    assert found["MUSTER_DOCUMENT"] == "s3://bucket/runs/run/document.json"
    assert found["MUSTER_REGION"] == found["AWS_REGION"] == found["AWS_DEFAULT_REGION"] == "us-east-1"
    assert found["NNODES"] == "1"
    work = PodWork.from_json(found["MUSTER_POD_WORK"], "work")
    assert (work.job, work.instances, work.channels[0].name) == ("muster-run-r1-a2", 1, "train")
    uris = (work.checkpoints_uri, work.output_uri, work.notices_uri)
    assert uris == ("s3://bucket/checkpoints/run/r1/", "s3://bucket/output/run", "s3://bucket/notices/run/")
    assert work.hyper_parameters == {"epochs": "3"}
    assert container_values.command_of(container(document), found) == list(POD_COMMAND)
    fields = {item["name"]: item["valueFrom"]["fieldRef"]["fieldPath"] for item in container(document)["env"][-2:]}
    assert fields == {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}


def test_the_program_is_the_one_of_a_training_job_and_kubernetes_expands_nothing_in_it() -> None:
    texts = ["$(HOME)", "$$(MUSTER_RUN)", "echo $$ > pid", "pa$$word", "^a$", "$$$", "$x"]
    own = {"trainer": None, "entrypoint": ["echo", *texts], "arguments": ["-a", "$$"]}
    given = {f"A{number}": text for number, text in enumerate(texts)}
    trainer = variables(job())
    program = in_a_container(job(environment={"HOME": "/root", **given}, hyper_parameters={"end": "$$"}, **own))
    assert PodWork.from_json(trainer["MUSTER_POD_WORK"], "work").program == ("python", "-m", "muster.replica")
    work = PodWork.from_json(program["MUSTER_POD_WORK"], "work")
    assert work.program == ("echo", *texts, "-a", "$$")
    assert work.hyper_parameters == {"end": "$$"}
    assert given.items() <= program.items()


def test_pods_have_shared_memory_a_tree_and_the_users_volumes() -> None:
    document = job(
        volume_gb=50,
        instance_type="ml.m5.xlarge",
        **asked(
            volumes=[
                {"name": "data", "mount_path": "/fsx", "claim": "fsx", "read_only": True},
                {"name": "disk", "mount_path": "/scratch", "host_path": "/opt/dlami/nvme"},
            ]
        ),
    )
    spec = pods(document)["template"]["spec"]
    assert spec["volumes"] == [
        {"name": "dshm", "emptyDir": {"medium": "Memory"}},
        {"name": "opt-ml", "emptyDir": {"sizeLimit": "50Gi"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "fsx", "readOnly": True}},
        {"name": "disk", "hostPath": {"path": "/opt/dlami/nvme"}},
    ]
    mounts = {item["mountPath"]: item for item in container(document)["volumeMounts"]}
    assert mounts["/fsx"] == {"name": "data", "mountPath": "/fsx", "readOnly": True}
    assert mounts["/scratch"] == {"name": "disk", "mountPath": "/scratch"}
    assert {item["name"] for item in mounts.values()} == {"dshm", "opt-ml", "data", "disk"}
    # What an image has in /opt/ml/code stays.
    assert {path for path in mounts if path.startswith("/opt/ml")} == {
        f"/opt/ml/{name}" for name in ("input", "model", "output", "checkpoints", "local-states")
    }


def test_a_volume_may_keep_the_local_states_beyond_the_pod() -> None:
    volume = {"name": "nvme", "mount_path": "/opt/ml/local-states", "host_path": "/opt/dlami/nvme/states"}
    mounts = [item["mountPath"] for item in container(job(**asked(volumes=[volume])))["volumeMounts"]]
    assert mounts.count("/opt/ml/local-states") == 1
    assert "/opt/ml/checkpoints" in mounts
    # A type with disks of its own has no limit for the tree.
    assert pods(job())["template"]["spec"]["volumes"][1] == {"name": "opt-ml", "emptyDir": {}}


def test_pods_have_the_account_of_their_run_or_the_users_and_no_token_of_the_cluster() -> None:
    own = pods(job())["template"]["spec"]
    assert (own["serviceAccountName"], own["automountServiceAccountToken"]) == ("muster-run", False)
    users = pods(job(**asked(service_account="mine")))["template"]["spec"]
    assert users["serviceAccountName"] == "mine"
    assert "automountServiceAccountToken" not in users


def test_a_job_that_the_schema_refuses_is_not_sent_and_all_is_said() -> None:
    plan = plan_of(parse_spec(BASE)).model_copy(update={"run": "<run>"})
    with pytest.raises(ClusterJobError) as caught:
        cluster_job(plan, 1, 2)
    assert {problem.path for problem in caught.value.problems} >= {"metadata.name", "metadata.labels.muster/run"}
    # A dry run shows what it would be.
    assert schema_problems(drafted_job(plan, 1, 2)) == caught.value.problems


# --- what the schema refuses, with its place ------------------------------------------------------

JOB: Any = job()
KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "default", "enum", "items", "maximum", "minItems", "minLength"),
    *("minimum", "pattern", "properties", "propertyNames", "required", "type"),
}


def changed(path: str, value: object) -> Any:
    document = copy.deepcopy(JOB)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = document
    for part in above:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


POLICY, POD = "spec.runPolicy", "spec.replicaSpecs[0].template.spec"
MISTAKES: list[tuple[str, object, str, SchemaRule]] = [
    ("kind", "PyTorchJob", "kind", SchemaRule.VALUE),
    ("spec", ..., "spec", SchemaRule.REQUIRED),
    ("metadata.name", "Upper", "metadata.name", SchemaRule.LIMIT),
    ("metadata.labels", {"a": "b c"}, "metadata.labels.a", SchemaRule.LIMIT),
    ("metadata.labels", {"/": "b"}, "metadata.labels./", SchemaRule.LIMIT),
    ("spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs", SchemaRule.UNKNOWN),
    ("spec.nprocPerNode", 1, "spec.nprocPerNode", SchemaRule.TYPE),
    (f"{POLICY}.suspend", None, f"{POLICY}.suspend", SchemaRule.TYPE),
    (f"{POLICY}.activeDeadlineSeconds", 0, f"{POLICY}.activeDeadlineSeconds", SchemaRule.LIMIT),
    (f"{POLICY}.cleanPodPolicy", "Some", f"{POLICY}.cleanPodPolicy", SchemaRule.VALUE),
    ("spec.replicaSpecs", [], "spec.replicaSpecs", SchemaRule.LIMIT),
    ("spec.replicaSpecs.0.name", ..., "spec.replicaSpecs[0].name", SchemaRule.REQUIRED),
    ("spec.replicaSpecs.0.template.spec.host", "x", f"{POD}.host", SchemaRule.UNKNOWN),
]


def test_each_mistake_is_refused_at_its_place() -> None:
    for path, value, where, rule in MISTAKES:
        assert [(problem.path, problem.rule) for problem in schema_problems(changed(path, value))] == [(where, rule)]
    document = changed("kind", 1)
    document["spec"] |= {"a": 1, "b": 2}
    assert len(schema_problems(document)) == 3


def test_a_quantity_is_a_number_or_a_text_and_the_server_checks_other_metadata() -> None:
    assert schema_problems(changed("metadata.generateName", "a-")) == []
    for quantity in (8, "8"):
        found = {"limits": {"nvidia.com/gpu": quantity}}
        assert schema_problems(changed("spec.replicaSpecs.0.template.spec.containers.0.resources", found)) == []


def test_the_schema_has_no_keyword_that_is_not_checked() -> None:
    def keywords(node: Any, *, names: bool = False) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keywords, node))
        if not isinstance(node, dict):
            return set()
        own = set() if names else set(node)
        return own.union(
            *(keywords(item, names=not names and name in {"properties", "$defs"}) for name, item in node.items())
        )

    assert keywords(job_schema()) == KEYWORDS
