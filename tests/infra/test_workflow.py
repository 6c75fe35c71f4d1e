"""The state machine: the definition that is deployed is the file, armed, and it is valid."""

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from jsonata import Jsonata

from muster.contract.spec import retry_budget
from muster.infra.workflow.workflow_definition import armed_definition
from tests.support.template import REARM_SECONDS, ROOT, Template

DEFINITION = ROOT / "statemachine" / "run.asl.json"


def deployed(template: Template) -> dict[str, Any]:
    """The definition as it is in the partition aws."""
    text = template.one("AWS::StepFunctions::StateMachine")["DefinitionString"]
    return dict(json.loads(text.replace("${Partition}", "aws")))


def waits(machine: dict[str, Any]) -> list[dict[str, Any]]:
    states = list(machine["States"].values())
    inner = [wait for state in states if "ItemProcessor" in state for wait in waits(state["ItemProcessor"])]
    return [state for state in states if state.get("Resource", "").endswith(".waitForTaskToken")] + inner


def test_the_deployed_definition_is_the_file_but_for_re_arm_period_and_partition(template: Template) -> None:
    found, written = deployed(template), json.loads(DEFINITION.read_text(encoding="utf-8"))
    assert [state.get("TimeoutSeconds") for state in waits(found)] == [
        REARM_SECONDS,
        waits(written)[1]["TimeoutSeconds"],
    ]
    for armed, plain in zip(waits(found), waits(written), strict=True):
        armed |= {name: plain[name] for name in armed.keys() & {"TimeoutSeconds"}}
    children = found["States"]["Train the replicas"]["ItemSelector"]
    assert children["rearm_seconds"] == REARM_SECONDS
    children["rearm_seconds"] = written["States"]["Train the replicas"]["ItemSelector"]["rearm_seconds"]
    assert found == written


def test_a_definition_that_waits_for_no_token_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.asl.json"
    file.write_text('{"StartAt": "A", "States": {"A": {"Type": "Succeed"}}}', encoding="utf-8")
    with pytest.raises(ValueError, match="nothing would ever be re-armed"):
        armed_definition(file, 60)


def test_each_rank_has_a_slot_of_its_own_and_a_random_time_in_it() -> None:
    machine = json.loads(DEFINITION.read_text(encoding="utf-8"))
    states = machine["States"]["Train the replicas"]["ItemProcessor"]["States"]
    expression = Jsonata(states["Wait for the launch slot"]["Timestamp"].removeprefix("{% ").removesuffix(" %}"))
    start = datetime.fromisoformat("2026-01-01T00:00:00.500+00:00")

    def launch_time(rank: int, per_second: int) -> float:
        """Seconds after the start."""
        launch = {"from": "2026-01-01T00:00:00.500Z", "per_second": per_second}
        bindings = Jsonata("null").create_frame()
        bindings.bind("states", {"input": {"launch": launch, "rank": rank}})
        return (datetime.fromisoformat(expression.evaluate(None, bindings)) - start).total_seconds()

    for rank, per_second in ((0, 10), (7, 10), (9_999, 10), (9_999, 1), (3, 1_000)):
        # The workflow counts milliseconds.
        assert rank / per_second - 0.001 <= launch_time(rank, per_second) <= (rank + 1) / per_second
    assert len({launch_time(5, 1) for _ in range(5)}) > 1


def period(given: dict[str, Any], rearm_seconds: int) -> tuple[Any, Any]:
    """The re-arm period of the first attempt, and that of a rerun."""
    children: dict[str, Any] = {**armed_definition(DEFINITION, rearm_seconds)["States"]["Train the replicas"]}
    states = children["ItemProcessor"]["States"]
    given = {**given, "rearm_seconds": children["ItemSelector"]["rearm_seconds"]}

    def evaluated(text: str, data: dict[str, Any], **variables: Any) -> Any:
        expression = Jsonata(text.removeprefix("{% ").removesuffix(" %}"))
        frame = expression.create_frame()
        for name, value in {"states": {"input": data}, **variables}.items():
            frame.bind(name, value)
        return expression.evaluate(None, frame)

    slot, wait = states["Wait for the launch slot"], states["Wait before the rerun"]
    first = evaluated(slot["Output"], given)
    assigned = evaluated(slot["Assign"]["rearm_seconds"], given)
    decided = {"run": "one", "rank": 0, "attempt": 2, "delay_seconds": 7}
    second = evaluated(wait["Output"], decided, rearm_seconds=assigned)
    assert first == {**given, "rearm_seconds": assigned}
    assert second == {**decided, "rearm_seconds": assigned}
    assert evaluated(wait["Seconds"], decided) == 7
    return first["rearm_seconds"], second["rearm_seconds"]


def test_a_run_on_clusters_is_re_armed_as_often_as_its_plan_says_and_no_other_run_more_often() -> None:
    launch = {"from": "2026-01-01T00:00:00.500Z", "per_second": 10}
    assert period({"rank": 0, "launch": launch}, 10_800) == (10_800, 10_800)
    assert period({"rank": 0, "launch": {**launch, "rearm_seconds": 900}}, 10_800) == (900, 900)
    assert period({"rank": 0, "launch": {**launch, "rearm_seconds": 900}}, 12) == (12, 12)


