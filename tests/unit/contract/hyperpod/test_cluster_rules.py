"""What a cluster cannot do of a spec: each mistake with its place, all at once."""

from typing import Any

from muster.contract.backend import Backend
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.rank_spec import uses_cluster, uses_training_jobs
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.cluster_fields import HyperPod
from muster.contract.training.clusters import Cluster
from muster.contract.training.overrides import Override
from muster.options.hyperpod.contract.rules import launch_name_problems
from tests.support.full_specs import channel
from tests.support.job_requests import plan_of
from tests.support.refused_specs import refused_fields

BASE: dict[str, Any] = {
    "replicas": 2,
    "trainer": "a.b:c",
    "image": "image:1",
    "backend": "hyperpod",
    "instance_type": "ml.p5.48xlarge",
}
ROLE = "arn:aws:iam::123456789012:role/replica"
ONE = (Cluster(name="research", eks_cluster="research-eks", namespaces=("team-a", "team-b")),)
TWO = (*ONE, Cluster(name="prod", eks_cluster="prod-eks", namespaces=("default",)))


def problems(**fields: Any) -> dict[str, str]:
    return refused_fields({**BASE, **fields})


NETWORK = {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]}
RULE = {"rule_configuration_name": "r", "rule_evaluator_image": "i"}
PROGRAM = {"trainer": None, "entrypoint": ["x"]}
CONTEXT = "hyperpod.container.securityContext"
TYPE_LABEL = "node.kubernetes.io/instance-type"


def logged(**rule: Any) -> dict[str, Any]:
    return cluster(log_rules=[{"name": "a", **rule}])


def mounted(path: str, **volume: Any) -> dict[str, Any]:
    return cluster(volumes=[{"name": "a", "mount_path": path, **volume}])


def cluster(**section: Any) -> dict[str, Any]:
    return {"hyperpod": section}


def of_rank_1(**fields: Any) -> dict[str, Any]:
    return {"overrides": {"1": fields}}


