import base64
import hashlib
import html
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.client.runs.runs_page import render_runs, runs_page
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.job_details import FinalMetric, JobDetails, JobProgress, PoolState, RuleVerdict, WarmPool
from muster.contract.run.run_cost import usd_so_far
from muster.contract.spec.spec_reader import parse_spec
from muster.report.figures import bytes_text, duration
from muster.report.html_file import script_data
from muster.report.links import console_links
from muster.report.page_contents import make_page
from muster.report.page_html import page_json, render
from muster.report.page_model import Page, PageInput, ReplicaView
from muster.report.read_back import kept_pools, progress_words, ranks_text, read_back_facts
from tests.support.sample_runs import STACK, sample_runs

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


def verdict(run: PageInput, state: str, reason: str = "", **fields: Any) -> str:
    return make_page(replace(run, state=state, reason=reason, parameters_identical=None, **fields)).verdict


def test_the_cause_of_a_failed_run_is_said_once_and_before_its_victims(small: PageInput) -> None:
    def failed(view: ReplicaView, minute: int, cause: FailureClass, reason: str) -> ReplicaView:
        given = {"ended_at": f"2026-05-04T03:{minute}:00.000Z", "failure_class": cause, "reason": reason}
        return view.model_copy(update={"attempts": (attempt(status="Failed", **given),)})

    gone = FailureClass.INFRASTRUCTURE, "AlgorithmError: [rendezvous] no quorum, exit code: 69"
    broken = FailureClass.USER_CODE, "AlgorithmError: no `data`, exit code: 1"
    replicas = [failed(view, *((20, *broken) if view.rank == 2 else (25, *gone))) for view in small.replicas]
    reason = "0 of 4 replicas succeeded; 4 were needed; replica 2: no `data`"
    page = make_page(replace(small, state="failed", reason=reason, replicas=replicas, parameters_identical=None))
    assert page.verdict == "The run failed: 0 of 4 replicas succeeded; 4 were needed."
    assert page.problems == (
        "Replica 2: user-code: no `data`. `muster logs sample --rank 2` shows its log.",
        "Replicas 0, 1, 3: infrastructure: [rendezvous] no quorum. `muster logs sample --rank 0` shows its log.",
    )
    assert b"no <code>data</code>. <code>muster logs sample --rank 2</code> shows its log." in render(page)


def test_the_verdict_is_words_in_every_state(small: PageInput) -> None:
    assert verdict(small, "running").startswith("The run is in progress: 0 of 4 replicas have a job, 20 rounds.")
    assert verdict(small, "stopping").startswith("The run is being stopped")
    failed = "The run failed: out of memory. 2 attempts were rerun (quota, infrastructure)."
    assert verdict(small, "failed", "out of memory.") == failed
    assert verdict(small, "stopped").startswith("The run was stopped.")
    assert "do not hold the same parameters" in make_page(replace(small, parameters_identical=False)).verdict
    waits = attempt(attempt=2, secondary=NOT_CREATED, launched_at=None, failure_class=FailureClass.QUOTA)
    replicas = [
        ReplicaView(rank=0, state="Downloading", attempts=(attempt(ended_at=None),)),
        ReplicaView(rank=1, state="waiting for quota", attempts=(attempt(failure_class=FailureClass.CAPACITY), waits)),
        ReplicaView(rank=2, state="not launched"),
    ]
    waiting = "The run is in progress: 1 of 3 replicas have a job, 1 waits for quota, 20 rounds."
    assert verdict(small, "running", replicas=replicas).startswith(waiting)


def test_a_page_says_who_finished_early(small: PageInput) -> None:
    words = "finished in round 3: its trainer returned"
    replicas = [ReplicaView(rank=rank, state="succeeded", finished_early=words if rank else None) for rank in range(6)]
    named = "; ".join(f"replica {rank} {words}" for rank in (1, 2, 3))
    assert f" Finished early: {named} and 2 more." in verdict(small, "running", replicas=replicas)
    settled = make_page(replace(small, state="succeeded", replicas=replicas, parameters_identical=True)).verdict
    assert "All replicas that trained to the last round" in settled
    assert "Finished early" not in settled, "the result's reason says it"