def test_stop_and_settle_are_tried_for_as_long_as_an_attempt() -> None:
    """Their calls are throttled at the same times, and no run may be lost by a few minutes of that."""
    machine = json.loads(DEFINITION.read_text(encoding="utf-8"))["States"]
    states = machine["Train the replicas"]["ItemProcessor"]["States"]

    def tries(state: dict[str, Any]) -> set[tuple[int, int]]:
        return {(retrier["MaxAttempts"], retrier.get("MaxDelaySeconds", 0)) for retrier in state["Retry"]}

    assert (90, 300) in tries(states["Launch the job and wait for its end"])
    assert tries(states["Stop the whole run"]) == tries(machine["Settle the run"]) == {(90, 300)}


# By which Lambda fails for a while: as it is busy, as a function's time is over, as one in a VPC starts after weeks.
PASSING = (
    *("Lambda.ServiceException", "Lambda.TooManyRequestsException", "Lambda.Unknown", "Sandbox.Timedout"),
    *("Lambda.ResourceNotReadyException", "Lambda.ResourceConflictException", "Lambda.EC2ThrottledException"),
    *("Lambda.EC2UnexpectedException", "Lambda.ENILimitReachedException"),
    "Lambda.SubnetIPAddressLimitReachedException",
)


@pytest.mark.parametrize("error", PASSING)
def test_every_task_waits_for_hours_for_what_passes(error: str) -> None:
    def impatient(machine: dict[str, Any]) -> list[str]:
        found = []
        for name, state in machine["States"].items():
            found += impatient(state["ItemProcessor"]) if "ItemProcessor" in state else []
            retriers = (one for one in state.get("Retry", ()) if {error, "States.ALL"} & {*one["ErrorEquals"]})
            if state["Type"] == "Task" and next(retriers)["MaxAttempts"] < 90:
                found.append(name)
        return found

    assert impatient(json.loads(DEFINITION.read_text(encoding="utf-8"))) == []


def test_the_definition_is_of_no_partition(template: Template) -> None:
    # In aws-us-gov and aws-cn a state whose resource is of another partition ends with States.Runtime.
    machine = template.one("AWS::StepFunctions::StateMachine")
    assert "arn:aws:" not in machine["DefinitionString"]
    resources = re.findall(r'"Resource": ?"([^"]+)"', machine["DefinitionString"])
    assert resources
    assert all(resource.startswith("arn:${Partition}:states:::lambda:invoke") for resource in resources)
    # So does one with a placeholder that nothing fills.
    placeholders = {*re.findall(r"\$\{(\w+)\}", machine["DefinitionString"])}
    assert placeholders <= machine["DefinitionSubstitutions"].keys()


def test_no_state_gives_up_before_its_function_does(template: Template) -> None:
    functions = template.of_type("AWS::Lambda::Function")
    timeouts = {name: f["Properties"]["Timeout"] for name, f in functions.items()}

    def check(machine: dict[str, Any]) -> None:
        for name, state in machine["States"].items():
            if "ItemProcessor" in state:
                check(state["ItemProcessor"])
            elif state.get("Type") == "Task":
                called = state.get("Parameters", state.get("Arguments"))["FunctionName"][2:].removesuffix(
                    "FunctionArn}"
                )
                [limit] = [seconds for logical_id, seconds in timeouts.items() if logical_id.startswith(called)]
                # What is no literal is a re-arm period, which no run has shorter than that of runs on clusters.
                seconds = state.get("TimeoutSeconds")
                assert (seconds if isinstance(seconds, int) else retry_budget.REARM_SECONDS) >= limit, name

    check(deployed(template))


def test_the_workflow_keeps_its_history_and_logs_errors_without_inputs(template: Template) -> None:
    properties = template.one("AWS::StepFunctions::StateMachine")
    assert properties["StateMachineType"] == "STANDARD"
    logging = properties["LoggingConfiguration"]
    assert logging["Level"] == "ERROR"
    assert not logging.get("IncludeExecutionData")
    assert logging["Destinations"] == [
        {"CloudWatchLogsLogGroup": {"LogGroupArn": "arn:aws:logs:REGION:ACCOUNT:log-group:Workflow:*"}}
    ]


def test_a_snapshot_that_is_not_ready_is_waited_for_as_patiently_as_a_throttled_call() -> None:
    plain, patient = (json.dumps(armed_definition(DEFINITION, 21_600, snap_start=value)) for value in (False, True))
    assert "SnapStart" not in plain
    throttled = plain.count('"Lambda.TooManyRequestsException"')
    assert throttled > 0
    for error in ("SnapStartException", "SnapStartNotReadyException", "SnapStartTimeoutException"):
        assert patient.count(f'"Lambda.{error}"') == throttled
