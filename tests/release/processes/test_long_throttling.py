"""SageMaker throttles for most of a function's time: nothing is left alive, and a success stays a success.

A minute is a second here: functions that have 15 minutes on AWS beside their reserve have 15 seconds, and Lambda tries
again after one second.
"""

import time
from collections.abc import Iterator

import pytest

from muster import Muster
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.local.faults import throttled
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

FUNCTION_SECONDS = 45 + 15  # what a function keeps in reserve at its end is not shortened
STORM_SECONDS = 12.0


@pytest.fixture
def hurried(stack: Deployed) -> Iterator[Deployed]:
    """The stack with the time-outs of Stop and Settle shortened."""
    names = [stack.function_name(name) for name in ("Stop", "Settle")]
    before = {name: stack.functions.get_function_configuration(FunctionName=name)["Timeout"] for name in names}
    for name in names:
        stack.functions.update_function_configuration(FunctionName=name, Timeout=FUNCTION_SECONDS)
    yield stack
    for name, seconds in before.items():
        stack.functions.update_function_configuration(FunctionName=name, Timeout=seconds)


def test_a_cancel_while_no_job_can_be_stopped_for_twelve_minutes_leaves_nothing_alive(
    hurried: Deployed, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = hurried
    turn_to(monkeypatch, stack.cloud)
    run = stack.start(stack.gated("storm", replicas=3))
    run.wait_for_training(0, 1, 2)
    storm = stack.cloud.faults.add(throttled("sagemaker", "StopTrainingJob", count=None))
    began = time.monotonic()
    assert Muster().run(run.name).cancel().stopped == (run.name,)
    storm.wait()
    wait_until("the end of the storm", lambda: time.monotonic() - began >= STORM_SECONDS)
    assert len(stack.cloud.running_jobs()) == 3
    storm.remove()
    wait_until("the end of every job", lambda: not stack.cloud.running_jobs(), seconds=60)
    result = run.result()
    assert result.verdict is Verdict.STOPPED
    wait_until("the last status", lambda: set(run.statuses().values()) == {"Stopped"})
    assert stack.calls("CreateTrainingJob") == 3
    assert Muster().run(run.name).status().state == "stopped"


def test_a_settlement_while_no_job_can_be_listed_stays_a_success(hurried: Deployed) -> None:
    stack = hurried
    refused = stack.cloud.faults.add(throttled("sagemaker", "ListTrainingJobs", count=None))
    run = stack.start({"replicas": 2, "entrypoint": ["python", "-c", "pass"]})
    ended = run.wait()
    assert refused.fired > 0
    result = run.result()
    assert (ended["status"], result.verdict) == ("SUCCEEDED", Verdict.SUCCEEDED)
    assert [replica.outcome for replica in result.replicas] == [ReplicaOutcome.SUCCEEDED] * 2
