from __future__ import annotations

from typing import Any

import pytest

from muster.client.cli.dry_run_text import dry_run_text
from muster.client.launch.dry_run import RankGroup, dry_run, unknown_types
from muster.client.launch.estimate import cost, quotas
from muster.client.sdk import new_run_name
from muster.contract.aws.prices import SHIPPED_PRICES, PriceTable
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

PRICES = PriceTable(
    as_of="2026-11-21",
    region="us-east-1",
    source="this test",
    usd_per_hour={"ml.m5.xlarge": 1.0, "ml.g5.xlarge": 2.0, "ml.p5.48xlarge": 50.0},
)


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


def test_the_arn_of_a_role_that_is_named_is_known_only_at_the_launch() -> None:
    dry = dry_run(parse_spec({"replicas": 1, "trainer": "m:f", "role_arn": "train"}))
    assert dry.requests[0]["RoleArn"] == "<arn-of-train>"


def test_a_model_that_only_the_stack_knows_is_a_remark() -> None:
    wanted = "the model of one is looked up in the stack; `muster plan --deployed` shows its channel"
    fields = {"replicas": 1, "trainer": "m:f"}
    assert wanted in dry_run(parse_spec({**fields, "model": {"run": "one"}})).remarks
    assert wanted not in dry_run(parse_spec({**fields, "model": {"run": "one", "s3": "s3://bucket/x/"}})).remarks


def test_a_cost_with_preferences_is_called_an_upper_bound() -> None:
    preferences = [{"instance_type": name} for name in ("ml.m5.xlarge", "ml.p5.48xlarge")]
    dry = dry_run(parse_spec({"replicas": 2, "trainer": "m:f", "instance_preferences": preferences}))
    bound = "SageMaker chooses among ml.m5.xlarge, ml.p5.48xlarge: the cost is an upper bound, with ml.p5.48xlarge"
    assert bound in dry.remarks
    assert dry_run(parse_spec({"replicas": 2, "trainer": "m:f", "instance_type": "ml.m5.xlarge"})).remarks == ()


def test_a_replica_of_several_instances_in_a_vpc_needs_its_security_groups_open_to_themselves() -> None:
    fields = {"replicas": 2, "trainer": "m:f", "vpc_config": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}}
    assert dry_run(parse_spec(fields)).remarks == ()
    (remark,) = dry_run(parse_spec({**fields, "overrides": {"1": {"instance_count": 2}}})).remarks
    assert "security groups sg-1 admit all traffic" in remark


def test_what_the_ranks_of_a_sweep_differ_in_is_a_table() -> None:
    sweep = {"kwargs.optimizer.lr": [0.1, 0.25], "kwargs.schedule": ["cosine", "linear"]}
    text = dry_run_text(dry_run(parse_spec({"replicas": 2, "trainer": "m:f", "sweep": sweep})))
    lines = ["  rank  lr    schedule", "     0  0.1   cosine", "     1  0.25  linear", "Quota needed:"]
    assert "\n".join(["Sweep: each replica trains by itself, with its own values:", *lines]) in text
    assert "(ranks 0-1 differ in the rank and the values of the sweep)" in text


def test_requests_that_differ_in_the_rank_only_are_shown_once() -> None:
    own = {"instance_type": "ml.g5.xlarge"}
    dry = dry_run(parse_spec({"replicas": 6, "trainer": "m:f", "overrides": {"1": own, "3-4": own, "5": {}}}))
    assert [group.ranks for group in dry.groups] == ["0,2", "1,3-4", "5"]
    text = dry_run_text(dry)
    assert "The request of rank 1 (ranks 1,3-4 differ in the rank only), 1 instance with one process per GPU:" in text
    assert text.count('"TrainingJobName"') == 3
    assert dry.groups[1] == RankGroup(ranks="1,3-4", instance_types=("ml.g5.xlarge",), instances=1, processes="auto")


def test_the_size_of_a_replica_is_shown() -> None:
    smaller = {"instance_count": 2, "processes": 1}
    fields = {"replicas": 3, "trainer": "m:f", "processes": 8, "overrides": {"1": smaller}}
    text = dry_run_text(dry_run(parse_spec(fields)))
    assert "(ranks 0,2 differ in the rank only), 1 instance with 8 processes:" in text
    assert "The request of rank 1, 2 instances with 1 process:" in text
    program = {"replicas": 1, "entrypoint": ["torchrun", "train.py"], "instance_count": 4}
    assert "The request of rank 0, 4 instances:" in dry_run_text(dry_run(parse_spec(program)))


