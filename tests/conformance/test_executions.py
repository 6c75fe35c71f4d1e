"""Executions and task tokens: idempotent starts, ends, listings, events, and answers that come too late."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conformance.backends import Backend, MemoryBackend, has_ended, refusal

GONE = {("TaskTimedOut", 400), ("TaskDoesNotExist", 400), ("InvalidToken", 400)}
TAKEN = ("ExecutionAlreadyExists", 400)


def describe(backend: Backend, arn: str) -> dict[str, Any]:
    return dict(backend.client("stepfunctions").describe_execution(executionArn=arn))


def test_the_same_start_is_the_same_execution_while_it_runs(backend: Backend) -> None:
    client, document = backend.client("stepfunctions"), '{"a": 1}'
    name, arn = backend.start_execution(document)
    again = client.start_execution(stateMachineArn=backend.machine_arn, name=name, input=document)
    first = describe(backend, arn)
    assert (again["executionArn"], again["startDate"]) == (arn, first["startDate"])
    start = {"stateMachineArn": backend.machine_arn, "name": name}
    assert refusal(client.start_execution, **start, input='{"a": 2}') == TAKEN
    # Inputs are compared as texts.
    assert refusal(client.start_execution, **start, input='{"a":1}') == TAKEN
    client.stop_execution(executionArn=arn)
    assert refusal(client.start_execution, **start, input=document) == TAKEN


@pytest.mark.parametrize("answered", ["success", "failure"])
def test_an_execution_ends_with_what_its_token_brings(backend: Backend, answered: str) -> None:
    client = backend.client("stepfunctions")
    name, arn = backend.start_execution()
    assert describe(backend, arn)["status"] == "RUNNING"
    token = backend.wait_on_token(name)
    if answered == "success":
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
    assert refusal(client.send_task_success, taskToken=token, output="{}") in GONE
    assert refusal(client.send_task_failure, taskToken=token) in GONE


def test_a_token_of_a_stopped_execution_is_gone(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    name, arn = backend.start_execution()
    token = backend.wait_on_token(name)
    client.stop_execution(executionArn=arn)
    assert refusal(client.send_task_success, taskToken=token, output="{}") in GONE


@pytest.mark.parametrize("token", ["none", "AQ" * 200])
def test_a_token_that_was_never_given_is_refused(backend: Backend, token: str) -> None:
    client = backend.client("stepfunctions")
    assert refusal(client.send_task_success, taskToken=token, output="{}") in GONE
    assert refusal(client.send_task_failure, taskToken=token, error="E", cause="c") in GONE


def test_a_token_that_is_none_has_a_code_of_its_own(backend: Backend) -> None:
    call = backend.client("stepfunctions").send_task_success
    assert refusal(call, taskToken="none", output="{}") == ("InvalidToken", 400)


def test_a_token_that_was_used_has_timed_out(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    name, _ = backend.start_execution()
    token = backend.wait_on_token(name)
    client.send_task_success(taskToken=token, output="{}")
    backend.end_execution(name, token)
    assert refusal(client.send_task_success, taskToken=token, output="{}") == ("TaskTimedOut", 400)


def test_an_output_is_json(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    name, arn = backend.start_execution()
    token = backend.wait_on_token(name)
    assert refusal(client.send_task_success, taskToken=token, output="no JSON") == ("InvalidOutput", 400)
    # The task waits on.
    assert describe(backend, arn)["status"] == "RUNNING"
    assert client.send_task_success(taskToken=token, output="{}")


def test_a_token_times_out_with_its_task(memory: MemoryBackend) -> None:
    client, workflow = memory.client("stepfunctions"), memory.cloud.workflow
    name, _ = memory.start_execution()
    timed, untimed = workflow.token(name, timeout_seconds=60), workflow.token(name)
    memory.cloud.clock.advance(59)
    assert client.send_task_success(taskToken=timed, output="{}")
    late = workflow.token(name, timeout_seconds=60)
    memory.cloud.clock.advance(60)
    assert refusal(client.send_task_success, taskToken=late, output="{}") == ("TaskTimedOut", 400)
    workflow.expire(untimed)
    assert refusal(client.send_task_failure, taskToken=untimed) == ("TaskTimedOut", 400)
    assert [answer.token for answer in workflow.answers] == [timed]


def test_stop_aborts_with_its_error_and_cause(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    _, arn = backend.start_execution()
    stopped = client.stop_execution(executionArn=arn, error="Muster.Cancelled", cause="by a test")
    shown = describe(backend, arn)
    assert (shown["status"], shown["error"], shown["cause"]) == ("ABORTED", "Muster.Cancelled", "by a test")
    assert shown["stopDate"] == stopped["stopDate"]


def test_an_execution_that_has_succeeded_cannot_be_stopped(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    name, arn = backend.start_execution()
    token = backend.wait_on_token(name)
    client.send_task_success(taskToken=token, output="{}")
    backend.end_execution(name, token)
    assert refusal(client.stop_execution, executionArn=arn) == ("ValidationException", 400)
    assert describe(backend, arn)["status"] == "SUCCEEDED"


def test_what_does_not_exist(backend: Backend) -> None:
    client = backend.client("stepfunctions")
    arn = f"{backend.machine_arn.replace(':stateMachine:', ':execution:')}:{backend.name('missing')}"
    assert refusal(client.describe_execution, executionArn=arn) == ("ExecutionDoesNotExist", 400)
    assert refusal(client.stop_execution, executionArn=arn) == ("ExecutionDoesNotExist", 400)
    start = {"stateMachineArn": f"{backend.machine_arn}-none", "name": "n"}
    assert refusal(client.start_execution, **start) == ("StateMachineDoesNotExist", 400)


@pytest.mark.parametrize(
    ("name", "code"), [("a b", "InvalidName"), ("a/b", "InvalidName"), ("n" * 81, "ValidationException")]
)
def test_a_name_is_checked(backend: Backend, name: str, code: str) -> None:
    start = backend.client("stepfunctions").start_execution
    assert refusal(start, stateMachineArn=backend.machine_arn, name=name) == (code, 400)


def test_an_input_is_json(backend: Backend) -> None:
    start, name = backend.client("stepfunctions").start_execution, backend.name("run")
    refused = refusal(start, stateMachineArn=backend.machine_arn, name=name, input="no JSON")
    assert refused == ("InvalidExecutionInput", 400)


def test_an_arn_is_checked(backend: Backend) -> None:
    call = backend.client("stepfunctions").describe_execution
    assert refusal(call, executionArn="no ARN") == ("InvalidArn", 400)


def test_an_input_has_an_end(backend: Backend) -> None:
    start, document = backend.client("stepfunctions").start_execution, json.dumps("x" * 262_144)
    refused = refusal(start, stateMachineArn=backend.machine_arn, name=backend.name("run"), input=document)
    assert refused == ("ValidationException", 400)


def test_an_error_has_an_end(backend: Backend) -> None:
    call = backend.client("stepfunctions").send_task_failure
    assert refusal(call, taskToken="none", error="e" * 257) == ("ValidationException", 400)


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


def test_executions_of_one_instant_are_listed_newest_first(memory: MemoryBackend) -> None:
    names = [memory.start_execution()[0] for _ in range(3)]
    rows = memory.client("stepfunctions").list_executions(stateMachineArn=memory.machine_arn)["executions"]
    assert [row["name"] for row in rows] == names[::-1]


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


def test_an_execution_is_forgotten_after_ninety_days(memory: MemoryBackend) -> None:
    client = memory.client("stepfunctions")
    name, arn = memory.start_execution('{"a": 1}')
    memory.cloud.clock.advance(100 * 86_400)
    memory.cloud.workflow.succeed(name)
    memory.cloud.clock.advance(89 * 86_400)
    assert describe(memory, arn)["status"] == "SUCCEEDED"
    memory.cloud.clock.advance(86_400)
    assert refusal(client.describe_execution, executionArn=arn) == ("ExecutionDoesNotExist", 400)
    assert memory.start_execution('{"a": 2}', name) == (name, arn)
