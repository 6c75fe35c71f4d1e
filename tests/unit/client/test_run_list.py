"""`muster list`: what it shows of each run, which runs it shows, and what it asks of AWS."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from muster.client.cli.run_conditions import RunConditions
from muster.client.cli.run_table import list_lines
from muster.client.client_errors import OptionError
from muster.client.runs.run_list import RunFilter, RunSummary, list_runs
from muster.client.runs.run_state import RunState
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.ended_run import FailureCount
from muster.contract.timestamps import Timestamp
from muster.control.reporting.execution_output import execution_output
from muster.control.settle import finish_run
from tests.memory.clock import START
from tests.memory.harness import ControlHarness, budget
from tests.support.memory_client import client_of

BROKEN = "AlgorithmError: ExitCode 1"


def end(harness: ControlHarness, name: str, *, fails: bool = False, **fields: Any) -> None:
    """A run from its start to the end of its execution."""
    run = harness.plan(name, **fields)
    harness.arm(run=name)
    harness.cloud.training.train(harness.job(run=name))
    harness.deliver()
    harness.cloud.clock.advance(600)
    if fails:
        harness.cloud.training.fail(harness.job(run=name), BROKEN)
    else:
        harness.cloud.training.complete(harness.job(run=name))
    harness.deliver()
    output = execution_output(run.plan, finish_run(harness.plane, run, budget()), "s3://bucket/result.json")
    if fails:
        harness.cloud.workflow.fail(name, str(output["error"]), str(output["cause"]))
    else:
        harness.cloud.workflow.succeed(name, output)


@pytest.fixture
def runs(harness: ControlHarness) -> ControlHarness:
    """Four runs, each an hour after the one before."""
    end(harness, "gpt-1")
    harness.cloud.clock.advance(3_000)
    end(harness, "gpt-2", fails=True)
    harness.cloud.clock.advance(3_000)
    end(harness, "digits", fails=True)
    harness.cloud.clock.advance(3_000)
    harness.executions.start("gpt-3", json.dumps({"replicas": 3}))
    return harness


def names(harness: ControlHarness, limit: int = 50, **conditions: Any) -> list[str]:
    return [run.run for run in list_runs(client_of(harness.cloud), RunFilter(**conditions), limit)]


# --- what is shown --------------------------------------------------------------------------------


def test_a_list_shows_the_verdict_the_reason_and_the_cost_of_each_run(runs: ControlHarness) -> None:
    newest, _, failed, succeeded = list_runs(client_of(runs.cloud), RunFilter(), 50)
    assert (newest.run, newest.state, newest.replicas, newest.reruns) == ("gpt-3", RunState.RUNNING, 3, None)
    assert (failed.state, failed.reruns) == (RunState.FAILED, 0)
    assert failed.failures == (FailureCount(failure_class="user-code", attempts=1),)
    assert failed.reason.startswith("0 of 1 replicas succeeded; 1 were needed; replica 0: ")
    assert (succeeded.state, succeeded.replicas) == (RunState.SUCCEEDED, 1)
    assert succeeded.usd == pytest.approx(0.115 / 6, rel=0.05)
    assert (succeeded.started_at, succeeded.ended_at) == ("2026-01-01T00:00:00.000Z", "2026-01-01T00:10:00.000Z")


def test_a_list_reads_one_document_for_each_day_and_that_once(runs: ControlHarness) -> None:
    """However many runs there are: a call for each 100, one for the days, one for each day, one for a running run."""
    client = client_of(runs.cloud)
    for number in range(20):
        end(runs, f"more-{number}", fails=number % 2 == 0)
    asked = {"ListExecutions": 1, "ListObjectsV2": 1, "DescribeExecution": 1}
    for read in (1, 0):
        runs.cloud.calls.reset()
        assert len(list_runs(client, RunFilter(), 50)) == 24
        assert runs.cloud.calls.counts() == Counter({**asked, **({"GetObject": 1} if read else {})})
    end(runs, "another")
    runs.cloud.calls.reset()
    assert len(list_runs(client, RunFilter(), 50)) == 25
    [day] = runs.cloud.calls.of("GetObject")
    assert str(day["Key"]) == "ended/2026-01-01.json"


def test_a_run_that_an_older_version_settled_is_listed_from_its_execution(runs: ControlHarness) -> None:
    for key in list(runs.cloud.s3.objects(runs.cloud.bucket)):
        if key.startswith("ended/"):
            runs.cloud.client("s3").delete_object(Bucket=runs.cloud.bucket, Key=key)
    found = {run.run: run for run in list_runs(client_of(runs.cloud), RunFilter(), 50)}
    assert (found["gpt-1"].state, found["gpt-1"].reason, found["gpt-1"].usd) == (RunState.SUCCEEDED, "", None)
    assert found["gpt-2"].state is RunState.FAILED
    # The cause goes on with figures and links, for readers of the console.
    assert found["gpt-2"].reason.startswith("0 of 1 replicas succeeded; 1 were needed; replica 0: ")
    assert "attempts in total" not in found["gpt-2"].reason


# --- which are shown ------------------------------------------------------------------------------


CONDITIONS: list[tuple[dict[str, Any], list[str]]] = [
    ({"name": "gpt"}, ["gpt-3", "gpt-2", "gpt-1"]),
    ({"name": "gpt-[12]"}, ["gpt-2", "gpt-1"]),
    ({"name": "GPT"}, []),
    ({"reason": "WERE needed"}, ["digits", "gpt-2"]),
    ({"failure": FailureClass.USER_CODE}, ["digits", "gpt-2"]),
    ({"failure": FailureClass.SPOT}, []),
    ({"since": START + timedelta(hours=1), "until": START + timedelta(hours=2)}, ["gpt-2"]),
    ({"state": RunState.FAILED, "name": "gpt", "failure": FailureClass.USER_CODE}, ["gpt-2"]),
    ({"limit": 2}, ["gpt-3", "digits"]),
    ({"limit": 1, "state": RunState.FAILED}, ["digits"]),
]


def test_only_the_runs_that_meet_every_condition_are_shown_the_newest_first(runs: ControlHarness) -> None:
    wrong = [(given, found) for given, expected in CONDITIONS if (found := names(runs, **given)) != expected]
    assert wrong == []


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"state": "stoped"}, "(did you mean stopped?)"),
    ({"state": "stopping"}, "write one of running, succeeded, failed, stopped"),
    ({"failure": "infrastucture"}, "(did you mean infrastructure?)"),
    ({"since": "yesterday"}, "--since: found 'yesterday'"),
    ({"until": "2d", "since": "1d"}, "--until: found '2d'; write a time after --since 1d."),
    ({"name": "a b"}, "--name: found 'a b'"),
    ({"name": "x" * 81}, "in at most 80 letters"),
    ({"reason": " "}, "--reason: found ' '"),
]


def test_a_condition_that_cannot_be_used_says_what_is_allowed() -> None:
    for options, message in REFUSED:
        with pytest.raises(OptionError) as refused:
            RunConditions(**options).read()
        assert message in str(refused.value), options


def test_conditions_are_read_into_what_the_sdk_takes() -> None:
    read = RunConditions(state="failed", since="2d", until="2027-01-01T00:00:00Z", name="gpt-*", failure="spot").read()
    assert read.since is not None
    assert timedelta(days=2) <= datetime.now(UTC) - read.since < timedelta(days=2, minutes=5)
    assert read.until == datetime(2027, 1, 1, tzinfo=UTC)
    assert (read.state, read.failure) == (RunState.FAILED, FailureClass.SPOT)
    assert (read.name, read.reason) == ("gpt-*", None)


# --- the table ------------------------------------------------------------------------------------

COLUMNS = "run state started (UTC) time replicas rounds reruns cost reason"
SUMMARY = RunSummary(
    run="gpt-2",
    state=RunState.FAILED,
    started_at=Timestamp("2026-11-22T09:15:00.000Z"),
    ended_at=Timestamp("2026-11-22T10:16:01.000Z"),
    reason="2 of 4 replicas succeeded; 3 were needed; replica 1: the trainer raised ValueError: no such file",
    replicas=4,
    rounds=1_200,
    reruns=5,
    failures=tuple(
        FailureCount(failure_class=name, attempts=n) for name, n in (("infrastructure", 5), ("user-code", 1))
    ),
    usd=12.5,
)


def test_the_table_has_a_column_for_each_fact_and_fits_the_terminal() -> None:
    heading, line = list_lines([SUMMARY], more=False, width=140)
    assert heading.split() == COLUMNS.split()
    assert line.startswith("gpt-2  failed  2026-11-22 09:15  1:01:01         4   1,200       5  $12.50  ")
    assert (line.endswith("…"), "[infrastructure ×5, user-code]" in line, len(line) <= 140) == (True, True, True)
    _, whole = list_lines([SUMMARY], more=False, width=None)
    assert whole.endswith(SUMMARY.reason), "it is not read on a terminal"
    *_, last = list_lines([SUMMARY], more=True, width=80)
    assert "--limit" in last
    bare = RunSummary(run="new", state=RunState.RUNNING, started_at=SUMMARY.started_at)
    _, line = list_lines([bare], more=False, width=80)
    assert line.split()[5:] == ["–"] * 4, "what is not known is a dash"
