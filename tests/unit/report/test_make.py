from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.spending import usd_so_far
from muster.contract.spec.spec_reader import parse_spec
from muster.report.html_file import script_data
from muster.report.links import console_links
from muster.report.page_contents import PageInput, make_page
from muster.report.page_html import page_json, render
from muster.report.page_model import ReplicaView
from muster.report.words import bytes_text, duration
from tests.support.mixed_run import CLUSTER, mixed_run

ROOT = Path(__file__).parents[3]
PRICES = {"ml.g5.xlarge": 3.6}


@pytest.fixture(scope="module")
def small() -> PageInput:
    return sample_run(4, 20, reason="InternalServerError: again.")


def attempt(**fields: object) -> Attempt:
    values: dict[str, object] = {
        "attempt": 1,
        "job": "job",
        "instance_type": "ml.g5.xlarge",
        "launched_at": "2026-05-04T03:00:00.000Z",
        "ended_at": "2026-05-04T03:10:00.000Z",
    }
    return Attempt.model_validate({**values, **fields})


def test_an_attempt_costs_from_when_it_has_an_instance() -> None:
    now = "2026-05-04T04:00:00Z"
    assert usd_so_far(attempt(), 1, now, PRICES) == pytest.approx(0.6)
    assert usd_so_far(attempt(), 2, now, PRICES) == pytest.approx(1.2)
    # Before SageMaker reports a status there may be no job.
    assert usd_so_far(attempt(ended_at=None), 1, now, PRICES) == 0
    assert usd_so_far(attempt(ended_at=None, status="InProgress"), 1, now, PRICES) == pytest.approx(3.6)
    history = tuple(
        Transition(at=f"2026-05-04T03:0{minute}:00Z", secondary=name)
        for minute, name in ((0, "Starting"), (4, "Downloading"), (5, "Training"))
    )
    assert usd_so_far(attempt(history=history), 1, now, PRICES) == pytest.approx(0.36)
    assert usd_so_far(attempt(history=history, ended_at=None), 1, now, PRICES) == pytest.approx(3.36)
    assert usd_so_far(attempt(ended_at=None, secondary="Pending"), 1, now, PRICES) == 0
    assert usd_so_far(attempt(secondary=NOT_CREATED), 1, now, PRICES) == 0
    assert usd_so_far(attempt(instance_type="ml.new.large"), 1, now, PRICES) is None


def test_each_attempt_costs_by_its_own_type_for_all_its_instances(small: PageInput) -> None:
    spec = small.plan.spec.model_copy(update={"instance_count": 2})
    refused = attempt(secondary=NOT_CREATED, failure_class=FailureClass.CAPACITY)
    attempts = (refused, attempt(attempt=2), attempt(attempt=3, instance_type="ml.m5.large"))
    replica = ReplicaView(rank=0, state="succeeded", attempts=attempts)
    plan = small.plan.model_copy(update={"spec": spec})
    [shown] = make_page(replace(small, plan=plan, replicas=[replica])).replicas
    hourly = SHIPPED_PRICES.usd_per_hour
    expected = (0, *(round(hourly[name] * 2 / 6, 4) for name in ("ml.g5.xlarge", "ml.m5.large")))
    assert shown.usd == expected


def test_the_verdict_is_words_in_every_state(small: PageInput) -> None:
    said = {
        state: make_page(replace(small, state=state, reason=reason, parameters_identical=None)).verdict
        for state, reason in (
            ("running", ""),
            ("stopping", ""),
            ("failed", "out of memory."),
            ("stopped", ""),
        )
    }
    assert said["running"].startswith("The run is in progress: 0 of 4 replicas have a job, 20 rounds.")
    assert said["stopping"].startswith("The run is being stopped; its jobs may still save their work.")
    assert said["failed"] == "The run failed: out of memory. 2 attempts were rerun (quota, infrastructure)."
    assert said["stopped"].startswith("The run was stopped.")
    assert "do not hold the same parameters" in make_page(replace(small, parameters_identical=False)).verdict


def test_a_run_in_progress_shows_what_its_replicas_wait_for(small: PageInput) -> None:
    waits = attempt(attempt=2, secondary=NOT_CREATED, launched_at=None, failure_class=FailureClass.QUOTA)
    replicas = [
        ReplicaView(rank=0, state="Downloading", attempts=(attempt(ended_at=None),)),
        ReplicaView(rank=1, state="waiting for quota", attempts=(attempt(failure_class=FailureClass.CAPACITY), waits)),
        ReplicaView(rank=2, state="not launched"),
    ]
    page = make_page(replace(small, state="running", reason="", replicas=replicas, parameters_identical=None))
    assert page.verdict.startswith("The run is in progress: 1 of 3 replicas have a job, 1 waits for quota, 20 rounds.")


