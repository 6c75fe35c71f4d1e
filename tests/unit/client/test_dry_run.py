from types import SimpleNamespace
from typing import Any

import boto3
import pytest

from muster.client.checks.channel_check import check_channels
from muster.client.checks.check_findings import CheckFindings
from muster.client.cli.dry_run_text import dry_run_lines
from muster.client.launch.dry_run import DryRun, dry_run
from muster.client.launch.estimate import cost, quotas
from muster.client.sdk import new_run_name
from muster.contract.aws.prices import PriceTable
from muster.contract.names import numbered_run_name
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from tests.memory.harness import ControlHarness
from tests.support.memory_client import client_of

PRICES = PriceTable(
    as_of="2026-11-21",
    region="us-east-1",
    source="this test",
    usd_per_hour={"ml.m5.xlarge": 1.0, "ml.g5.xlarge": 2.0, "ml.p5.48xlarge": 50.0},
)


PREFERENCES = [{"instance_type": name} for name in ("ml.m5.xlarge", "ml.p5.48xlarge")]


def dry_run_text(dry: DryRun, *, requests: bool = False) -> str:
    return "\n".join(dry_run_lines(dry, requests=requests))


def ranks(**fields: object) -> list[Spec]:
    spec = parse_spec({"replicas": 4, "trainer": "m:f", **fields})
    return [spec.of_rank(rank) for rank in range(spec.replicas)]


def needs(**fields: object) -> dict[str, tuple[int, int]]:
    return {quota.name: (quota.instances, quota.for_fallbacks) for quota in quotas(ranks(**fields))}


def test_a_dry_run_shows_one_request_for_each_replica_and_marks_what_it_cannot_know() -> None:
    dry = dry_run(parse_spec({"replicas": 3, "trainer": "m:f", "instance_type": "ml.g5.xlarge"}))
    assert [request["TrainingJobName"] for request in dry.requests] == [f"muster-<run>-r{rank}-a1" for rank in range(3)]
    assert dry.requests[0]["AlgorithmSpecification"]["TrainingImage"] == "<image-of-the-stack>"
    assert "3 training jobs: muster-<run>-r0-a1 to muster-<run>-r2-a1" in dry_run_text(dry)
    elsewhere = "other regions differ: `muster plan --deployed` asks"
    asked = dry.cost.model_copy(update={"prices": PRICES})
    texts = (dry_run_text(one) for one in (dry, dry.model_copy(update={"cost": asked})))
    assert [elsewhere in text for text in texts] == [True, False]
    named = dry_run(parse_spec({"replicas": 1, "trainer": "m:f", "role_arn": "train"}))
    assert named.requests[0]["RoleArn"] == "<arn-of-train>"


def test_what_the_ranks_of_a_sweep_differ_in_is_a_table() -> None:
    sweep = {"kwargs.optimizer.lr": [0.1, 0.25], "kwargs.schedule": ["cosine", "linear"]}
    text = dry_run_text(dry_run(parse_spec({"replicas": 2, "trainer": "m:f", "sweep": sweep})))
    lines = ["  rank  lr    schedule", "     0  0.1   cosine", "     1  0.25  linear", "Quota needed:"]
    assert "\n".join(["Sweep: each replica trains by itself, with its own values:", *lines]) in text
    assert "(ranks 0-1 differ in the rank and the values of the sweep)" in text


def test_the_size_of_a_replica_is_shown() -> None:
    smaller = {"instance_count": 2, "processes": 1}
    fields = {"replicas": 3, "trainer": "m:f", "processes": 8, "overrides": {"1": smaller}}
    text = dry_run_text(dry_run(parse_spec(fields)), requests=True)
    assert "(ranks 0,2 differ in the rank only), 1 instance with 8 processes:" in text
    assert text.count('"TrainingJobName"') == 2
    assert "The request of rank 1, 2 instances with 1 process:" in text
    program = {"replicas": 1, "entrypoint": ["torchrun", "train.py"], "instance_count": 4}
    assert "The request of rank 0, 4 instances." in dry_run_text(dry_run(parse_spec(program)))


def test_quota_is_named_as_service_quotas_names_it() -> None:
    assert needs() == {"ml.m5.xlarge for training job usage": (4, 0)}
    assert needs(spot=True) == {"ml.m5.xlarge for spot training job usage": (4, 0)}
    assert needs(keep_alive_period_in_seconds=60)["ml.m5.xlarge for training warm pool usage"] == (4, 0)
    several = {"instance_count": 4, "overrides": {"0": {"instance_count": 1}}}
    assert needs(**several) == {"ml.m5.xlarge for training job usage": (13, 0)}
    assert needs(**several, fallback_instance_types=["ml.g5.xlarge"])["ml.g5.xlarge for training job usage"] == (0, 13)
    other = {"0": {"instance_type": "ml.g5.xlarge"}, "1": {"spot": False}}
    assert needs(spot=True, overrides=other) == {
        "ml.g5.xlarge for spot training job usage": (1, 0),
        "ml.m5.xlarge for training job usage": (1, 0),
        "ml.m5.xlarge for spot training job usage": (2, 0),
    }


