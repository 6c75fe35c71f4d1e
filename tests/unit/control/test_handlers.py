"""The handlers as Lambda loads them: the environment is set, the module is imported, `handler` is called.

A handler names the services whose clients are to be made before the first event; here it has these and no others.
"""

import ast
import gc
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from muster.control.attempt_request import AttemptRequest
from muster.control.aws.aws_errors import UnavailableError
from muster.control.aws.clients import CONNECT_SECONDS, READ_SECONDS, TRIES
from muster.control.aws.task_tokens import TokenRequest
from muster.control.control_plane import ControlPlane
from muster.control.plan import PlanRequest
from muster.control.runtime.function import imported
from muster.control.stop import StopRequest
from tests.memory import AwsError, Fault, throttle
from tests.memory.cloud import REGION
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import BROKEN, Row, cut_off, fail, found, launched
from tests.support.handlers import HANDLERS, Handler, handler_path, loader
from tests.support.source_patch import ROOT

NAMES = [*HANDLERS]
Load: TypeAlias = Callable[..., Handler]

# The filter of muster.control.runtime.function, which pytest resets: most events change no metric.
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")

START = "2026-01-01T00:00:00Z"


@pytest.fixture
def load(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> Load:
    return loader(harness, monkeypatch)


def counted(capsys: pytest.CaptureFixture[str]) -> set[str]:
    """The metrics that a function has written to its log."""
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    blocks = [directive for line in lines if "_aws" in line for directive in line["_aws"]["CloudWatchMetrics"]]
    return {metric["Name"] for block in blocks for metric in block["Metrics"]}


def plan_event(harness: ControlHarness, **fields: Any) -> dict[str, Any]:
    harness.executions.start(RUN, "{}")
    return harness.plan_request(**fields).model_dump()


def attempt_event(harness: ControlHarness, rank: int = 0, attempt: int = 1) -> dict[str, Any]:
    return {**harness.request(rank, attempt).model_dump(), "unknown": "a newer definition's"}


# --- a run ----------------------------------------------------------------------------------------


def test_a_run_from_its_plan_to_its_end(
    harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load("plan")(plan_event(harness, deadline_seconds=600))
    launch = {"from": "2026-01-01T00:00:00.000Z", "per_second": 10}
    assert plan == {"accepted": True, "queued": False, "run": RUN, "ranks": [0], "launch": launch}
    [timer] = harness.cloud.calls.of("CreateSchedule")
    assert json.loads(timer["Target"]["Input"]) == {"run": RUN, "timer": "deadline"}
    assert load("attempt")(attempt_event(harness)) == {"launch": "created"}
    harness.cloud.training.complete(harness.job())
    assert load("react")(harness.cloud.notifications.drain()[-1])["reaction"] == "decided"
    assert load("settle")({"run": RUN})["verdict"] == "succeeded"
    assert harness.emitted() == ["Run Started", "Replica Launched", "Run Succeeded"]
    assert {"RunStarted", "ReplicaLaunched", "ReplicaSucceeded", "RunSucceeded"} <= counted(capsys)


def test_a_run_that_fails_is_continued(harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    load("plan")(plan_event(harness, **{"continue": {"on": ["failed"], "max": 1}}))
    load("attempt")(attempt_event(harness))
    fail(harness)
    assert load("stop")({"run": RUN, "reason": "replica 0 was lost"}) == {"stop": "asked"}
    output = load("settle")({"run": RUN})
    assert (output["verdict"], output["error"], output["continued_by"]) == ("failed", "Muster.RunFailed", "one-x2")
    assert {"QuorumLost", "RunStopping", "RunFailed", "RunContinued"} <= counted(capsys)


# --- each function --------------------------------------------------------------------------------


def test_a_redriven_execution_of_a_run_that_was_cancelled_in_the_queue_ends_without_waiting(
    harness: ControlHarness, load: Load
) -> None:
    plan, admit, stop, attempt, settle = (
        load(name, MUSTER_MAX_CONCURRENT_REPLICAS="4") for name in ("plan", "admit", "stop", "attempt", "settle")
    )
    other, event = harness.plan("other", replicas=4).plan, plan_event(harness)
    admit({"run": other.run, "token": harness.cloud.workflow.token(), "entered_at": START})
    assert plan(event) == {"accepted": True, "queued": True, "run": RUN}
    assert harness.emitted() == [], "a run that waits has not started"
    assert admit({"run": RUN, "token": harness.cloud.workflow.token(RUN), "entered_at": START}) == {"admitted": False}
    ended = cut_off(harness, "ABORTED")
    assert stop({"detail": ended.model_dump(mode="json", by_alias=True)}) == {"stop": "verified"}
    # The redrive repeats the wait, and continues from there.
    token = harness.cloud.workflow.token()
    admit({"run": RUN, "token": token, "entered_at": START})
    assert harness.output(token) == {}
    assert not plan(event)["queued"]
    assert attempt({**attempt_event(harness), "token": harness.cloud.workflow.token()}) == {
        "launch": "refused: the run is stopping"
    }
    assert settle({"run": RUN})["verdict"] == "stopped"
    assert harness.cloud.training.names() == []


def test_a_function_that_a_workflow_waits_for_answers_through_its_token(
    row: Row, monkeypatch: pytest.MonkeyPatch
) -> None:
    for function, answer in (("attempt", {"launch": "failed"}), ("admit", {"admitted": False})):
        with row(function) as harness:
            harness.plan()
            event = attempt_event(harness)
            harness.cloud.calls.inject(throttle("GetObject"))
            assert loader(harness, monkeypatch)(function, MUSTER_MAX_CONCURRENT_REPLICAS="4")(event) == answer
            assert found(harness.cloud.workflow.answer(event["token"])).error == "Muster.Unavailable"


def test_each_end_is_counted_once_although_the_first_call_could_not_write_the_roll_up(
    harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    launched(harness, 2, on_replica_failure="continue", min_replicas=1)
    react = load("react")
    harness.cloud.training.complete(harness.job(0))
    completed = harness.cloud.notifications.drain()[-1]
    harness.cloud.training.fail(harness.job(1), BROKEN)
    failed = harness.cloud.notifications.drain()[-1]
    for event, metric in ((completed, "ReplicaSucceeded"), (failed, "ReplicaLost")):
        shard = Fault("PutObject", AwsError("AccessDenied"), when=lambda call: "/rollup/" in call.parameters["Key"])
        harness.cloud.calls.inject(shard)
        with pytest.raises(ClientError):
            react(event)
        assert metric in counted(capsys)
        # A repeated event decides nothing.
        assert react(event) == {"reaction": "announced again: the decision was already recorded"}
        assert metric not in counted(capsys)


def test_a_replica_that_is_stopped_with_its_run_is_not_counted_as_lost(
    harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    launched(harness, 2)
    load("stop")({"run": RUN, "reason": "replica 0 was lost"})
    harness.cloud.training.fail(harness.job(1), BROKEN)
    assert load("react")(harness.cloud.notifications.drain()[-1])["reaction"] == "decided"
    assert "ReplicaLost" not in counted(capsys)


def test_a_plan_that_cannot_be_written_now_is_tried_for_hours(harness: ControlHarness, load: Load) -> None:
    plan = load("plan")
    harness.cloud.calls.inject(throttle("PutObject"))
    with pytest.raises(UnavailableError):
        plan(plan_event(harness))


def test_the_workflow_tries_for_hours_while_a_service_is_unavailable() -> None:
    states = json.loads(DEFINITION.read_text(encoding="utf-8"))["States"]
    children = states["Train the replicas"]["ItemProcessor"]["States"]
    for state in (states["Plan the run"], states["Wait in the run queue"], children[LAUNCH]):
        waits = state["Resource"].endswith(".waitForTaskToken")
        named = {"Muster.Unavailable", "TokenNotSentError"} if waits else {"UnavailableError"}
        [patient] = [one for one in state["Retry"] if named <= set(one["ErrorEquals"])]
        assert (patient["MaxAttempts"], patient["MaxDelaySeconds"]) == (90, 300)


def test_stop_gives_up_a_replica_that_cannot_be_launched(
    harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    answer = load("stop")({"run": RUN, "rank": 1, "attempt": 1, "reason": "replica 1 could not be launched"})
    decision = {"next": "fail", "delay_seconds": 0, "reason": "replica 1 could not be launched"}
    assert answer == {"run": RUN, "rank": 1, "attempt": 1, **decision}
    assert "ReplicaLost" in counted(capsys)
    assert harness.plane.runs.require(RUN).documents.fence() is None


def test_sweep_says_what_it_found(harness: ControlHarness, load: Load, capsys: pytest.CaptureFixture[str]) -> None:
    launched(harness)
    cut_off(harness)
    sweep = load("sweep")
    assert sweep({}) == {"settled": (RUN,), "stopped": (), "foreign": (), "errors": (), "left": ()}
    assert {"OrphanJobsStopped", "RunsSettledLate"} <= counted(capsys)
    with pytest.raises(ValidationError):
        sweep({"young_seconds": -1})


# --- how they are made ----------------------------------------------------------------------------


def test_the_clients_try_passing_errors_again_and_events_only_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    environment = {"MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus"}
    plane = ControlPlane.from_environment("stepfunctions", "events", environment=environment)
    assert set(vars(plane.clients)) == {"session", "stepfunctions", "events"}
    clients = (plane.clients.stepfunctions, plane.clients.events)
    retries = [vars(client.meta.config)["retries"] for client in clients]
    assert [(one["mode"], one["total_max_attempts"]) for one in retries] == [("standard", TRIES), ("standard", 2)]
    waits = {(client.meta.config.connect_timeout, client.meta.config.read_timeout) for client in clients}
    assert waits == {(CONNECT_SECONDS, READ_SECONDS)}


def test_the_collector_is_on_again_once_a_handler_has_been_imported() -> None:
    last = {name: ast.unparse(ast.parse((ROOT / handler_path(name)).read_text()).body[-1]) for name in NAMES}
    assert last == dict.fromkeys(NAMES, "imported()")
    gc.disable()
    try:
        imported()
        assert gc.isenabled()
    finally:
        gc.unfreeze()
        gc.enable()


# --- workflows of other versions --------------------------------------------------------------------

LAUNCH = "Launch the job and wait for its end"
VERSIONS = Path(__file__).parent / "workflow_versions"
"""What the workflow and the functions of each version say to each other. Never regenerate a file: a running execution
keeps its definition while the functions are replaced, and a rollback replaces them under newer definitions."""
DEFINITION = Path(__file__).resolve().parents[3] / "statemachine" / "run.asl.json"
REQUESTS = {"Plan": PlanRequest, "Admit": TokenRequest, "Attempt": AttemptRequest, "Stop": StopRequest}


def paths(states: object) -> set[str]:
    """The first names of all paths into the data of states, such as `run` of `$.run`."""
    return set(re.findall(r"(?:(?<!\$)\$\.|\$states\.input\.)([a-z_]+)", json.dumps(states)))


def spoken(harness: ControlHarness, load: Load) -> dict[str, dict[str, set[str]]]:
    """What today's workflow sends and reads, and what today's functions need and answer, each by whom."""
    states: dict[str, Any] = json.loads(DEFINITION.read_text(encoding="utf-8"))["States"]
    train = states.pop("Train the replicas")
    children = train.pop("ItemProcessor")["States"]
    sends = {}
    for state in (*states.values(), *children.values()):
        if state["Type"] == "Task":
            task = state.get("Parameters", state.get("Arguments"))
            function = str(task["FunctionName"]).removesuffix("FunctionArn}").removeprefix("${")
            sends[function] = {name.removesuffix(".$") for name in task["Payload"]}
    needs = {
        name: {field for field, info in model.model_fields.items() if info.is_required()}
        for name, model in REQUESTS.items()
    }
    needs["Settle"] = {"run"}  # its model is in the handler, which opens its clients when it is imported
    refused = load("plan")(plan_event(harness, replicas=0))
    planned = load("plan")(plan_event(harness))
    load("attempt")(attempt_event(harness))
    fail(harness)
    answers = {
        "run": {*refused, *planned, *load("settle")({"run": RUN})},
        # The first state of a child is the Map's item, the next ones are the answers of attempt.
        "replica": set(harness.answer() or {}),
    }
    # `failure` is what a Catch writes, `launch` is read by the first state of a child alone, and the states before an
    # attempt give it its re-arm period.
    own = {"failure", "launch", "rearm_seconds"}
    reads = {"run": paths([states, train]), "replica": paths(children) - own}
    return {"sends": sends, "needs": needs, "answers": answers, "reads": reads}


def test_a_workflow_of_another_version_and_today_s_functions_understand_each_other_and_the_reverse(
    harness: ControlHarness, load: Load
) -> None:
    today = spoken(harness, load)
    for path in VERSIONS.glob("*.json"):
        other = json.loads(path.read_text(encoding="utf-8"))
        for speaker, said, hearer, heard in (
            (other, "sends", today, "needs"),
            (today, "answers", other, "reads"),
            (today, "sends", other, "needs"),
            (other, "answers", today, "reads"),
        ):
            for who, names in hearer[heard].items():
                missing = set(names) - set(speaker[said].get(who, ()))
                assert not missing, f"{path.name}: {who} does not get what it {heard}"
