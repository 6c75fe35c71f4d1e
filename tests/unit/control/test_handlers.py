"""The handlers as Lambda loads them: the environment is set, the module is imported, `handler` is called.

A handler names the services whose clients are to be made before the first event; here it has these and no others.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from muster.contract.errors import ConfigurationError
from muster.contract.spec.run_limits import Timer
from muster.control.admission import AdmitRequest
from muster.control.attempt import AttemptRequest
from muster.control.aws.aws_errors import UnavailableError
from muster.control.aws.clients import TRIES
from muster.control.control_plane import ControlPlane
from muster.control.planning import PlanRequest
from muster.control.stop import StopRequest
from tests.memory import AwsError, Fault, throttle
from tests.memory.cloud import REGION
from tests.memory.harness import RUN, SPEC, ControlHarness, MemoryClients
from tests.support.handlers import Handler, loader
from tests.support.source_patch import ROOT

HANDLERS = ROOT / "lambdas"

# The filter of muster.control.runtime.function, which pytest resets: most events change no metric.
pytestmark = pytest.mark.filterwarnings("ignore:No application metrics to publish")


@pytest.fixture
def load(harness: ControlHarness, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Handler]:
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
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = load("plan")(plan_event(harness, replicas=2, deadline_seconds=600))
    assert plan == {
        "accepted": True,
        "queued": False,
        "run": RUN,
        "ranks": [0, 1],
        "launch": {"from": "2026-01-01T00:00:00.000Z", "per_second": 10},
    }
    assert [json.loads(one["Target"]["Input"]) for one in harness.cloud.calls.of("CreateSchedule")] == [
        {"run": RUN, "timer": "deadline"}
    ]
    attempt, react = load("attempt"), load("react")
    assert [attempt(attempt_event(harness, rank)) for rank in range(2)] == [{"launch": "created"}] * 2
    for rank in range(2):
        harness.cloud.training.complete(harness.job(rank))
    events = [event for event in harness.cloud.notifications.drain() if event["source"] == "aws.sagemaker"]
    reactions = [react(event)["reaction"] for event in events]
    assert reactions.count("decided") == 2
    assert [answer and answer["next"] for answer in map(harness.answer, range(2))] == ["done", "done"]
    output = load("settle")({"run": RUN})
    assert (output["verdict"], output["succeeded"], output["page"]) == (
        "succeeded",
        2,
        "s3://bucket/control/one/report.html",
    )
    assert harness.emitted() == ["Run Started", "Replica Launched", "Replica Launched", "Run Succeeded"]
    assert {"RunStarted", "ReplicaLaunched", "ReplicaSucceeded", "RunSucceeded"} <= counted(capsys)


def test_a_run_that_fails_is_continued(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    load("plan")(plan_event(harness, rerun={"on": ["failed"], "max": 1}))
    load("attempt")(attempt_event(harness))
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    assert load("stop")({"run": RUN, "reason": "replica 0 was lost"}) == {"stop": "asked"}
    output = load("settle")({"run": RUN})
    assert (output["verdict"], output["error"], output["continued_by"]) == ("failed", "Muster.RunFailed", "one-x2")
    assert {"RunStopping", "RunFailed", "RunRerun"} <= counted(capsys)


# --- each function --------------------------------------------------------------------------------


def test_plan_refuses_in_the_users_terms(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    answer = load("plan")(plan_event(harness, replicas=0))
    assert (answer["accepted"], answer["queued"], answer["error"]) == (False, False, "Muster.SpecError")
    assert "replicas" in answer["cause"]
    assert harness.emitted() == ["Run Refused"]
    assert harness.cloud.calls.counts()["CreateSchedule"] == 0


def test_plan_waits_for_admission_before_it_announces_the_run(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
    plan, admit = (load(name, MUSTER_MAX_CONCURRENT_REPLICAS="4") for name in ("plan", "admit"))
    event = plan_event(harness)
    assert plan(event) == {"accepted": True, "queued": True, "run": RUN}
    assert harness.emitted() == []
    token = harness.cloud.workflow.token(RUN)
    assert admit({"run": RUN, "token": token}) == {"admitted": True}
    assert harness.output(token) == {}
    assert plan(event)["ranks"] == [0]
    assert harness.emitted() == ["Run Started"]


def test_a_redriven_execution_of_a_run_that_was_cancelled_in_the_queue_ends_without_waiting(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
    plan, admit, stop, attempt, settle = (
        load(name, MUSTER_MAX_CONCURRENT_REPLICAS="4") for name in ("plan", "admit", "stop", "attempt", "settle")
    )
    other, event = harness.plan("other", replicas=4).plan, plan_event(harness)
    admit({"run": other.run, "token": harness.cloud.workflow.token()})
    assert plan(event)["queued"]
    assert admit({"run": RUN, "token": harness.cloud.workflow.token(RUN)}) == {"admitted": False}
    arn = harness.cloud.workflow.execution_arn(RUN)
    harness.cloud.client("stepfunctions").stop_execution(executionArn=arn)
    detail = {"executionArn": arn, "name": RUN, "status": "ABORTED", "startDate": event["started_at"]}
    assert stop({"detail": detail}) == {"stop": "verified"}
    # The redrive repeats the wait, and continues from there.
    token = harness.cloud.workflow.token()
    admit({"run": RUN, "token": token})
    assert harness.output(token) == {}
    assert not plan(event)["queued"]
    assert attempt({**attempt_event(harness), "token": harness.cloud.workflow.token()}) == {
        "launch": "refused: the run is stopping"
    }
    assert settle({"run": RUN})["verdict"] == "stopped"
    assert harness.cloud.training.names() == []


@pytest.mark.parametrize(("function", "answer"), [("attempt", {"launch": "failed"}), ("admit", {"admitted": False})])
def test_a_function_that_a_workflow_waits_for_answers_through_its_token(
    harness: ControlHarness, load: Callable[..., Handler], function: str, answer: dict[str, Any]
) -> None:
    harness.plan()
    event = attempt_event(harness)
    harness.cloud.calls.inject(throttle("GetObject"))
    assert load(function, MUSTER_MAX_CONCURRENT_REPLICAS="4")(event) == answer
    found = harness.cloud.workflow.answer(event["token"])
    assert found is not None
    assert found.error == "Muster.Unavailable"


def test_each_end_is_counted_once_although_the_first_call_could_not_write_the_roll_up(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    for rank in range(2):
        harness.arm(rank)
    react = load("react")
    harness.cloud.training.complete(harness.job(0))
    completed = harness.cloud.notifications.drain()[-1]
    harness.cloud.training.fail(harness.job(1), "AlgorithmError: ExitCode 1")
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


def test_react_drops_what_is_not_a_job_of_muster(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    react = load("react")
    assert react({"detail": {"TrainingJobName": "another", "TrainingJobStatus": "Failed"}}) == {
        "reaction": "dropped: the job's name does not have Muster's form"
    }
    with pytest.raises(ValidationError):
        react({})


def test_a_lost_quorum_is_counted_by_the_call_that_stops_the_run(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan()
    harness.arm()
    stop = load("stop")
    assert stop({"run": RUN, "reason": "replica 0 was lost"}) == {"stop": "asked"}
    assert {"QuorumLost", "RunStopping"} <= counted(capsys)
    assert stop({"run": RUN, "reason": "replica 1 was lost"}) == {"stop": "another call stops the run"}
    assert not {"QuorumLost", "RunStopping"} & counted(capsys)


def test_stop_clears_up_after_an_execution(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    harness.plan()
    harness.arm()
    harness.executions.start("never-planned", "{}")
    for name in (RUN, "never-planned"):
        harness.cloud.client("stepfunctions").stop_execution(executionArn=harness.cloud.workflow.execution_arn(name))
    ended = [event for event in harness.cloud.notifications.drain() if event["detail"].get("status") == "ABORTED"]
    stop = load("stop")
    assert [stop(event) for event in ended] == [{"stop": "verified"}, {"stop": "nothing to stop"}]
    assert harness.cloud.training.names("Stopped") == [harness.job()]


def test_a_plan_that_cannot_be_written_now_is_tried_for_hours(
    harness: ControlHarness, load: Callable[..., Handler]
) -> None:
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
        assert (patient["MaxAttempts"], patient["MaxDelaySeconds"]) == (60, 300)


def test_stop_gives_up_a_replica_that_cannot_be_launched(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan(replicas=2, on_replica_failure="continue", min_replicas=1)
    answer = load("stop")({"run": RUN, "rank": 1, "attempt": 1, "reason": "replica 1 could not be launched"})
    assert answer == {
        "run": RUN,
        "rank": 1,
        "attempt": 1,
        "next": "fail",
        "delay_seconds": 0,
        "reason": "replica 1 could not be launched",
    }
    assert "ReplicaLost" in counted(capsys)
    assert harness.plane.runs.require(RUN).documents.fence() is None


def test_sweep_says_what_it_found(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    harness.cloud.notifications.drain()
    sweep = load("sweep")
    assert sweep({}) == {"settled": (RUN,), "stopped": (), "foreign": (), "errors": (), "left": ()}
    assert {"OrphanJobsStopped", "RunsSettledLate"} <= counted(capsys)
    with pytest.raises(ValidationError):
        sweep({"young_seconds": -1})


def test_start_says_what_came_of_each_request(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    start = load("start")
    schedule = {"name": "nightly", "at": "2026-01-01T02:00:00Z", "spec": json.dumps(SPEC)}
    assert start({"schedule": schedule}) == {"outcomes": ["started"]}
    assert start({"schedule": {**schedule, "spec": "[]"}}) == {"outcomes": ["refused"]}
    assert harness.executions.live_runs() == {"nightly-202601010200"}


def test_timer_stops_a_run_that_is_late(
    harness: ControlHarness, load: Callable[..., Handler], capsys: pytest.CaptureFixture[str]
) -> None:
    harness.plan(deadline_seconds=60)
    harness.arm()
    timer = load("timer")
    assert timer({"run": "never-planned", "timer": "deadline"}) == {"timer": "the run has ended or is being stopped"}
    assert "RunStopping" not in counted(capsys)
    assert timer({"run": RUN, "timer": Timer.DEADLINE.value}) == {"timer": "the run is stopped"}
    assert "RunStopping" in counted(capsys)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_notify_sends_people_a_message(harness: ControlHarness, load: Callable[..., Handler]) -> None:
    detail = {"run": RUN, "reason": "replica 0 was lost", "result": "s3://bucket/control/one/result.json"}
    assert load("notify")({"detail-type": "Run Failed", "detail": detail}) == {"subject": "Muster: one failed"}
    [message] = harness.cloud.sns.messages
    assert message.subject == "Muster: one failed"
    assert "Reason: replica 0 was lost" in message.text


# --- how they are made ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "function", ["admit", "attempt", "notify", "plan", "react", "settle", "start", "stop", "sweep", "timer"]
)
def test_a_function_without_its_environment_says_what_is_missing(load: Callable[..., Handler], function: str) -> None:
    with pytest.raises(ConfigurationError, match="MUSTER_BUCKET"):
        load(function, MUSTER_BUCKET="")


def test_the_parts_of_a_control_plane_are_made_once(harness: ControlHarness) -> None:
    plane = harness.plane
    for part in ("store", "jobs", "runs", "tokens", "bus", "rerun_policy"):
        assert getattr(plane, part) is getattr(plane, part)
    assert plane.queue is None


def test_the_clients_try_passing_errors_again_and_events_only_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_DEFAULT_REGION", REGION)
    environment = {"MUSTER_BUCKET": "bucket", "MUSTER_JOB_PREFIX": "muster", "MUSTER_BUS": "bus"}
    plane = ControlPlane.from_environment("stepfunctions", "events", environment=environment)
    assert set(vars(plane.clients)) == {"_session", "stepfunctions", "events"}
    retries = [vars(client.meta.config)["retries"] for client in (plane.clients.stepfunctions, plane.clients.events)]
    assert [(one["mode"], one["total_max_attempts"]) for one in retries] == [("standard", TRIES), ("standard", 2)]


def test_a_client_that_was_not_opened_is_no_silent_success(harness: ControlHarness) -> None:
    clients = MemoryClients(harness.cloud, ("s3",))
    with pytest.raises(AssertionError, match="the function did not open a client of sagemaker"):
        clients.sagemaker.stop_training_job(TrainingJobName="one")
    with pytest.raises(ClientError, match="NoSuchKey"):
        clients.s3.get_object(Bucket="bucket", Key="key")


@pytest.mark.parametrize("name", sorted(path.stem for path in HANDLERS.glob("[a-z]*.py")))
def test_the_collector_is_on_again_once_a_handler_has_been_imported(name: str) -> None:
    last = ast.parse((HANDLERS / f"{name}.py").read_text()).body[-1]
    assert ast.unparse(last) == "imported()"


def test_the_collector_is_off_while_a_handler_is_imported_and_leaves_out_what_was() -> None:
    code = (
        "import gc, muster.lambdas\n"
        "during = gc.isenabled()\n"
        "from muster.control.runtime.function import imported\n"
        "imported()\n"
        "kept = gc.get_freeze_count()\n"
        "later = [[] for _ in range(100)]\n"
        "imported()\n"
        "print(during, gc.isenabled(), kept > 0, gc.get_freeze_count() == kept)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["False", "True", "True", "True"]


# --- workflows of other versions --------------------------------------------------------------------

LAUNCH = "Launch the job and wait for its end"
VERSIONS = Path(__file__).parent / "workflow_versions"
"""What the workflow and the functions of each version say to each other. Never regenerate a file: a running execution
keeps its definition while the functions are replaced, and a rollback replaces them under newer definitions."""
DEFINITION = Path(__file__).resolve().parents[3] / "statemachine" / "run.asl.json"
REQUESTS = {
    "Plan": PlanRequest,
    "Admit": AdmitRequest,
    "Attempt": AttemptRequest,
    "Stop": StopRequest,
}


def paths(value: object) -> set[str]:
    """The first names of all paths into the state's data, such as `run` of `$.run`."""
    if isinstance(value, dict):
        return {name for item in value.values() for name in paths(item)}
    if isinstance(value, list):
        return {name for item in value for name in paths(item)}
    text = value if isinstance(value, str) else ""
    return set(re.findall(r"(?:(?<!\$)\$\.|\$states\.input\.)([a-z_]+)", text))


