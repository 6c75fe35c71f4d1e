"""What people read of failed attempts and of what SageMaker reports: status, logs, result, events, refused names."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from muster.client.cli import inspect_commands
from muster.client.cli.option_groups import StackOptions
from muster.client.cli.plain_text import result_lines
from muster.client.client_errors import UnknownReplicaError
from muster.client.runs.failed_attempt import FailedAttempt, failed_attempts, failure_lines
from muster.client.runs.observer import Observer
from muster.client.runs.run_status import RunStatus
from muster.client.runs.status_text import ReplicaLine, read_back_lines
from muster.client.sdk import Run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.errors import RunNameTakenError
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_words import counted, failure_words
from muster.contract.run.result import Result
from muster.control.plan import make_plan
from muster.control.run_result import write_result
from tests.memory import throttle
from tests.memory.clock import VirtualClock
from tests.memory.cloud import MemoryCloud
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.memory_client import client_of, muster_of

WHY = "package.module:train failed: training.py:41: ValueError: no data"
BROKEN = f"AlgorithmError: {WHY}, exit code: 1"
PRICE = {"ml.g5.xlarge": 2.0}
SILENT = "AlgorithmError: , exit code: 1"
TRACEBACK = (
    "Traceback (most recent call last):",
    '  File "/opt/ml/code/main.py", line 7, in <module>',
    "KeyError: 'x'",
)


def read_back(status: RunStatus) -> list[str]:
    details = {one.rank: one.details for one in status.replicas if one.details is not None}
    return list(read_back_lines(details, status.saving, status.warm_pools))


def run_of(harness: ControlHarness, name: str = RUN) -> Run:
    return muster_of(harness.cloud).run(name)


def plan_with_price(harness: ControlHarness, **fields: Any) -> None:
    spec = {**SPEC, **fields, "usd_per_hour": PRICE}
    harness.executions.start(RUN, json.dumps(spec))
    make_plan(harness.plane, harness.deployment, harness.plan_request(**spec))


def fail(harness: ControlHarness, reason: str = BROKEN, *lines: str, rank: int = 0, attempt: int = 1) -> None:
    harness.arm(rank, attempt)
    job = harness.job(rank, attempt)
    harness.cloud.training.train(job)
    harness.cloud.logs.write(job, *lines)
    harness.cloud.training.fail(job, reason)
    harness.deliver()


def complete(harness: ControlHarness, rank: int = 0, **described: Any) -> None:
    harness.arm(rank)
    harness.cloud.training.describe_with(harness.job(rank), **described)
    harness.cloud.training.complete(harness.job(rank))
    harness.deliver()


def settled(harness: ControlHarness) -> Result:
    return write_result(harness.plane.runs.require(RUN), budget())


# --- why --------------------------------------------------------------------------------------------


def test_a_failure_names_the_file_and_the_line_before_anything_of_sagemaker_s() -> None:
    for reason, lines, words in (
        (BROKEN, (), WHY),
        (SILENT, TRACEBACK, "main.py:7: KeyError: 'x'"),
        ("AlgorithmError: ExitCode 1", TRACEBACK, "main.py:7: KeyError: 'x'"),
        (SILENT, ("Killed",), "exited with code 1 and wrote no reason"),
        ("AlgorithmError: , exit code: 139", (), "ended by SIGSEGV (exit code 139) and wrote no reason"),
        ("InternalServerError: again", TRACEBACK, "InternalServerError: again"),
        ("", (), ""),
    ):
        assert failure_words(Attempt(attempt=1, job="j", reason=reason, last_lines=lines)) == words
    assert counted(["spot", *["infrastructure"] * 5]) == "infrastructure ×5, spot"


def test_a_running_run_shows_what_a_failed_attempt_wrote_last_and_the_command_that_shows_more(
    harness: ControlHarness,
) -> None:
    harness.plan(replicas=2, environment={"TOKEN": "hf_0123456789"}, on_replica_failure="continue", min_replicas=1)
    fail(harness, BROKEN, "loading", "hf_0123456789", *TRACEBACK, rank=1)
    [failure] = run_of(harness).failures()
    assert failure.last_lines == ("loading", "(TOKEN, not shown)", *TRACEBACK)
    shown = list(failure_lines([failure]))
    assert shown[0] == f"replica 1 attempt 1: user-code: {WHY}"
    assert shown[-1] == f"  more: muster logs {RUN} --rank 1 --attempt 1"


def test_of_failures_with_the_same_words_one_shows_its_lines() -> None:
    same = [
        FailedAttempt(
            rank=rank, attempt=1, failure_class=FailureClass.USER_CODE, words="w", last_lines=("a",), logs_command="c"
        )
        for rank in range(3)
    ]
    other = same[0].model_copy(update={"words": "v", "logs_command": None})
    lines = ["replicas 0-2 attempt 1: user-code: w", "    a", "  more: c", "replica 0 attempt 1: user-code: v", "    a"]
    assert list(failure_lines([*same, other]))[:-1] == lines


def test_what_failed_first_is_shown_first() -> None:
    ends = {0: "2026-11-23T10:00:09Z", 1: "2026-11-23T10:00:02Z"}
    found = {
        rank: [Attempt(attempt=1, job="j", status="Failed", ended_at=at, failure_class=FailureClass.USER_CODE)]
        for rank, at in ends.items()
    }
    assert [one.rank for one in failed_attempts("run", found)] == [1, 0]


def test_a_client_that_may_not_read_logs_shows_a_failure_without_lines(harness: ControlHarness) -> None:
    harness.plan()
    fail(harness, BROKEN, "why")
    harness.cloud.calls.inject(throttle("FilterLogEvents", count=None))
    [failure] = run_of(harness).failures()
    assert (failure.words, failure.last_lines) == (WHY, ())


def test_a_settled_run_has_its_lines_in_the_result_and_the_log_is_not_read_again(harness: ControlHarness) -> None:
    harness.plan()
    fail(harness, SILENT, *TRACEBACK)
    result = settled(harness)
    harness.cloud.workflow.succeed(RUN)
    harness.cloud.calls.reset()
    run = run_of(harness)
    [failure] = run.failures()
    assert (failure.words, failure.last_lines) == ("main.py:7: KeyError: 'x'", TRACEBACK)
    assert harness.cloud.calls.counts()["FilterLogEvents"] == 0
    shown = list(result_lines(result, SHIPPED_PRICES))
    assert "    attempt 1 Failed: user-code: main.py:7: KeyError: 'x'" in shown
    assert shown[-2:] == ["        KeyError: 'x'", f"    more: muster logs {RUN} --rank 0 --attempt 1"]


# --- logs -------------------------------------------------------------------------------------------


def test_the_log_of_one_attempt_leaves_out_the_others(harness: ControlHarness) -> None:
    harness.plan()
    fail(harness, "InternalServerError: again", "first")
    harness.cloud.clock.advance(600)
    fail(harness, "InternalServerError: again", "second", attempt=2)
    run = run_of(harness)
    assert [[line.message for line in run.logs(0, attempt=attempt)] for attempt in (1, 2)] == [["first"], ["second"]]
    with pytest.raises(UnknownReplicaError, match="replica 0 has had 2 attempts"):
        run.logs(0, attempt=3)


def test_the_log_of_a_rank_that_does_not_exist_says_which_ones_do(harness: ControlHarness) -> None:
    for name, replicas in (("one", 1), ("two", 2)):
        harness.executions.start(name, json.dumps({"replicas": replicas}))
    harness.plan("three", replicas=2)
    for name, ranks, attempt, words in (
        ("one", {1, 2}, None, r"no replicas 1-2: it has only replica 0\."),
        ("two", -1, None, r"no replica -1: it has the replicas 0 to 1\."),
        ("two", {5, 9}, None, r"no replicas 5,9: it has the replicas 0 to 1\."),
        ("two", 7, None, r"no replica 7: it has the replicas 0 to 1\."),
        ("three", 1, 1, "replica 1 has not been launched yet"),
    ):
        with pytest.raises(UnknownReplicaError, match=words):
            run_of(harness, name).logs(ranks, attempt=attempt)  # type: ignore[arg-type]


# --- what SageMaker reports -------------------------------------------------------------------------


def metrics(value: float) -> dict[str, Any]:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return {"FinalMetricDataList": [{"MetricName": "loss", "Value": value, "Timestamp": at}]}


def test_final_metrics_stand_in_the_row_and_as_means_in_the_result(harness: ControlHarness) -> None:
    harness.plan(replicas=2, metric_definitions=[{"name": "loss", "regex": "loss=([0-9.]+)"}])
    complete(harness, 0, **metrics(0.25))
    complete(harness, 1, **metrics(0.75))
    status = run_of(harness).status()
    assert [ReplicaLine.of(one, status.state).metrics for one in status.replicas] == ["loss 0.25", "loss 0.75"]
    shown = list(result_lines(settled(harness), SHIPPED_PRICES))
    assert "final metrics that SageMaker read: loss 0.5" in shown


def test_what_spot_has_saved_is_a_share_and_dollars_by_the_price_of_the_spec(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    spot = {"spot": True, "instance_type": "ml.g5.xlarge", "instance_count": 2, "max_wait_seconds": 90_000}
    plan_with_price(harness, **spot)
    harness.arm()
    harness.cloud.training.train(harness.job())
    harness.cloud.clock.advance(7_200)
    harness.cloud.training.set_billable_seconds(harness.job(), 1_800)
    harness.cloud.training.complete(harness.job())
    harness.deliver()
    status = run_of(harness).status()
    assert status.saving is not None
    assert (status.saving.training_seconds, status.saving.billable_seconds) == (14_400, 3_600)
    line = "spot: 3,600 s billed of 14,400 s: 75% saved, about $6.00 at on-demand prices"
    assert read_back(status) == [line]
    settled(harness)
    harness.cloud.workflow.succeed(RUN)
    monkeypatch.setattr(StackOptions, "muster", lambda _: muster_of(harness.cloud))
    app = typer.Typer()
    app.command()(inspect_commands.result)
    assert line in CliRunner().invoke(app, [RUN]).output.splitlines()


def warm(state: str = "Available", seconds: int = 12) -> dict[str, Any]:
    return {"WarmPoolStatus": {"Status": state, "ResourceRetainedBillableTimeInSeconds": seconds}}


@pytest.fixture
def today() -> Iterator[ControlHarness]:
    """A pool is kept until a time that a client compares with its own clock."""
    with ControlHarness(cloud=MemoryCloud(clock=VirtualClock(datetime.now(UTC)))).installed() as harness:
        yield harness


def test_a_warm_pool_is_shown_with_its_price_its_end_and_the_command_that_ends_it(today: ControlHarness) -> None:
    plan_with_price(today, keep_alive_period_in_seconds=3_600, instance_type="ml.g5.xlarge")
    complete(today, **warm())
    today.cloud.training.describe_with(today.job(), **warm(seconds=40))
    status = run_of(today).status()
    [pool] = status.warm_pools
    assert (pool.rank, pool.instances, pool.kept_seconds) == (0, 1, 40)
    assert pool.usd_per_hour == PRICE["ml.g5.xlarge"]
    first, second = read_back(status)
    assert first.startswith("replica 0 keeps 1 ml.g5.xlarge warm until ")
    assert first.endswith(" UTC, billed at $2.00 per hour, 40 s so far; end it now with:")
    assert second == (
        f"  aws sagemaker update-training-job --training-job-name {today.job()} "
        "--resource-config KeepAlivePeriodInSeconds=0"
    )
    shown = list(result_lines(settled(today), SHIPPED_PRICES.with_prices(PRICE)))
    assert shown[-2:] == [first.replace(", 40 s so far", ""), second]


def test_a_warm_pool_that_is_gone_is_not_shown_and_sagemaker_is_asked_once_in_a_while(today: ControlHarness) -> None:
    today.plan("other")
    Observer(client_of(today.cloud), "other").look()
    assert today.cloud.calls.counts()["ListTrainingJobs"] == 0, "there can be no pool"
    today.plan(keep_alive_period_in_seconds=3_600)
    complete(today, **warm())
    today.cloud.training.describe_with(today.job(), **warm("Reused"))
    run = run_of(today)
    assert [run.status().warm_pools, run.status().warm_pools] == [(), ()]
    assert today.cloud.calls.counts()["ListTrainingJobs"] == 1


def test_without_an_answer_of_sagemaker_the_pool_of_the_record_counts(today: ControlHarness) -> None:
    today.plan(keep_alive_period_in_seconds=3_600)
    complete(today, **warm())
    today.cloud.calls.inject(throttle("ListTrainingJobs", count=None))
    assert [pool.kept_seconds for pool in run_of(today).status().warm_pools] == [None]


def test_the_verdicts_of_rules_and_the_runs_of_mlflow_have_lines_issues_first(harness: ControlHarness) -> None:
    rules = [{"rule_configuration_name": "Overfit", "rule_evaluator_image": "i"}]
    harness.plan(replicas=2, debug_rule_configurations=rules)
    server = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
    for rank, verdict in enumerate(("NoIssuesFound", "IssuesFound")):
        found = {"RuleConfigurationName": "Overfit", "RuleEvaluationStatus": verdict, "StatusDetails": "at step 7"}
        run = {"MlflowExperimentId": "7", "MlflowRunId": f"run{rank}"}
        tracked = {"MlflowConfig": {"MlflowResourceArn": server}, "MlflowDetails": run}
        complete(harness, rank, DebugRuleEvaluationStatuses=[found], **tracked)
    opened = "aws sagemaker create-presigned-mlflow-tracking-server-url --tracking-server-name team"
    assert read_back(run_of(harness).status()) == [
        "debugger rule Overfit: IssuesFound in replica 1: at step 7",
        "debugger rule Overfit: NoIssuesFound in replica 0: at step 7",
        f"MLflow: experiment 7: run run0 of replica 0, run1 of replica 1; open it with: {opened}",
    ]


# --- messages ---------------------------------------------------------------------------------------


def test_a_replica_without_an_instance_says_why_in_sagemaker_s_words(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    why = "Insufficient capacity error from EC2 while launching instances, retrying!"
    harness.cloud.training.say(harness.job(), why)
    harness.deliver()
    run = run_of(harness)
    status = run.status()
    assert ReplicaLine.of(status.replicas[0], status.state).note == why
    assert f"replica 0 attempt 1 is Starting: {why}" in [entry.text for entry in run.events()]


# --- names and prices -------------------------------------------------------------------------------


def test_a_name_of_a_run_that_never_trained_says_so_and_names_one_that_is_free(harness: ControlHarness) -> None:
    harness.executions.start("digits", "{}")
    harness.cloud.workflow.fail("digits", "Muster.SpecError", "The spec has 1 problem")
    harness.executions.start("digits-2", "{}")
    spec = {"replicas": 1, "trainer": "a:b", "image": "i", "name": "digits"}
    with pytest.raises(RunNameTakenError) as caught:
        run_of(harness).muster.launch(spec)
    said = str(caught.value)
    assert "(Muster.SpecError: The spec has 1 problem)" in said
    assert "`--name digits-3`" in said
