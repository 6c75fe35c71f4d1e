"""Executions and task tokens: idempotent starts, ends, listings, events, and answers that come too late."""

import json
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any

import pytest

from tests.conformance.backends import Backend, has_ended, refusal

TAKEN = ("ExecutionAlreadyExists", 400)
OVER = ("TaskTimedOut", 400)


def describe(backend: Backend, arn: str) -> dict[str, Any]:
    return dict(backend.client("stepfunctions").describe_execution(executionArn=arn))


def test_the_same_start_is_the_same_execution_while_it_runs(backend: Backend) -> None:
    client, document = backend.client("stepfunctions"), '{"a": 1}'
    name, arn = backend.start_execution(document)
    again = client.start_execution(stateMachineArn=backend.machine_arn, name=name, input=document)
    first = describe(backend, arn)
    assert (again["executionArn"], again["startDate"]) == (arn, first["startDate"])
    # An answer says the time, by the clock of the times in it.
    answered = parsedate_to_datetime(again["ResponseMetadata"]["HTTPHeaders"]["date"])
    assert timedelta(seconds=-1) < answered - again["startDate"] < timedelta(seconds=30)
    start = {"stateMachineArn": backend.machine_arn, "name": name}
    # Inputs are compared as texts.
    for other in ('{"a": 2}', '{"a":1}'):
        assert refusal(client.start_execution, **start, input=other) == TAKEN
    token = backend.wait_on_token(name)
    stopped = client.stop_execution(executionArn=arn, error="Muster.Cancelled", cause="by a test")
    assert refusal(client.start_execution, **start, input=document) == TAKEN
    shown = describe(backend, arn)
    assert (shown["status"], shown["error"], shown["cause"]) == ("ABORTED", "Muster.Cancelled", "by a test")
    assert shown["stopDate"] == stopped["stopDate"]
    assert refusal(client.send_task_success, taskToken=token, output="{}")[0] in {"TaskTimedOut", "TaskDoesNotExist"}


@pytest.mark.parametrize("answered", ["success", "failure"])
def test_an_execution_ends_with_what_its_token_brings(backend: Backend, answered: str) -> None:
    client = backend.client("stepfunctions")
    name, arn = backend.start_execution()
    assert describe(backend, arn)["status"] == "RUNNING"
    token = backend.wait_on_token(name)
    if answered == "success":
        assert refusal(client.send_task_success, taskToken=token, output="no JSON") == ("InvalidOutput", 400)
        # The task waits on.
        assert describe(backend, arn)["status"] == "RUNNING"
        client.send_task_success(taskToken=token, output='{"b": 2}')
    else:
        client.send_task_failure(taskToken=token, error="Some.Error", cause="a cause")
    backend.end_execution(name, token)
    shown = describe(backend, arn)
    assert shown["startDate"] <= shown["stopDate"]
    assert (shown["name"], shown["input"]) == (name, "{}")
    if answered == "success":
        assert shown["status"] == "SUCCEEDED"
        assert json.loads(shown["output"]) == {"b": 2}
    else:
        assert (shown["status"], shown["error"], shown["cause"]) == ("FAILED", "Some.Error", "a cause")
    # Too late, and twice.
    assert refusal(client.send_task_success, taskToken=token, output="{}") == OVER
    assert refusal(client.send_task_failure, taskToken=token) == OVER
    assert refusal(client.stop_execution, executionArn=arn) == ("ValidationException", 400)


def test_what_is_missing_malformed_or_too_long_is_refused(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    missing = f"{backend.machine_arn.replace(':stateMachine:', ':execution:')}:{backend.name('missing')}"
    token = {"taskToken": "none"}
    calls: dict[str, list[tuple[Any, dict[str, Any]]]] = {
        "ExecutionDoesNotExist": [
            (call, {"executionArn": missing}) for call in (client.describe_execution, client.stop_execution)
        ],
        "InvalidArn": [(client.describe_execution, {"executionArn": "no ARN"})],
        "InvalidToken": [
            (client.send_task_success, {**token, "output": "{}"}),
            (client.send_task_failure, {**token, "error": "E", "cause": "c"}),
        ],
        "ValidationException": [(client.send_task_failure, {**token, "error": "e" * 257})],
    }
    start = {"stateMachineArn": backend.machine_arn, "name": backend.name("run")}
    for code, changes in (
        ("StateMachineDoesNotExist", {"stateMachineArn": f"{backend.machine_arn}-none"}),
        ("InvalidName", {"name": "a b"}),
        ("InvalidName", {"name": "a/b"}),
        ("ValidationException", {"name": "n" * 81}),
        ("InvalidExecutionInput", {"input": "no JSON"}),
        ("ValidationException", {"input": json.dumps("x" * 262_144)}),
    ):
        calls.setdefault(code, []).append((client.start_execution, {**start, **changes}))
    for code, refused in calls.items():
        for call, parameters in refused:
            assert refusal(call, **parameters) == (code, 400), str(parameters)[:200]


def test_a_listing_is_by_status_with_the_newest_first(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    alive = [backend.start_execution() for _ in range(3)]
    ended = [backend.start_execution() for _ in range(3)]
    for _, arn in ended:
        client.stop_execution(executionArn=arn)
    pages = client.get_paginator("list_executions")

    def listed(status: str) -> list[dict[str, Any]]:
        answers = pages.paginate(
            stateMachineArn=backend.machine_arn, statusFilter=status, PaginationConfig={"PageSize": 2}
        )
        return [row for answer in answers for row in answer["executions"]]

    # Other tests leave executions, older ones.
    aborted = listed("ABORTED")
    assert {row["status"] for row in aborted} == {"ABORTED"}
    assert {arn for _, arn in ended} == {row["executionArn"] for row in aborted[:3]}
    assert [row["stopDate"] for row in aborted] == sorted((row["stopDate"] for row in aborted), reverse=True)
    running = listed("RUNNING")
    assert {arn for _, arn in alive} <= {row["executionArn"] for row in running}
    assert not any("stopDate" in row for row in running)
    assert len({row["executionArn"] for row in running}) == len(running)


def test_every_change_is_an_event(backend: Backend) -> None:
    document = '{"some": "input"}'
    name, arn = backend.start_execution(document)
    backend.client("stepfunctions").stop_execution(executionArn=arn, error="E", cause="c")
    first, last = backend.events(arn, has_ended)
    shown = describe(backend, arn)
    assert {event["source"] for event in (first, last)} == {"aws.states"}
    assert {event["detail-type"] for event in (first, last)} == {"Step Functions Execution Status Change"}
    assert (first["detail"]["status"], first["detail"]["stopDate"]) == ("RUNNING", None)
    detail = last["detail"]
    assert {name: detail[name] for name in ("executionArn", "stateMachineArn", "name", "status", "input")} == {
        "executionArn": arn,
        "stateMachineArn": backend.machine_arn,
        "name": name,
        "status": "ABORTED",
        "input": document,
    }
    assert abs(detail["stopDate"] - round(shown["stopDate"].timestamp() * 1000)) <= 1
    assert detail["output"] is None