def spoken(harness: ControlHarness, load: Callable[..., Handler]) -> dict[str, dict[str, list[str]]]:
    """What today's workflow sends and reads, and what today's functions need and answer, each by whom."""
    states: dict[str, Any] = json.loads(DEFINITION.read_text(encoding="utf-8"))["States"]
    train = states.pop("Train the replicas")
    children = train.pop("ItemProcessor")["States"]
    tasks = [
        state.get("Parameters", state.get("Arguments"))
        for state in (*states.values(), *children.values())
        if state["Type"] == "Task"
    ]
    sends = {
        str(task["FunctionName"]).removesuffix("FunctionArn}").removeprefix("${"): {
            name.removesuffix(".$") for name in task["Payload"]
        }
        for task in tasks
    }
    needs = {
        name: {field for field, info in model.model_fields.items() if info.is_required()}
        for name, model in REQUESTS.items()
    }
    needs["Settle"] = {"run"}  # its model is in the handler, which opens its clients when it is imported
    refused = load("plan")(plan_event(harness, replicas=0))
    planned = load("plan")(plan_event(harness))
    load("attempt")(attempt_event(harness))
    harness.cloud.training.fail(harness.job(), "AlgorithmError: ExitCode 1")
    harness.deliver()
    answers = {
        "run": {*refused, *planned, *load("settle")({"run": RUN})},
        # The first state of a child is the Map's item, the next ones are the answers of attempt.
        "replica": set(harness.answer() or {}),
    }
    # `failure` is what a Catch writes, `launch` is read by the first state of a child alone, and the states before an
    # attempt give it its re-arm period.
    own = {"failure", "launch", "rearm_seconds"}
    reads = {"run": paths([states, train]), "replica": paths(children) - own}
    every = {"sends": sends, "needs": needs, "answers": answers, "reads": reads}
    return {kind: {who: sorted(names) for who, names in found.items()} for kind, found in every.items()}


@pytest.mark.parametrize("version", sorted(path.stem for path in VERSIONS.glob("*.json")))
def test_a_workflow_of_another_version_and_today_s_functions_understand_each_other_and_the_reverse(
    harness: ControlHarness, load: Callable[..., Handler], version: str
) -> None:
    today = spoken(harness, load)
    other = json.loads((VERSIONS / f"{version}.json").read_text(encoding="utf-8"))
    for workflow, functions in ((other, today), (today, other)):
        for said, heard in (("sends", "needs"), ("answers", "reads")):
            speaker, hearer = (workflow, functions) if said == "sends" else (functions, workflow)
            for who, names in hearer[heard].items():
                assert set(names) <= set(speaker[said].get(who, ())), f"{who} does not get what it {heard}"
