"""A client with the permissions of `muster policy`, and no others, can do everything that a client does."""

import itertools
import json
from pathlib import Path
from typing import Any

import boto3
import pytest

from muster import DeadLetter, Muster, RunState
from muster.client.aws.user_policy import user_policy
from muster.client.client_errors import DeniedError
from muster.contract.layout import RunLayout
from muster.local.faults import CallError
from muster.options.verify.client.check_outcomes import CheckOutcome
from muster.options.verify.client.stack_checks import orphans
from muster.options.verify.client.verified_stack import Account
from tests.support.deployed import Deployed
from tests.support.waiting import wait_until
from tests.support.workshop import Workshop, turn_to

_names = itertools.count(1)


def allow(actions: str, *resources: str) -> dict[str, Any]:
    return {"Effect": "Allow", "Action": actions.split(), "Resource": list(resources)}


def for_operators(stack: Deployed) -> list[dict[str, Any]]:
    """What `muster deadletters` needs beside the stack's outputs."""
    queue = f"arn:aws:sqs:*:*:{stack.outputs['DeadLetterQueueUrl'].rpartition('/')[2]}"
    functions = json.loads(stack.outputs["FunctionNames"]).values()
    return [
        allow("cloudformation:DescribeStacks", "arn:aws:cloudformation:*:*:stack/Muster/*"),
        allow("sqs:ReceiveMessage sqs:ChangeMessageVisibility sqs:DeleteMessage", queue),
        allow("lambda:InvokeFunction", *(f"arn:aws:lambda:*:*:function:{name}" for name in functions)),
    ]


@pytest.fixture
def muster(stack: Deployed, monkeypatch: pytest.MonkeyPatch) -> Muster:
    turn_to(monkeypatch, stack.cloud)
    key = Workshop(stack.cloud).access_key(user_policy(Muster()._cloud.stack)["Statement"])
    return Muster(session=boto3.Session(key["AccessKeyId"], key["SecretAccessKey"]))


def test_the_documented_permissions_of_operators_are_enough_for_dead_letters(
    stack: Deployed, muster: Muster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """React cannot read the record while the job ends, so its event becomes a letter, which an operator replays."""
    turn_to(monkeypatch, stack.cloud)
    key = Workshop(stack.cloud).access_key(for_operators(stack))
    operator = Muster(session=boto3.Session(key["AccessKeyId"], key["SecretAccessKey"]))
    gate = f"letters-{next(_names)}"
    run = stack.start(stack.gated(gate))
    run.wait_for_record(0, "Training")
    react = json.loads(stack.outputs["FunctionNames"])["react"]
    role = stack.functions.get_function_configuration(FunctionName=react)["Role"].rpartition("/")[2]
    denied = CallError(
        service="s3", operation="GetObject", caller=f"*{role}*", code="AccessDenied", status=403, count=None
    )
    stack.cloud.faults.add(denied)
    stack.open_gate(gate)

    def of_the_end() -> list[DeadLetter]:
        letters = operator.dead_letters().letters
        return [one for one in letters if one.run == run.name and one.event.endswith("Completed Completed")]

    [letter] = wait_until("the dead letter", of_the_end)
    assert (letter.function, letter.given_up_by) == ("react", "lambda")
    assert "AccessDenied" in letter.error
    assert operator.replay_dead_letters([letter.id]).replayed == (letter,)
    # The function is called, and fails again.
    [again] = wait_until("the dead letter of the replay", of_the_end)
    assert again.id != letter.id
    stack.cloud.faults.clear()
    assert operator.replay_dead_letters([again.id]).replayed == (again,)
    assert run.wait()["status"] == "SUCCEEDED"
    # Those of its earlier events.
    wait_until("an empty queue", lambda: not operator.replay_dead_letters().replayed)
    with pytest.raises(DeniedError, match="not allowed to call ReceiveMessage"):
        muster.dead_letters()


def test_the_documented_permissions_are_enough_and_keep_the_control_planes_own(
    muster: Muster, stack: Deployed, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "from tests.support.jobs import resuming\n\n\n"
        "def train(context, **kwargs):\n    resuming.train(context, **kwargs)\n"
    )
    run = muster.launch(
        {
            "name": f"permitted-{next(_names)}",
            "replicas": 1,
            "trainer": "own:train",
            "source_dir": str(tmp_path),
            # The continuation does not end before it is cancelled.
            "kwargs": {"rounds": 9**9, "fail_after": 1},
            "continue": {"on": ["spot"], "max": 1},
        }
    )
    assert run.wait(timeout=120).state is RunState.FAILED
    assert any("the data of round 2 is broken" in line.message for line in run.logs())
    assert {event.kind for event in run.events()} >= {"replica-launched", "round-committed", "run-settled"}
    assert (run.result().verdict, muster.list(limit=1)[0].run) == ("failed", run.name)
    assert b"<html" in run.report()
    continued_by = run.start_continuation()
    # A job that is being born when the run is cancelled is stopped when it reports; here none is to be under way.
    wait_until("the continuation's job", lambda: "InProgress" in stack.run(continued_by.name).statuses().values())
    continued_by.cancel()
    assert continued_by.wait(timeout=120).state is RunState.STOPPED
    assert [check.outcome for check in orphans(Account(muster._cloud), young_seconds=0)] == [CheckOutcome.OK]
    assert not muster._cloud.jobs.stop(stack.run(run.name).job()), "it has ended"
    # As a replica leaves a model: the runs here end without one.
    layout = RunLayout(run.name)
    for key in (f"{layout.model}a/b.txt", layout.model_manifest(1)):
        stack.s3.put_object(Bucket=stack.bucket, Key=key, Body=b"x")
        assert muster._cloud.objects.read(key) == b"x"
    # The records hold task tokens.
    with pytest.raises(DeniedError, match="not allowed to call GetObject"):
        muster._cloud.objects.read(f"control/{run.name}/replicas/0.json")