COSTS: list[tuple[dict[str, object], float, float, float]] = [
    # By default: 20 reruns for spot, 5 for infrastructure, 1 for an unknown end.
    ({"instance_count": 4, "overrides": {"0": {"instance_count": 1}}}, 13.0, 13.0, 13.0 * 27),
    ({"overrides": {"0-1": {"instance_type": "ml.p5.48xlarge"}}}, 102.0, 102.0, 102.0 * 27),
    ({"fallback_instance_types": ["ml.g5.xlarge"]}, 4.0, 8.0, 8.0 * 27),
    # SageMaker may choose the dearest.
    ({"instance_preferences": PREFERENCES}, 200.0, 200.0, 200.0 * 27),
    ({"keep_alive_period_in_seconds": 1_800}, 4.0, 6.0, 6.0 * 27),
    ({"reruns": {"capacity": {"max_reruns": 900}, "spot": {"max_reruns": 0}}}, 4.0, 4.0, 4.0 * 7),
    ({"continue": {"on": ["failed"], "max": 2}}, 4.0, 4.0, 4.0 * 27 * 3),
    # Rules that restart have a budget of their own.
    ({"watch": {"hang": {"then": "restart"}, "max_restarts": 9}}, 4.0, 4.0, 4.0 * 36),
    ({"watch": {"hang": {"then": "stop"}, "max_restarts": 9}}, 4.0, 4.0, 4.0 * 27),
]


def test_what_a_run_costs() -> None:
    for fields, *expected in COSTS:
        found = cost(ranks(max_runtime_seconds=3_600, **fields), PRICES)
        assert (found.per_hour, found.attempt_ceiling, found.ceiling) == pytest.approx(tuple(expected)), fields


def test_a_type_without_a_price_makes_the_cost_unknown_and_is_named() -> None:
    found = cost(ranks(fallback_instance_types=["ml.new.xlarge"]), PRICES)
    assert (found.per_hour, found.ceiling, found.unpriced) == (None, None, ("ml.new.xlarge",))
    text = dry_run_text(dry_run(parse_spec({"replicas": 1, "trainer": "m:f", "instance_type": "ml.g55.xlarge"})))
    assert "has no ml.g55.xlarge" in text
    assert "Note: ml.g55.xlarge is not among the instance types that this release of Muster knows; did you mean" in text


def remarks(**fields: object) -> str:
    return "\n".join(dry_run(parse_spec({"replicas": 2, "trainer": "m:f", **fields})).remarks)