def test_quota_is_named_as_service_quotas_names_it() -> None:
    assert needs() == {"ml.m5.xlarge for training job usage": (4, 0)}
    assert needs(spot=True) == {"ml.m5.xlarge for spot training job usage": (4, 0)}
    assert needs(keep_alive_period_in_seconds=60)["ml.m5.xlarge for training warm pool usage"] == (4, 0)
    several = {"instance_count": 4, "overrides": {"0": {"instance_count": 1}}}
    assert needs(**several) == {"ml.m5.xlarge for training job usage": (13, 0)}
    assert needs(**several, fallback_instance_types=["ml.g5.xlarge"])["ml.g5.xlarge for training job usage"] == (0, 13)


def test_fallbacks_want_quota_in_their_turn_and_preferences_at_once() -> None:
    on_demand = "{} for training job usage".format
    assert needs(fallback_instance_types=["ml.g5.xlarge"], overrides={"0": {"instance_type": "ml.g5.xlarge"}}) == {
        on_demand("ml.m5.xlarge"): (3, 0),
        on_demand("ml.g5.xlarge"): (1, 3),
    }
    preferences = [{"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.m5.xlarge"}]
    assert needs(instance_preferences=preferences) == {
        on_demand("ml.g5.xlarge"): (4, 0),
        on_demand("ml.m5.xlarge"): (4, 0),
    }


@pytest.mark.parametrize(
    ("fields", "per_hour", "attempt", "total"),
    [
        # By default: 20 reruns for spot, 5 for infrastructure, 1 for an unknown end.
        ({}, 4.0, 4.0, 4.0 * 27),
        ({"instance_count": 4, "overrides": {"0": {"instance_count": 1}}}, 13.0, 13.0, 13.0 * 27),
        ({"overrides": {"0-1": {"instance_type": "ml.p5.48xlarge"}}}, 102.0, 102.0, 102.0 * 27),
        ({"fallback_instance_types": ["ml.g5.xlarge"]}, 4.0, 8.0, 8.0 * 27),
        # SageMaker may choose the dearest.
        (
            {"instance_preferences": [{"instance_type": name} for name in ("ml.m5.xlarge", "ml.p5.48xlarge")]},
            *(200.0, 200.0, 200.0 * 27),
        ),
        ({"keep_alive_period_in_seconds": 1_800}, 4.0, 6.0, 6.0 * 27),
        ({"reruns": {"capacity": {"max_reruns": 900}, "spot": {"max_reruns": 0}}}, 4.0, 4.0, 4.0 * 7),
        ({"reruns": {"spot": {"max_reruns": 998}}}, 4.0, 4.0, 4.0 * 999),
        ({"rerun": {"on": ["failed"], "max": 2}}, 4.0, 4.0, 4.0 * 27 * 3),
    ],
)
def test_what_a_run_costs(fields: dict[str, object], per_hour: float, attempt: float, total: float) -> None:
    found = cost(ranks(max_runtime_seconds=3_600, **fields), PRICES)
    assert (found.per_hour, found.attempt_ceiling, found.ceiling) == pytest.approx((per_hour, attempt, total))


def test_a_type_without_a_price_makes_the_cost_unknown_and_is_named() -> None:
    found = cost(ranks(fallback_instance_types=["ml.new.xlarge"]), PRICES)
    assert (found.per_hour, found.ceiling, found.unpriced) == (None, None, ("ml.new.xlarge",))
    text = dry_run_text(dry_run(parse_spec({"replicas": 1, "trainer": "m:f", "instance_type": "ml.g55.xlarge"})))
    assert "has no ml.g55.xlarge" in text
    assert "Note: ml.g55.xlarge is not among the instance types that this release of Muster knows; did you mean" in text


def test_the_shipped_prices_are_of_types_that_exist_and_say_their_date() -> None:
    prices = SHIPPED_PRICES
    assert unknown_types(prices.usd_per_hour) == []
    assert all(price > 0 for price in prices.usd_per_hour.values())
    used = dry_run(parse_spec({"replicas": 1, "trainer": "m:f"})).cost
    assert (used.estimate, used.prices.as_of) == (True, prices.as_of)
    assert used.prices.usd_per_hour == {"ml.m5.xlarge": prices.usd_per_hour["ml.m5.xlarge"]}


