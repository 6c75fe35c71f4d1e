"""What a cluster cannot do of a spec: each mistake with its place, all at once."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.hyperpod.cluster_parts import uses_cluster, uses_training_jobs
from muster.contract.hyperpod.cluster_rules import launch_name_problems
from muster.contract.hyperpod.clusters import Cluster
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from tests.support.full_specs import channel

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
    with pytest.raises(SpecError) as caught:
        parse_spec({**BASE, **fields})
    return {problem.field: str(problem) for problem in caught.value.problems}


def fs_channel() -> dict[str, Any]:
    source = {"file_system_id": "fs-01234567", "file_system_type": "EFS", "directory_path": "/"}
    return {"channel_name": "fs", "data_source": {"file_system_data_source": source}}


NETWORK = {"security_group_ids": ["sg-1"], "subnets": ["subnet-1"]}
RULE = {"rule_configuration_name": "r", "rule_evaluator_image": "i"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"name": "Run"}, "name"),
        ({"spot": True}, "spot"),
        ({"keep_alive_period_in_seconds": 60}, "keep_alive_period_in_seconds"),
        (
            {"training_plan_arn": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/plan"},
            "training_plan_arn",
        ),
        ({"vpc_config": NETWORK}, "vpc_config"),
        ({"role_arn": ROLE}, "role_arn"),
        ({"retry_strategy": {"maximum_retry_attempts": 2}}, "retry_strategy"),
        ({"max_pending_seconds": 3_600}, "max_pending_seconds"),
        ({"debug_rule_configurations": [RULE]}, "debug_rule_configurations"),
        ({"volume_kms_key_id": "alias/key", "instance_type": "ml.m5.xlarge"}, "volume_kms_key_id"),
        ({"output_data_config": {"kms_key_id": "alias/key"}}, "output_data_config.kms_key_id"),
        ({"output_data_config": {"compression_type": "NONE"}}, "output_data_config.compression_type"),
        ({"instance_type": None, "instance_preferences": [{"instance_type": "ml.m5.large"}]}, "instance_preferences"),
        (
            {"trainer": None, "entrypoint": ["x"], "checkpoint_config": {"local_path": "/x"}},
            "checkpoint_config.local_path",
        ),
        ({"trainer": None, "image": None, "algorithm_name": "algorithm"}, "algorithm_name"),
        ({"input_data_config": [channel("a", input_mode="FastFile")]}, "input_data_config.0.input_mode"),
        ({"input_data_config": [channel("a")], "training_input_mode": "Pipe"}, "training_input_mode"),
        ({"input_data_config": [channel("a", shuffle_config={"seed": 1})]}, "input_data_config.0.shuffle_config"),
        ({"environment": {"POD_IP": "x"}}, "environment.POD_IP"),
        ({"overrides": {"1": {"environment": {"NNODES": "x"}}}}, "overrides.1.environment.NNODES"),
        ({"overrides": {"1": {"spot": True}}}, "overrides.1.spot"),
        ({"overrides": {"1": {"hyperpod": {"efa": 64}}}}, "overrides.1.hyperpod.efa"),
        ({"hyper_parameters": {f"k{i}": "v" * 2_500 for i in range(60)}}, "hyper_parameters"),
        ({"instance_type": "ml.new9.xlarge"}, "hyperpod.accelerators"),
        ({"fallback_instance_types": ["ml.g5.xlarge"], "hyperpod": {"accelerators": 8}}, "hyperpod.accelerators"),
        ({"hyperpod": {"memory_gib": 2_048}}, "hyperpod.memory_gib"),
        (
            {"hyperpod": {"restarts": {"max_retries": 1, "before_full_restart": 2}}},
            "hyperpod.restarts.before_full_restart",
        ),
        (
            {"hyperpod": {"node_labels": {"node.kubernetes.io/instance-type": "x"}}},
            "hyperpod.node_labels.node.kubernetes.io/instance-type",
        ),
        ({"backend": "training-job", "hyperpod": {}}, "hyperpod"),
        ({"overrides": {"1": {"backend": "training-job", "hyperpod": {}}}}, "overrides.1.hyperpod"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_only_training_jobs_have_or_what_does_not_fit_is_one_problem(fields: dict[str, Any], field: str) -> None:
    assert list(problems(**fields)) == [field]


def test_a_file_system_is_mounted_as_a_volume() -> None:
    with pytest.raises(SpecError, match=r"mount it with hyperpod\.volumes"):
        parse_spec({**BASE, "input_data_config": [fs_channel()]})


def elastic(**fields: Any) -> dict[str, Any]:
    return {"hyperpod": {"elastic": {"min_instances": 2, "max_instances": 8, **fields}}}


@pytest.mark.parametrize(
    ("count", "fields", "field"),
    [
        (2, elastic(max_instances=1), "hyperpod.elastic.max_instances"),
        (2, elastic(step=4), "hyperpod.elastic.max_instances"),
        (3, elastic(step=2), "instance_count"),
        (1, elastic(), "instance_count"),
        (9, elastic(), "instance_count"),
        (2, elastic(step=2, counts=[2, 8]), "hyperpod.elastic.counts"),
        (2, elastic(counts=[2, 9, 8]), "hyperpod.elastic.counts"),
        (2, elastic(counts=[2, 4]), "hyperpod.elastic.max_instances"),
        (3, elastic(counts=[2, 4, 8]), "instance_count"),
    ],
)
def test_the_instances_of_an_elastic_replica_are_ones_that_the_operator_can_reach(
    count: int, fields: dict[str, Any], field: str
) -> None:
    assert field in problems(instance_count=count, **fields)


@pytest.mark.parametrize("fields", [elastic(), elastic(step=3), elastic(counts=[2, 5, 8])])
def test_sound_bounds_are_accepted(fields: dict[str, Any]) -> None:
    assert uses_cluster(parse_spec({**BASE, "instance_count": 2, **fields}))


@pytest.mark.parametrize(
    ("rules", "field"),
    [
        ([{"name": "a", "pattern": "x", "every_seconds": 1}] * 2, "hyperpod.log_rules"),
        ([{"name": "a", "pattern": "x"}], "hyperpod.log_rules.0"),
        ([{"name": "a", "pattern": "x", "every_seconds": 1, "operator": "gt"}], "hyperpod.log_rules.0.threshold"),
        ([{"name": "a", "pattern": "(x)", "threshold": 1}], "hyperpod.log_rules.0.operator"),
        ([{"name": "a", "pattern": "x", "threshold": 1, "operator": "gt"}], "hyperpod.log_rules.0.pattern"),
        ([{"name": "a", "pattern": "x(", "every_seconds": 1}], "hyperpod.log_rules.0.pattern"),
    ],
)
def test_a_log_rule_that_cannot_find_anything_is_refused(rules: list[dict[str, Any]], field: str) -> None:
    assert list(problems(hyperpod={"log_rules": rules})) == [field]


@pytest.mark.parametrize(
    ("volume", "field"),
    [
        ({"name": "a", "mount_path": "/a"}, "hyperpod.volumes.0"),
        ({"name": "a", "mount_path": "/a", "claim": "a", "host_path": "/a"}, "hyperpod.volumes.0"),
        ({"name": "dshm", "mount_path": "/a", "claim": "a"}, "hyperpod.volumes.0.name"),
        ({"name": "a", "mount_path": "/opt/ml/", "claim": "a"}, "hyperpod.volumes.0.mount_path"),
        ({"name": "a", "mount_path": "/", "claim": "a"}, "hyperpod.volumes.0.mount_path"),
        # Kubernetes refuses a colon, and the node resolves the steps: this one would hide the channels.
        ({"name": "a", "mount_path": "/a:b", "claim": "a"}, "hyperpod.volumes.0.mount_path"),
        ({"name": "a", "mount_path": "/a/../opt/ml/input", "claim": "a"}, "hyperpod.volumes.0.mount_path"),
        ({"name": "a", "mount_path": "//opt/./ml/input", "claim": "a"}, "hyperpod.volumes.0.mount_path"),
        ({"name": "a", "mount_path": "/a", "host_path": "/data/../etc"}, "hyperpod.volumes.0.host_path"),
    ],
)
def test_a_volume_has_one_source_and_a_place_of_its_own(volume: dict[str, Any], field: str) -> None:
    assert list(problems(hyperpod={"volumes": [volume]})) == [field]


def test_all_problems_of_all_ranks_are_named_at_once_and_each_once() -> None:
    found = problems(
        spot=True,
        hyperpod={"accelerators": 9},
        overrides={"0": {"environment": {"A": "b"}}, "1": {"hyperpod": {"efa": 33}}},
    )
    assert list(found) == ["spot", "hyperpod.accelerators", "overrides.1.hyperpod.efa"]
    assert "ml.p5.48xlarge has 8 for pods" in found["hyperpod.accelerators"]


def test_a_mixed_run_may_say_what_only_its_training_jobs_have() -> None:
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
    completed = StackDefaults(clusters=ONE).complete(parse_spec(BASE)).of_rank(1).hyperpod
    assert completed is not None
    assert (completed.cluster, completed.namespace) == ("research", "team-a")
    mixed = {**BASE, "backend": "training-job", "overrides": {"1": {"backend": "hyperpod"}}}
    done = StackDefaults(clusters=ONE).complete(parse_spec(mixed))
    assert done.of_rank(0).hyperpod is None
    own = done.of_rank(1).hyperpod
    assert own is not None
    assert (own.cluster, own.namespace) == ("research", "team-a")
    both = {**BASE, "hyperpod": {"cluster": "prod"}, "overrides": {"1": {"hyperpod": {"cluster": "research"}}}}
    found = StackDefaults(clusters=TWO).complete(parse_spec(both))
    places = [section.namespace for rank in range(2) if (section := found.of_rank(rank).hyperpod) is not None]
    assert places == ["default", "team-a"]


def test_a_stack_gives_a_cluster_no_network_and_no_key_of_training_jobs() -> None:
    defaults = StackDefaults(
        clusters=ONE,
        kms_key_id="alias/key",
        vpc_config={"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]},  # type: ignore[arg-type] # read below
    )
    completed = StackDefaults.from_json(defaults.to_json(), "defaults").complete(parse_spec(BASE))
    assert completed.vpc_config is None
    assert completed.volume_kms_key_id is None


@pytest.mark.parametrize("key", ["a/b/c", "A/b", "a_b/c", "a..b/c", "x" * 64, f"a/{'b' * 64}", f"{'x' * 254}/a"])
def test_a_label_has_a_key_that_kubernetes_takes(key: str) -> None:
    with pytest.raises(SpecError, match="the key of a Kubernetes label"):
        parse_spec({**BASE, "hyperpod": {"node_labels": {key: "v"}}})


@pytest.mark.parametrize("key", ["a", "A.b_c-d", "topology.kubernetes.io/zone", f"{'a' * 63}.b/{'C' * 63}"])
def test_a_label_may_have_a_prefix(key: str) -> None:
    spec = parse_spec({**BASE, "hyperpod": {"node_labels": {key: "v"}}})
    assert spec.hyperpod is not None
    assert spec.hyperpod.node_labels == {key: "v"}


@pytest.mark.parametrize("threshold", [2**63, -(2**63) - 1])
def test_a_threshold_fits_into_the_operators_number(threshold: int) -> None:
    rule = {"name": "a", "pattern": "(x)", "operator": "gt", "threshold": threshold}
    with pytest.raises(SpecError, match="threshold"):
        parse_spec({**BASE, "hyperpod": {"log_rules": [rule]}})