# What only training jobs have, or what does not fit, and the field that names it.
MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"name": "Run"}, "name"),
    ({"spot": True}, "spot"),
    ({"keep_alive_period_in_seconds": 60}, "keep_alive_period_in_seconds"),
    ({"training_plan_arn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"}, "training_plan_arn"),
    ({"vpc_config": NETWORK}, "vpc_config"),
    ({"role_arn": ROLE}, "role_arn"),
    ({"retry_strategy": {"maximum_retry_attempts": 2}}, "retry_strategy"),
    ({"max_pending_seconds": 3_600}, "max_pending_seconds"),
    ({"debug_rule_configurations": [RULE]}, "debug_rule_configurations"),
    ({"output_data_config": {"kms_key_id": "alias/key"}}, "output_data_config.kms_key_id"),
    ({"output_data_config": {"compression_type": "NONE"}}, "output_data_config.compression_type"),
    ({"instance_type": None, "instance_preferences": [{"instance_type": "ml.m5.large"}]}, "instance_preferences"),
    ({**PROGRAM, "checkpoint_config": {"local_path": "/x"}}, "checkpoint_config.local_path"),
    ({"trainer": None, "image": None, "algorithm_name": "algorithm"}, "algorithm_name"),
    ({"input_data_config": [channel("a", input_mode="FastFile")]}, "input_data_config.0.input_mode"),
    ({"input_data_config": [channel("a", shuffle_config={"seed": 1})]}, "input_data_config.0.shuffle_config"),
    ({"environment": {"POD_IP": "x"}}, "environment.POD_IP"),
    (of_rank_1(spot=True), "overrides.1.spot"),
    (of_rank_1(backend="training-job", hyperpod={}), "overrides.1.hyperpod"),
    (of_rank_1(hyperpod={"efa": 64}), "overrides.1.hyperpod.efa"),
    ({"hyper_parameters": {f"k{i}": "v" * 2_500 for i in range(60)}}, "hyper_parameters"),
    ({"instance_type": "ml.new9.xlarge"}, "hyperpod.accelerators"),
    ({"fallback_instance_types": ["ml.g5.xlarge"], **cluster(accelerators=8)}, "hyperpod.accelerators"),
    (cluster(memory_gib=2_048), "hyperpod.memory_gib"),
    (cluster(restarts={"max_retries": 1, "before_full_restart": 2}), "hyperpod.restarts.before_full_restart"),
    (cluster(node_labels={TYPE_LABEL: "x"}), f"hyperpod.node_labels.{TYPE_LABEL}"),
    ({"backend": "training-job", "hyperpod": {}}, "hyperpod"),
    # A log rule that cannot find anything, or whose threshold does not fit into the operator's number.
    (cluster(log_rules=[{"name": "a", "pattern": "x", "every_seconds": 1}] * 2), "hyperpod.log_rules"),
    (logged(pattern="x"), "hyperpod.log_rules.0"),
    (logged(pattern="x", every_seconds=1, operator="gt"), "hyperpod.log_rules.0.threshold"),
    (logged(pattern="(x)", operator="gt", threshold=2**63), "hyperpod.log_rules.0.threshold"),
    (logged(pattern="(x)", threshold=1), "hyperpod.log_rules.0.operator"),
    (logged(pattern="x", threshold=1, operator="gt"), "hyperpod.log_rules.0.pattern"),
    (logged(pattern="x(", every_seconds=1), "hyperpod.log_rules.0.pattern"),
    # A volume without one source, or in a place of others.
    (mounted("/a"), "hyperpod.volumes.0"),
    (mounted("/a", claim="a", host_path="/a"), "hyperpod.volumes.0"),
    (mounted("/a", claim="a", name="dshm"), "hyperpod.volumes.0.name"),
    (mounted("/opt/ml/", claim="a"), "hyperpod.volumes.0.mount_path"),
    # Kubernetes refuses a colon, and the node resolves the steps: this one would hide the channels.
    (mounted("/a:b", claim="a"), "hyperpod.volumes.0.mount_path"),
    (mounted("/a/../opt/ml/input", claim="a"), "hyperpod.volumes.0.mount_path"),
    (mounted("/a", host_path="/data/../etc"), "hyperpod.volumes.0.host_path"),
    (mounted("/a", source={"hostPath": {"path": "/"}}), "hyperpod.volumes.0.source.hostPath"),
    (mounted("/a", source={"secret": {"name": "a"}}), "hyperpod.volumes.0.source.secret.name"),
    # What gives a pod rights on its node, what Muster sets itself, and what the schema refuses.
    (cluster(pod={"hostNetwork": True}), "hyperpod.pod.hostNetwork"),
    (cluster(pod={"nodeSelector": {"a": "b"}}), "hyperpod.pod.nodeSelector"),
    (cluster(container={"command": ["x"]}), "hyperpod.container.command"),
    (cluster(container={"securityContext": {"privileged": True}}), f"{CONTEXT}.privileged"),
    (cluster(container={"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}), f"{CONTEXT}.capabilities.add"),
    (cluster(container={"securityContext": {"seccompProfile": {"type": "Unconfined"}}}), f"{CONTEXT}.seccompProfile"),
    (cluster(pod={"tolerations": [{"key": 1}]}), "hyperpod.pod.tolerations[0].key"),
    (cluster(partition="mig-9g.10gb"), "hyperpod.partition"),
    ({"instance_type": "ml.m5.xlarge", **cluster(partition="mig-1g.10gb")}, "hyperpod.partition"),
    ({"instance_count": 2, **cluster(partition="mig-1g.10gb")}, "hyperpod.partition"),
    (cluster(partition="mig-1g.10gb", accelerators=57), "hyperpod.accelerators"),
    (cluster(vcpu=8, vcpu_limit=4), "hyperpod.vcpu_limit"),
    ({"instance_type": "ml.c6i.32xlarge", **cluster(efa=1)}, "hyperpod.efa"),
]


def test_what_only_training_jobs_have_or_what_does_not_fit_is_one_problem() -> None:
    for fields, field in MISTAKES:
        assert list(problems(**fields)) == [field], fields


def test_a_file_system_is_mounted_as_a_volume() -> None:
    source = {"file_system_id": "fs-01234567", "file_system_type": "EFS", "directory_path": "/"}
    found = problems(input_data_config=[channel("fs", {"file_system_data_source": source})])
    assert any("mount it with hyperpod.volumes" in problem for problem in found.values())


def test_the_instances_of_an_elastic_replica_are_ones_that_the_operator_can_reach() -> None:
    for count, bounds, field in (
        (2, {"max_instances": 1}, "hyperpod.elastic.max_instances"),
        (2, {"step": 4}, "hyperpod.elastic.max_instances"),
        (2, {"counts": [2, 4]}, "hyperpod.elastic.max_instances"),
        (3, {"step": 2}, "instance_count"),
        (1, {}, "instance_count"),
        (9, {}, "instance_count"),
        (2, {"step": 2, "counts": [2, 8]}, "hyperpod.elastic.counts"),
        (2, {"counts": [2, 9, 8]}, "hyperpod.elastic.counts"),
        (3, {"counts": [2, 4, 8]}, "instance_count"),
    ):
        elastic = {"min_instances": 2, "max_instances": 8, **bounds}
        assert field in problems(instance_count=count, hyperpod={"elastic": elastic}), (count, bounds)
    for sound in ({}, {"step": 3}, {"counts": [2, 5, 8]}):
        elastic = {"min_instances": 2, "max_instances": 8, **sound}
        assert uses_cluster(parse_spec({**BASE, "instance_count": 2, "hyperpod": {"elastic": elastic}})), sound


def test_a_label_has_a_key_that_kubernetes_takes() -> None:
    for key in ("a/b/c", "A/b", "a..b/c", "x" * 64, f"a/{'b' * 64}", f"{'x' * 254}/a"):
        [problem] = problems(**cluster(node_labels={key: "v"})).values()
        assert "the key of a Kubernetes label" in problem, key
    parse_spec({**BASE, **cluster(node_labels=dict.fromkeys(("A.b_c-d", f"{'a' * 63}.b/{'C' * 63}"), "v"))})


def test_a_mixed_run_may_say_what_only_its_training_jobs_have() -> None:
    own = {"0": {"environment": {"A": "b"}}, "1": {"hyperpod": {"efa": 33}}}
    found = problems(spot=True, hyperpod={"accelerators": 9}, overrides=own)
    assert list(found) == ["spot", "hyperpod.accelerators", "overrides.1.hyperpod.efa"]
    fields = {"backend": "training-job", "spot": True, "vpc_config": NETWORK}
    spec = parse_spec({**BASE, **fields, "overrides": {"1": {"backend": "hyperpod"}}})
    assert uses_cluster(spec)
    assert uses_training_jobs(spec)


def test_names_that_a_launch_chooses_are_in_lower_case() -> None:
    spec = parse_spec(BASE)
    assert list(launch_name_problems("run-1", "muster", spec)) == []
    assert [problem.field for problem in launch_name_problems("Run-1", "Muster", spec)] == ["name", "backend"]
    jobs = parse_spec({**BASE, "backend": "training-job"})
    assert list(launch_name_problems("Run-1", "Muster", jobs)) == []


def places(clusters: tuple[Cluster, ...] | None, *, deployed: bool = True, **fields: Any) -> dict[str, str]:
    spec = parse_spec({**BASE, **fields})
    found = StackDefaults(clusters=clusters).problems(spec, ROLE, deployed=deployed)
    return {problem.field: str(problem) for problem in found}


def test_a_cluster_or_namespace_that_the_stack_does_not_have_is_named_with_those_that_it_has() -> None:
    assert list(places(None)) == ["backend"]
    assert places(None, deployed=False) == {}
    assert places(ONE) == {}
    assert "research, prod" in places(TWO)["hyperpod.cluster"]
    assert "research" in places(ONE, hyperpod={"cluster": "other"})["hyperpod.cluster"]
    assert "team-a, team-b" in places(ONE, hyperpod={"namespace": "other"})["hyperpod.namespace"]
    own = {"1": {"hyperpod": {"cluster": "prod", "namespace": "team-a"}}}
    found = places(TWO, hyperpod={"cluster": "research"}, overrides=own)
    assert list(found) == ["overrides.1.hyperpod.namespace"]


def test_the_stack_writes_out_where_each_rank_runs() -> None:
    mixed = {"backend": "training-job", "overrides": {"1": {"backend": "hyperpod"}}}
    both = {"hyperpod": {"cluster": "prod"}, "overrides": {"1": {"hyperpod": {"cluster": "research"}}}}
    one, two = ("research", "team-a"), ("prod", "default")
    for fields, clusters, expected in (({}, ONE, [one, one]), (mixed, ONE, [None, one]), (both, TWO, [two, one])):
        spec = StackDefaults(clusters=clusters).complete(parse_spec({**BASE, **fields}))
        sections = [spec.of_rank(rank).hyperpod for rank in range(2)]
        assert [section and (section.cluster, section.namespace) for section in sections] == expected, fields


def test_the_stack_writes_where_ranks_run_into_the_section_that_they_inherit() -> None:
    for ranks in ("0", "0-1"):
        override = {ranks: {"environment": {"A": "1"}}}
        spec = StackDefaults(clusters=ONE).complete(parse_spec({**BASE, "overrides": override}))
        assert spec.hyperpod is not None
        assert (spec.hyperpod.cluster, spec.hyperpod.namespace) == ("research", "team-a"), ranks
        assert spec.overrides[ranks].hyperpod is None
    own = {"0-1": {"hyperpod": {"namespace": "team-b"}}}
    spec = StackDefaults(clusters=ONE).complete(parse_spec({**BASE, "overrides": own}))
    assert spec.hyperpod == HyperPod(cluster="research", namespace="team-a")
    assert spec.overrides["0-1"].hyperpod == HyperPod(cluster="research", namespace="team-b")


def test_a_stack_gives_a_cluster_no_network_and_no_key_of_training_jobs() -> None:
    defaults = StackDefaults(
        clusters=ONE,
        kms_key_id="alias/key",
        vpc_config={"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},  # type: ignore[arg-type] # read below
    )
    completed = StackDefaults.from_json(defaults.to_json(), "defaults").complete(parse_spec(BASE))
    assert completed.vpc_config is None
    assert completed.volume_kms_key_id is None


def test_an_option_of_hyperpods_command_line_is_answered_with_its_name_here() -> None:
    assert "instance_count, beside hyperpod" in problems(hyperpod={"node_count": 2})["hyperpod.node_count"]


def test_the_run_document_names_the_ranks_on_clusters() -> None:
    usual = {"image": "image", "trainer": "package:train", "replicas": 6}
    hyperpod = Override(backend=Backend.HYPERPOD)
    spec = Spec.model_validate({**usual, "overrides": {"1": hyperpod, "3-5": hyperpod}})
    found = [RunDocument.of(plan_of(one)) for one in (spec, Spec.model_validate(usual))]
    assert [document.reported_ranks for document in found] == [((1, 1), (3, 5)), ()]
    assert [document.notices_uri for document in found] == ["s3://bucket/notices/run/", None]