def test_spot_and_on_demand_in_one_run_need_quota_of_both_kinds() -> None:
    found = needs(spot=True, instance_type="ml.g5.xlarge", overrides={"0": {"spot": False}})
    assert found == {
        "ml.g5.xlarge for spot training job usage": (3, 0),
        "ml.g5.xlarge for training job usage": (1, 0),
    }


def test_what_a_rerun_of_a_program_in_an_image_finds_again_is_said() -> None:
    recipe = {"name": "verl", "family": "llmft", "digest": "0" * 64, "sources": "1" * 64}
    document = {"replicas": 1, "image": "verl:1", "instance_type": "ml.p5.48xlarge", "recipe": recipe}
    words = "with what it has saved below "
    assert any(f"{words}/opt/ml/checkpoints" in one for one in dry_run(parse_spec(document)).remarks)
    own = {**document, "checkpoint_config": {"local_path": "/saved"}}
    assert any(f"{words}/saved" in one for one in dry_run(parse_spec(own)).remarks)
    trainer = {**document, "trainer": "a.b:c", "recipe": {**recipe, "family": "trainer"}, "source_dir": None}
    assert not any(words in one for one in dry_run(parse_spec(trainer)).remarks)


def test_a_recipe_beside_a_trainer_that_gets_nothing_of_it_is_said() -> None:
    recipe = {"name": "own", "family": "trainer", "digest": "0" * 64, "sources": "1" * 64}
    document = {"replicas": 2, "image": "own:1", "trainer": "a.b:c", "recipe": recipe, "source_dir": None}
    words = "the trainer gets no keyword arguments from the recipe"
    assert any(words in one for one in dry_run(parse_spec(document)).remarks)
    named = {**document, "recipe": {**recipe, "kwargs": "training_config"}}
    assert not any(words in one for one in dry_run(parse_spec(named)).remarks)


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
    text = dry_run_text(dry)
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
    # One instance of a training job, and of each replica on the cluster at most four and the spare.
    assert dry.cost.per_hour == pytest.approx((1 + 2 * 5) * 1.408)


def test_the_program_that_starts_muster_in_a_pod_fills_no_screen() -> None:
    dry = dry_run(parse_spec(MIXED))
    text = dry_run_text(dry)
    assert "muster plan --json shows it" in text
    assert "import hashlib" not in text
    assert "import hashlib" in dry.to_json().decode()


def test_a_priority_without_a_queue_is_remarked() -> None:
    def remarks(**hyperpod: object) -> str:
        fields = {"replicas": 2, "trainer": "m:f", "instance_type": "ml.g5.xlarge", "backend": "hyperpod"}
        return "\n".join(dry_run(parse_spec({**fields, "hyperpod": hyperpod})).remarks)

    place = {"level": "topology.k8s.aws/network-node-layer-1"}
    assert "hyperpod.priority has no effect without hyperpod.queue" in remarks(priority="high")
    assert "hyperpod.priority and hyperpod.topology have no effect" in remarks(priority="high", topology=place)
    assert "no effect" not in remarks(priority="high", topology=place, queue="team")
    assert "no effect" not in remarks()


def test_states_that_an_interruption_takes_along_are_remarked() -> None:
    def remarks(backend: str, **every: int) -> str:
        fields = {"replicas": 2, "trainer": "m:f", "instance_type": "ml.g5.xlarge", "backend": backend}
        return "\n".join(dry_run(parse_spec({**fields, "checkpoints": every})).remarks)

    assert "set checkpoints.s3_every, too" in remarks("training-job", memory_every=10)
    assert "s3_every" not in remarks("training-job", memory_every=10, s3_every=20)
    assert "s3_every" not in remarks("hyperpod", memory_every=10)


def test_a_generated_name_is_lower_case_on_a_cluster() -> None:
    spec = parse_spec({**MIXED, "name": None, "trainer": "My.Trainer:f"})
    assert new_run_name(spec).startswith("my-trainer-20")
    assert new_run_name(spec.model_copy(update={"overrides": {}})).startswith("My-Trainer-20")