def test_durations_sizes_and_links_are_short_and_lead_to_the_partition() -> None:
    durations = {
        7.54: "7.54 s",
        59.96: "1 min",
        60: "1 min",
        67: "1 min 7 s",
        7_500: "2 h 5 min",
        273_600: "3 d 4 h",
        -1: "0 s",
    }
    assert {seconds: duration(seconds) for seconds in durations} == durations
    sizes = {0: "0 bytes", 999: "999 bytes", 1_000: "1 kB", 999_999: "1 MB", 13_476_839_424: "13.5 GB"}
    assert {count: bytes_text(count) for count in sizes} == sizes
    for partition, region, domain in (
        ("aws", "eu-west-1", "console.aws.amazon.com"),
        ("aws-cn", "cn-north-1", "console.amazonaws.cn"),
        ("aws-us-gov", "us-gov-west-1", "console.amazonaws-us-gov.com"),
    ):
        arn = f"arn:{partition}:states:{region}:123456789012:execution:Runs:run"
        links = console_links(arn, "muster-run-r")
        assert links.execution.startswith(f"https://{region}.{domain}/states/")
        assert links.execution.endswith(arn)
        assert links.run_logs.endswith("TrainingJobs$3FlogStreamNameFilter$3Dmuster-run-r")


def test_a_type_without_a_price_is_named_instead_of_left_out_unseen(small: PageInput) -> None:
    replica = ReplicaView(rank=0, state="failed", attempts=(attempt(instance_type="ml.new.large"),))
    [cost] = [fact for fact in make_page(replace(small, replicas=[replica])).facts if fact.label == "Cost"]
    assert cost.value == "≤ $0.0000"
    assert "without ml.new.large, which has no price in the table" in cost.note


SECRET = "swordfish"
RULE = {"rule_configuration_name": "r", "rule_evaluator_image": "i:1", "rule_parameters": {"TOKEN": SECRET}}
PRIVATE: list[dict[str, Any]] = [
    {"environment": {"TOKEN": SECRET}},
    {"overrides": {"0": {"environment": {"TOKEN": SECRET}}}},
    {"hyper_parameters": {"TOKEN": SECRET}},
    {"kwargs": {"TOKEN": SECRET, "deep": {"TOKEN": [SECRET]}}},
    {"trainer": None, "entrypoint": ["TOKEN", SECRET], "arguments": ["TOKEN", SECRET]},
    {"debug_rule_configurations": [RULE]},
    {"debug_hook_config": {"s3_output_path": "s3://bucket/debug", "hook_parameters": {"TOKEN": SECRET}}},
    {"profiler_config": {"profiling_parameters": {"TOKEN": SECRET}}},
]


def page_of_spec(small: PageInput, **fields: Any) -> Page:
    given = {"replicas": 1, "trainer": "package.module:train", "image": "image:1", **fields}
    spec = parse_spec({key: value for key, value in given.items() if value is not None})
    return make_page(replace(small, plan=small.plan.model_copy(update={"spec": spec})))


def test_names_and_types_but_no_values_that_may_be_secret_are_in_the_page(small: PageInput) -> None:
    for fields in PRIVATE:
        page = page_of_spec(small, **fields)
        body, plan = render(page).decode() + page_json(page), json.dumps(page.plan)
        assert SECRET not in body, fields
        assert "not shown, because they may be secret" in body, fields
        assert "TOKEN" in plan or "(a list of 2 values, not shown)" in plan, fields


def test_a_file_allows_its_own_scripts_and_no_network_and_no_text_of_a_run_becomes_markup(small: PageInput) -> None:
    evil = "</script><!-- <script> ]]> & \u2028"
    page = make_page(replace(small, reason=evil))
    runs = runs_page(STACK, [sample_runs(2)[1].model_copy(update={"run": evil})], more=False)
    for file in (render(page), render_runs(runs)):
        text = file.decode()
        [policy] = map(html.unescape, re.findall(r'Content-Security-Policy" content="([^"]*)"', text))
        scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        assert re.findall(r"script-src (.*?);", policy)[0].split() == [f"'sha256-{digest}'" for digest in digests]
        assert policy.startswith("default-src 'none'")
        assert ("unsafe" in policy, "connect-src" in policy) == (False, False)
        assert not re.search(r'(?:src|href)="(?!#)', text.split("<script", maxsplit=1)[0])
        assert "<!-- <script>" not in text
    live = html.unescape(render(page, live=True).decode())
    assert "connect-src 'self'" in live
    block = script_data(page_json(page))
    assert not re.search(r"[<>&]", block)
    assert evil[:9] in json.loads(block)["verdict"]


def test_a_run_that_has_ended_leads_to_its_page_and_a_thousand_are_less_than_a_megabyte() -> None:
    running, ended = runs_page(STACK, sample_runs(2), more=False).runs
    console = "https://us-west-2.console.aws.amazon.com"
    arn = "arn:aws:states:us-west-2:123456789012:execution:Muster:gpt-0000"
    assert running.link == f"{console}/states/home?region=us-west-2#/v2/executions/details/{arn}"
    place = f"region=us-west-2&prefix=control/{ended.run}/report.html"
    assert ended.link == f"{console}/s3/object/muster-bucket?{place}"
    assert len(render_runs(runs_page(STACK, sample_runs(1_000), more=True))) < 1_000_000