def test_a_page_says_who_finished_early(small: PageInput) -> None:
    words = "finished in round 3: its trainer returned"
    replicas = [ReplicaView(rank=rank, state="succeeded", finished_early=words if rank else None) for rank in range(6)]
    running = make_page(replace(small, state="running", reason="", replicas=replicas, parameters_identical=None))
    named = "; ".join(f"replica {rank} {words}" for rank in (1, 2, 3))
    assert f" Finished early: {named} and 2 more." in running.verdict
    settled = make_page(replace(small, state="succeeded", replicas=replicas, parameters_identical=True))
    assert settled.verdict.endswith("All replicas that trained to the last round hold the same parameters.")
    assert "Finished early" not in settled.verdict, "the result's reason says it"


def test_the_limits_of_a_run_stand_beside_what_they_limit(small: PageInput) -> None:
    spec = small.plan.spec.model_copy(update={"deadline_seconds": 7_200, "cost_ceiling_usd": 250.0})
    page = make_page(replace(small, plan=small.plan.model_copy(update={"spec": spec})))
    notes = {fact.label: fact.note for fact in page.facts}
    assert notes["Time"] == "of at most 2 h"
    assert notes["Cost"].endswith("; no reruns after $250.00")


def test_a_type_without_a_price_is_named_instead_of_left_out_unseen(small: PageInput) -> None:
    replica = ReplicaView(rank=0, state="failed", attempts=(attempt(instance_type="ml.new.large"),))
    [cost] = [fact for fact in make_page(replace(small, replicas=[replica])).facts if fact.label == "Cost"]
    assert cost.value == "≤ $0.0000"
    assert "without ml.new.large, which has no price in the table" in cost.note


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(7.54, "7.54 s"), (60, "1 min"), (67, "1 min 7 s"), (7_500, "2 h 5 min"), (273_600, "3 d 4 h"), (-1, "0 s")],
)
def test_durations_are_short(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("partition", "region", "begins"),
    [
        ("aws", "eu-west-1", "https://eu-west-1.console.aws.amazon.com/states/"),
        ("aws-cn", "cn-north-1", "https://cn-north-1.console.amazonaws.cn/states/"),
        ("aws-us-gov", "us-gov-west-1", "https://us-gov-west-1.console.amazonaws-us-gov.com/states/"),
    ],
)
def test_links_lead_to_the_console_of_the_partition(partition: str, region: str, begins: str) -> None:
    arn = f"arn:{partition}:states:{region}:123456789012:execution:Runs:run"
    links = console_links(arn, "muster-run-r")
    assert links.execution.startswith(begins)
    assert links.execution.endswith(arn)
    assert links.run_logs.endswith("TrainingJobs$3FlogStreamNameFilter$3Dmuster-run-r")


SECRET = "swordfish"
PRIVATE: dict[str, dict[str, Any]] = {
    "environment": {"environment": {"TOKEN": SECRET}},
    "overrides": {"overrides": {"0": {"environment": {"TOKEN": SECRET}}}},
    "hyper_parameters": {"hyper_parameters": {"TOKEN": SECRET}},
    "kwargs": {"kwargs": {"TOKEN": SECRET, "deep": {"TOKEN": [SECRET]}}},
    "arguments": {"trainer": None, "entrypoint": ["TOKEN", SECRET], "arguments": ["TOKEN", SECRET]},
    "rule_parameters": {
        "debug_rule_configurations": [
            {"rule_configuration_name": "r", "rule_evaluator_image": "i:1", "rule_parameters": {"TOKEN": SECRET}}
        ]
    },
    "hook_parameters": {
        "debug_hook_config": {"s3_output_path": "s3://bucket/debug", "hook_parameters": {"TOKEN": SECRET}}
    },
    "profiling_parameters": {"profiler_config": {"profiling_parameters": {"TOKEN": SECRET}}},
}


@pytest.mark.parametrize("fields", PRIVATE.values(), ids=PRIVATE)
def test_names_and_types_but_no_values_that_may_be_secret_are_in_the_page(
    small: PageInput, fields: dict[str, Any]
) -> None:
    given = {"replicas": 1, "trainer": "package.module:train", "image": "image:1", **fields}
    spec = parse_spec({key: value for key, value in given.items() if value is not None})
    page = make_page(replace(small, plan=small.plan.model_copy(update={"spec": spec})))
    body = render(page).decode()
    assert SECRET not in body
    assert "not shown, because they may be secret" in body
    assert "TOKEN" in json.dumps(page.plan) or "(a list of 2 values, not shown)" in json.dumps(page.plan)


def test_of_a_private_mapping_each_name_has_its_type(small: PageInput) -> None:
    kwargs = {"lr": 0.1, "steps": 7, "name": "a", "deep": {"a": 1}, "tags": [], "warm": True, "none": None}
    spec = parse_spec({"replicas": 1, "trainer": "package.module:train", "kwargs": kwargs})
    page = make_page(replace(small, plan=small.plan.model_copy(update={"spec": spec})))
    assert page.plan["spec"]["kwargs"] == {  # type: ignore[index, call-overload]
        "lr": "(a number, not shown)",
        "steps": "(a whole number, not shown)",
        "name": "(text, not shown)",
        "deep": "(a mapping of 1 value, not shown)",
        "tags": "(an empty list, not shown)",
        "warm": "(true or false, not shown)",
        "none": "(no value, not shown)",
    }


