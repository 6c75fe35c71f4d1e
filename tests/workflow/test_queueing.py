"""A stack that caps its concurrent replicas: runs queue up, and nobody polls."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster import Muster
from muster.contract.run.run_queue import QUEUE_KEY
from tests.support.deployed import Deployed, Run
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

CAP = 2
VARIABLE = "MUSTER_MAX_CONCURRENT_REPLICAS"


@pytest.fixture(scope="module", autouse=True)
def _capped(deployed_stack: Deployed) -> Iterator[None]:
    """What `-c max_concurrent_replicas=2` sets on every function."""
    names = [deployed_stack.function_name(name) for name in ("Plan", "Admit", "Settle", "Stop", "Sweep")]
    before = {
        name: deployed_stack.functions.get_function_configuration(FunctionName=name)["Environment"] for name in names
    }
    for name, environment in before.items():
        variables = {**environment["Variables"], VARIABLE: str(CAP)}
        deployed_stack.functions.update_function_configuration(FunctionName=name, Environment={"Variables": variables})
    yield
    for name, environment in before.items():
        deployed_stack.functions.update_function_configuration(FunctionName=name, Environment=environment)
    deployed_stack.s3.delete_object(Bucket=deployed_stack.bucket, Key=QUEUE_KEY)


def waits(run: Run) -> bool:
    body = run.document(QUEUE_KEY)
    return body is not None and f'"{run.name}"'.encode() in body


def test_runs_wait_for_their_turn_in_the_order_in_which_they_came(stack, monkeypatch):
    first = stack.start(stack.gated("first"))
    first.wait_for_status(0, 1, "Training")
    large = stack.start(stack.gated("large", replicas=2))
    wait_until("the large run in the queue", lambda: waits(large))
    small = stack.start(stack.gated("small"))
    wait_until("the small run in the queue", lambda: waits(small))
    turn_to(monkeypatch, stack.cloud)
    assert Muster().run(large.name).status().behind == (first.name,)
    assert Muster().run(small.name).status().behind == (first.name, large.name)
    verdict = Muster().run(small.name).live_page().look().verdict
    assert verdict == f"The run is in progress: queued behind {first.name}, {large.name}."
    # It would fit beside the first one, and is not let past.
    assert small.statuses() == {}
    stack.open_gate("first")
    assert first.wait()["status"] == "SUCCEEDED"
    large.wait_for_training(0, 1)
    assert small.statuses() == {}
    # A run that is cancelled leaves the queue when its jobs are gone.
    stack.stepfunctions.stop_execution(executionArn=large.execution_arn)
    small.wait_for_status(0, 1, "Training")
    assert set(large.statuses().values()) == {"Stopped"}
    stack.open_gate("small")
    assert small.wait()["status"] == "SUCCEEDED"
    wait_until("an empty queue", lambda: not any(map(waits, (first, large, small))))


def test_a_run_that_was_settled_and_could_not_say_so_is_cleared_away(stack):
    lost = stack.start(stack.gated("lost-queued", replicas=2))
    lost.wait_for_status(1, 1, "Training")
    held = lost.document(QUEUE_KEY)
    stack.open_gate("lost-queued")
    assert lost.wait()["status"] == "SUCCEEDED"
    assert not waits(lost)
    etag = stack.s3.head_object(Bucket=stack.bucket, Key=QUEUE_KEY)["ETag"]
    stack.s3.put_object(Bucket=stack.bucket, Key=QUEUE_KEY, Body=held, IfMatch=etag)
    following = stack.start({"replicas": 2, "entrypoint": ["python", "-c", "pass"]})
    assert following.wait()["status"] == "SUCCEEDED"
    assert not waits(lost)


def test_a_run_larger_than_the_cap_is_refused(stack):
    ended = stack.start({"replicas": 3, "entrypoint": ["python"]}).wait()
    assert (ended["status"], ended["error"]) == ("FAILED", "Muster.SpecError")
    assert (
        "replicas: found 3; at most 2, the stack's max_concurrent_replicas; lower it, or raise the limit"
        in ended["cause"]
    )