def test_long_reasons_of_many_replicas_are_cut_and_the_page_stays_small() -> None:
    page = make_page(sample_run(2_000, 5, reason="x" * 1_024))
    assert len(render(page)) < 1_000_000
    reasons = [one.reason for replica in page.replicas for one in replica.attempts if one.reason[:1] == "x"]
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


NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def reported(details: JobDetails | None, number: int = 1) -> Attempt:
    return Attempt(
        attempt=number, job=f"job-a{number}", instance_type="ml.g5.xlarge", billable_seconds=100, details=details
    )


def pool(minutes: int, state: PoolState = PoolState.AVAILABLE) -> JobDetails:
    return JobDetails(warm_pool=WarmPool(state=state, until=timestamps.text(NOW + timedelta(minutes=minutes))))


def test_what_goes_between_places_is_shown_with_its_price_and_in_the_cost(small: PageInput) -> None:
    rounds = small.rounds.model_copy(update={"crossed_bytes": 3.5e12})
    before, after = (
        {one.label: one for one in make_page(page).facts} for page in (small, replace(small, rounds=rounds))
    )
    assert "Between places" not in before
    assert (after["Between places"].value, after["Between places"].note) == ("3.5 TB", "about $70.00")
    label = next(name for name in before if name.startswith("Cost"))
    costs = [float(facts[label].value.removeprefix("≤ $").replace(",", "")) for facts in (before, after)]
    assert costs[1] - costs[0] == pytest.approx(70, abs=0.01)
    assert "and what went between places" in after[label].note


def facts(*attempts: tuple[Attempt, ...]) -> dict[str, tuple[str, str]]:
    views = [ReplicaView(rank=rank, state="succeeded", attempts=found) for rank, found in enumerate(attempts)]
    return {fact.label: (fact.value, fact.note) for fact in read_back_facts(views, SHIPPED_PRICES, NOW)}


def test_metrics_savings_and_pools_are_lines_of_the_summary() -> None:
    assert facts((reported(None),), (reported(JobDetails(training_seconds=100)),)) == {}
    metrics = (FinalMetric(name="loss", value=0.5),)
    found = facts(
        (reported(JobDetails(training_seconds=400, metrics=metrics)),), (reported(pool(30)),), (reported(pool(20)),)
    )
    assert found["Final metrics"] == ("loss 0.5", "as SageMaker read them from the logs")
    assert found["Spot"] == ("75% saved", "100 s billed of 400 s: 75% saved, about $0.1173 at on-demand prices")
    value, note = found["Warm pools"]
    assert value == "2"
    assert note.startswith(
        "2 ml.g5.xlarge are kept warm until 12:30 UTC and billed: $2.82 per hour. To end one now: aws "
    )


def test_rules_are_one_line_whose_issues_come_first() -> None:
    def verdict(rule: str, status: str) -> RuleVerdict:
        return RuleVerdict(tool="debugger", rule=rule, status=status)

    quiet = tuple(verdict(f"R{number}", "NoIssuesFound") for number in range(5))
    found = facts((reported(JobDetails(rules=(*quiet, verdict("Overfit", "IssuesFound")))),))
    value, note = found["Rules"]
    assert value == "NoIssuesFound ×5, IssuesFound"
    assert note.startswith("debugger rule Overfit: IssuesFound in replica 0; debugger rule R0: NoIssuesFound")
    assert note.endswith("; and 3 more")


def test_a_pool_counts_until_its_end_and_only_that_of_the_last_attempt() -> None:
    assert kept_pools({0: [reported(pool(-1))]}, NOW, SHIPPED_PRICES) == ()
    assert kept_pools({0: [reported(pool(5, PoolState.REUSED))]}, NOW, SHIPPED_PRICES) == ()
    assert kept_pools({0: [reported(pool(5)), reported(None, 2)]}, NOW, SHIPPED_PRICES) == ()
    assert [kept.rank for kept in kept_pools({3: [reported(None), reported(pool(5), 2)]}, NOW, SHIPPED_PRICES)] == [3]


def test_progress_and_many_ranks_in_words() -> None:
    assert progress_words(JobProgress(step=3, steps=10, epoch=1)) == "step 3 of 10, epoch 1"
    assert ranks_text([4]) == "replica 4"
    assert ranks_text(list(range(10))) == "replicas 0, 1, 2 and 7 more"