RECIPE = {"name": "own", "family": "trainer", "digest": "0" * 64}
PROGRAM = {
    "trainer": None,
    "replicas": 1,
    "image": "verl:1",
    "recipe": {**RECIPE, "family": "llmft"},
    "source_dir": None,
}
TRAINED = {"image": "own:1", "recipe": RECIPE, "source_dir": None}
VPC = {"vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}}
ON_CLUSTER = {"instance_type": "ml.g5.xlarge", "backend": "hyperpod"}
NEAR = {"level": "topology.k8s.aws/network-node-layer-1"}
BOTH = {"priority": "a", "topology": NEAR}
TRAINING_PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/one"


def capped(**rung: object) -> dict[str, Any]:
    """A rung with a cap, before one without."""
    ladder = [{"place": "oregon", "price_cap": 20, **rung}, {"place": "home", "spot": True}]
    return {"instance_type": "ml.m5.xlarge", "places": {"ladder": ladder}}


REMARKS: list[tuple[str, list[dict[str, Any]], list[dict[str, Any]]]] = [
    ("`muster plan --deployed`", [{"model": {"run": "one"}}], [{"model": {"run": "one", "s3": "s3://bucket/x/"}}]),
    ("an upper bound, with ml.p5.48xlarge", [{"instance_preferences": PREFERENCES}], [VPC]),
    ("security groups sg-1 admit all traffic", [{**VPC, "overrides": {"1": {"instance_count": 2}}}], [VPC]),
    ("with what it has saved below /opt/ml/checkpoints", [PROGRAM], [TRAINED]),
    ("with what it has saved below /saved", [{**PROGRAM, "checkpoint_config": {"local_path": "/saved"}}], []),
    ("gets no keyword arguments from the recipe", [TRAINED], [{**TRAINED, "recipe": {**RECIPE, "kwargs": "config"}}]),
    ("hyperpod.priority and hyperpod.topology have", [{**ON_CLUSTER, "hyperpod": BOTH}], []),
    (
        "no effect",
        [{**ON_CLUSTER, "hyperpod": {"priority": "a"}}],
        [{**ON_CLUSTER, "hyperpod": {**BOTH, "queue": "b"}}],
    ),
    (
        "set checkpoints.s3_every, too",
        [{"checkpoints": {"memory_every": 10}}],
        [{"checkpoints": {"memory_every": 10, "s3_every": 20}}, {**ON_CLUSTER, "checkpoints": {"memory_every": 10}}],
    ),
    (
        "price_cap of rung 0 (oregon) is compared with the price on demand that AWS lists, and not with that of spot",
        [capped(spot=True), {**capped(), "spot": True}],
        [capped(), {**capped(spot=False), "spot": True}, capped(training_plan=TRAINING_PLAN)],
    ),
    (
        "and not with that of its training plan",
        [capped(training_plan=TRAINING_PLAN), {**capped(training_plan=TRAINING_PLAN), "spot": True}],
        [capped(spot=True)],
    ),
]


def test_what_a_user_should_know_is_a_remark() -> None:
    for words, said, unsaid in REMARKS:
        assert [fields for fields in said if words not in remarks(**fields)] == [], words
        assert [fields for fields in unsaid if words in remarks(**fields)] == [], words
    assert remarks(instance_type="ml.m5.xlarge") == remarks(**VPC) == ""


MIXED: dict[str, Any] = {
    "name": "mixed",
    "replicas": 3,
    "trainer": "m:f",
    "image": "image:1",
    "instance_type": "ml.g5.xlarge",
    "overrides": {
        "1-2": {
            "backend": "hyperpod",
            "hyperpod": {
                "cluster": "ml-cluster",
                "namespace": "team-a",
                "queue": "team-a-queue",
                "priority": "high",
                "spares": 1,
                "elastic": {"min_instances": 1, "max_instances": 4},
            },
        }
    },
}


def test_a_mixed_run_shows_its_training_jobs_and_its_jobs_on_clusters() -> None:
    dry = dry_run(parse_spec(MIXED))
    text = dry_run_text(dry, requests=True)
    assert text.startswith(
        "1 training job: muster-mixed-r0-a1.\n2 jobs on clusters: muster-mixed-r1-a1 to muster-mixed-r2-a1.\n"
    )
    assert "ml.g5.xlarge for training job usage: 1\n" in text
    assert "  ml.g5.xlarge of ml-cluster, in queue team-a-queue: 4 (up to 10)\n" in text
    assert "are paid for whether a job runs on them or not" in text
    place = (
        "on the cluster ml-cluster (namespace team-a, queue team-a-queue, priority high, 1 spare, 1 to 4 instances):"
    )
    assert f"The job of rank 1 (ranks 1-2 differ in the rank only), 1 instance with one process per GPU {place}" in text
    assert [request.get("kind") for request in dry.requests] == [None, "HyperPodPyTorchJob", "HyperPodPyTorchJob"]
    # The program that starts Muster in a pod would fill the screen.
    assert ("muster plan --json" in text, "import hashlib" in text) == (True, False)
    assert "import hashlib" in dry.to_json().decode()
    # One instance of a training job, and of each replica on the cluster at most four and the spare.
    assert dry.cost.per_hour == pytest.approx((1 + 2 * 5) * 1.408)


def test_a_generated_name_is_new_and_leaves_room_for_continuations_and_is_lower_case_on_a_cluster() -> None:
    long = parse_spec({"replicas": 2, "trainer": "my.very_long_module_name_that_never_ends_at_all:train"})
    names = {new_run_name(long) for _ in range(50)}
    assert len(names) >= 49  # of 29 million
    assert {numbered_run_name(name, 99).removeprefix(name) for name in names} == {"-x99"}
    spec = parse_spec({**MIXED, "name": None, "trainer": "My.Trainer:f"})
    assert new_run_name(spec).startswith("my-trainer-20")
    assert new_run_name(spec.model_copy(update={"overrides": {}})).startswith("My-Trainer-20")


def test_of_data_that_neither_the_caller_nor_the_replicas_may_read_one_note_says_what_to_do(
    harness: ControlHarness,
) -> None:
    def answer(**_: object) -> tuple[SimpleNamespace, dict[str, Any]]:
        return SimpleNamespace(status_code=403), {"Error": {"Code": "AccessDenied", "Message": "no"}}

    cloud = client_of(harness.cloud)
    client: Any = boto3.client("s3", aws_access_key_id="a", aws_secret_access_key="b")
    vars(cloud.connection)["s3"] = client
    client.meta.events.register_first("before-call.s3.ListObjectsV2", answer)
    source = {"s3_data_source": {"s3_data_type": "S3Prefix", "s3_uri": "s3://team/data/"}}
    channels = [{"channel_name": "train", "data_source": source}]
    spec = parse_spec({"replicas": 1, "trainer": "m:f", "input_data_config": channels})
    assert "s3://team/data/ has data: " in check_channels(cloud, spec).remarks[0]
    access = ReplicaAccess(data=[])
    assert check_channels(cloud, spec, access.denied(spec, "bucket")) == CheckFindings()
    [told] = access.remarks(spec, "bucket")
    assert 'data = ["s3://team/data/"]' in told