def test_nothing_of_a_run_can_end_the_data_block(small: PageInput) -> None:
    page = make_page(replace(small, reason="</script><!-- <script> ]]> & \u2028"))
    block = script_data(page_json(page))
    assert not re.search(r"[<>&]", block)
    assert json.loads(block) == json.loads(page_json(page))
    assert "</script><!--" in json.loads(block)["verdict"]


def test_the_policy_allows_the_page_s_own_scripts_and_no_network(small: PageInput) -> None:
    still, live = (render(make_page(small), live=live).decode() for live in (False, True))
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', still)
    assert policy.startswith("default-src &#x27;none&#x27;; script-src &#x27;sha256-")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    assert "connect-src &#x27;self&#x27;" in live
    assert not re.search(r'(?:src|href)="(?!#)', still.split('<script type="application/json"')[0])


def test_long_reasons_of_many_replicas_are_cut_and_the_page_stays_small() -> None:
    page = render(make_page(sample_run(1_000, 500, reason="x" * 1_024)))
    assert len(page) < 3_000_000
    many = sample_run(10_000, 1, reason="x" * 1_024)
    reasons = [one.reason for replica in make_page(many).replicas for one in replica.attempts if one.reason[:1] == "x"]
    assert {len(reason) for reason in reasons} == {120}
    assert reasons[0].endswith("x…")


def test_the_chart_library_is_the_pinned_one() -> None:
    package = ROOT / "node_modules" / "uplot"
    assets = ROOT / "muster" / "report" / "assets"
    for name, source in (
        ("uplot.min.js", "dist/uPlot.iife.min.js"),
        ("uplot.min.css", "dist/uPlot.min.css"),
        ("uplot.LICENSE", "LICENSE"),
    ):
        assert (assets / name).read_bytes() == (package / source).read_bytes(), f"copy {source} of the pinned package"


def test_an_attempt_whose_type_is_not_known_yet_costs_at_most_the_dearest_preference(small: PageInput) -> None:
    fields = {"instance_preferences": [{"instance_type": name} for name in ("ml.g5.xlarge", "ml.p5.48xlarge")]}
    spec = parse_spec({"replicas": 2, "trainer": "m:f", "image": "image:1", **fields})
    attempts = (attempt(instance_type=None), attempt(instance_type="ml.g5.xlarge"))
    replicas = [ReplicaView(rank=rank, state="training", attempts=(one,)) for rank, one in enumerate(attempts)]
    page = make_page(replace(small, plan=small.plan.model_copy(update={"spec": spec}), replicas=replicas))
    assert [usd for one in page.replicas for usd in one.usd] == pytest.approx([63.296 / 6, 1.408 / 6], abs=1e-4)
    (cost,) = (fact for fact in page.facts if fact.label == "Cost")
    assert cost.value == "≤ $10.78"
    assert "; 1 at the dearest of its types, until SageMaker names the chosen one" in cost.note


def test_the_summary_names_the_model_or_why_there_is_none(small: PageInput) -> None:
    def shown(run: PageInput) -> list[tuple[str, str]]:
        return [(fact.value, fact.note) for fact in make_page(run).facts if fact.label == "Model"]

    where = "s3://muster-sample/output/sample/model/"
    assert shown(small) == [("13.5 GB", f"after round 20 in 5 files, loss 0.402; {where}")]
    assert shown(replace(small, model=None, model_problem="it went wrong")) == [("none", "it went wrong")]
    assert shown(replace(small, model=None)) == []


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (999_999, "1 MB"), (13_476_839_424, "13.5 GB")],
)
def test_sizes_have_three_digits(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_a_page_says_which_replicas_are_on_a_cluster_and_for_how_long_they_held_instances() -> None:
    page = make_page(mixed_run(8, 20))
    found = {fact.label: fact for fact in page.facts}
    assert found["Cluster"].value == CLUSTER
    assert found["Cluster"].note == "ml-cluster: ranks 4-7; the operator restarted 4 times"
    assert "are paid for whether a job runs or not" in found["Instance hours"].note
    assert float(found["Instance hours"].value) > 0
    assert page.links.cluster is not None
    assert page.links.cluster.endswith("/sagemaker/home?region=us-east-1#/cluster-management/{cluster}")
    assert page.links.cluster_logs is not None
    assert page.links.cluster_logs.endswith("logGroupNameFilter$3D$252Faws$252Fsagemaker$252FClusters$252F{cluster}")
    # Scaled to 2 and 4 instances, replica 5 costs more than replica 4, which was restarted.
    usd = [sum(filter(None, replica.usd)) for replica in page.replicas]
    assert usd[5] > 1.5 * usd[4]


def test_a_run_without_clusters_has_no_links_to_them(small: PageInput) -> None:
    page = make_page(small)
    assert page.links.cluster is None
    assert not {"Cluster", "Clusters", "Instance hours"} & {fact.label for fact in page.facts}
