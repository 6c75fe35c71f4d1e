"""A failed run goes on as another one: from the last committed round, once, and known from both sides."""

from __future__ import annotations

import hashlib
import json
import re
from datetime import timedelta

import pytest
from safetensors.numpy import load_file

from muster import Muster
from muster.contract.run.result import Verdict
from muster.control.aws.clients import TRIES
from muster.local.faults import CallError
from tests.support.deployed import Deployed, Run
from tests.support.listening import Listener
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

TRAINER = "tests.support.jobs.resuming:train"
# A snapshot every second round: the continuation has a round to replay.
MEETING = {"grace_seconds": 20.0, "timeout_seconds": 60.0, "snapshot_rounds": 2}


@pytest.fixture(scope="module")
def listener(deployed_stack: Deployed) -> Listener:
    return Listener(deployed_stack)


def commits(stack: Deployed, root: str) -> dict[int, dict]:
    """Every commit under a run's name, by round."""
    prefix = f"rendezvous/{root}/commits/"
    found = stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix=prefix)["Contents"]
    bodies = [stack.s3.get_object(Bucket=stack.bucket, Key=item["Key"])["Body"].read() for item in found]
    return {commit["round"]: commit for commit in map(json.loads, bodies)}


def end_event(run: Run) -> dict:
    """The event of the end of a failed execution, as EventBridge sends it."""
    began = run.stack.stepfunctions.describe_execution(executionArn=run.execution_arn)["startDate"]
    times = {"startDate": round(began.timestamp() * 1000)}
    return {"detail": {"executionArn": run.execution_arn, "name": run.name, "status": "FAILED", **times}}


def executions(stack: Deployed, beginning: str) -> list[str]:
    pages = stack.stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=stack.machine)
    names = [item["name"] for page in pages for item in page["executions"]]
    return sorted(name for name in names if name.startswith(beginning))


def test_a_failed_run_goes_on_from_its_last_committed_round_and_succeeds(stack, listener, monkeypatch, tmp_path):
    spec = {
        "replicas": 2,
        "trainer": TRAINER,
        "kwargs": {"rounds": 6, "fail_after": 3, "gate": str(stack.gates / "{run}")},
        "rendezvous": MEETING,
        "rerun": {"on": ["user-code"], "max": 1},
    }
    stack.open_gate("resumed")
    first = stack.start(spec, "resumed")
    assert first.wait()["status"] == "FAILED"
    assert first.result().verdict is Verdict.FAILED
    continued_by = stack.run("resumed-x2")
    wait_until("the continuation", lambda: executions(stack, "resumed-x2"))
    # Whoever settles the run again starts nothing: the workflow's own way, and that of the event of its end.
    stack.invoke("Settle", {"run": "resumed"})
    assert stack.invoke("Stop", end_event(first)) == {"stop": "verified"}
    # Nor does anybody take its jobs for those of the first.
    wait_until("the continuation's jobs", lambda: list(continued_by.statuses().values()) == ["InProgress"] * 2)
    swept = stack.invoke("Sweep", {"young_seconds": 0})
    assert not [job for job in (*swept["stopped"], *swept["foreign"]) if "resumed" in job]
    stack.open_gate("resumed-x2")
    assert continued_by.wait()["status"] == "SUCCEEDED", continued_by.describe().get("cause")
    assert executions(stack, "resumed") == ["resumed", "resumed-x2"]
    # Rounds go on: none twice, none left out, and no seat of the first run takes part in those of the second.
    rounds = commits(stack, "resumed")
    last = max(number for number, commit in rounds.items() if {m["attempt"] for m in commit["members"]} == {1})
    assert (sorted(rounds), last >= 3) == (list(range(1, 7)), True)
    for number, commit in rounds.items():
        assert {member["attempt"] for member in commit["members"]} == ({1} if number <= last else {2})
    for rank in (0, 1):
        replica = continued_by.result().replicas[rank]
        assert (replica.round, replica.metrics["first"]) == (6, last + 1)
        assert replica.checkpoint_uri == f"s3://{stack.bucket}/output/resumed-x2/model/"
    assert continued_by.result().parameters_identical
    # Each knows the other.
    turn_to(monkeypatch, stack.cloud)
    # The model of the lineage is that of the run that came to the end.
    fetched = Muster().run("resumed").model_download(tmp_path / "model").fetch()
    assert (fetched.run, fetched.round, fetched.files) == ("resumed-x2", 6, ("model.safetensors",))
    weights = load_file(tmp_path / "model" / "model.safetensors")["weights"]
    assert continued_by.result().replicas[0].checksum == hashlib.sha256(weights.tobytes()).hexdigest()
    parent, child = Muster().run("resumed").status(), Muster().run("resumed-x2").status()
    assert (parent.continued_by, child.parent, child.round) == ("resumed-x2", "resumed", 6)
    assert listener.wait("Run Rerun", run="resumed")["continued_by"] == "resumed-x2"
    assert listener.wait("Run Started", run="resumed-x2")["parent"] == "resumed"
    # One continued_by is all that a run has.
    refused = stack.start({**spec, "resume_from": "resumed"}, "late").wait()
    assert re.search("resume_from: resumed is already continued by resumed-x2", refused["cause"])


def test_a_chain_ends_where_its_policy_says_and_other_ends_start_nothing(stack, listener):
    failing = {"replicas": 1, "entrypoint": ["python", "-c", "raise SystemExit(3)"]}
    stack.start(failing, "occupied-x2")
    occupied = stack.start({**failing, "rerun": {"on": ["failed"], "max": 1}}, "occupied")
    stack.start({**failing, "rerun": {"on": ["failed"], "max": 2}}, "chain")
    other = stack.start({**failing, "rerun": {"on": ["spot"], "max": 2}}, "otherwise")
    third = wait_until("the last of the chain", lambda: executions(stack, "chain-x3"))
    assert stack.run(third[0]).wait()["status"] == "FAILED"
    assert stack.run("chain-x3").result().verdict is Verdict.FAILED
    assert other.wait()["status"] == "FAILED"
    # The last word of either: an event of its end that comes late.
    for run in (stack.run("chain-x3"), other):
        assert stack.invoke("Stop", end_event(run)) == {"stop": "verified"}
    assert executions(stack, "chain") == ["chain", "chain-x2", "chain-x3"]
    assert executions(stack, "otherwise") == ["otherwise"]
    # A name that somebody else has taken is told, and keeps the end from nothing.
    assert occupied.wait()["status"] == "FAILED"
    assert listener.wait("Run Refused", request=occupied.execution_arn)["error"] == "Muster.RunNameTakenError"
    lineage = json.loads(stack.run("chain-x3").document("control/chain-x3/lineage.json"))
    assert lineage.items() >= {"parent": "chain-x2", "root": "chain", "generation": 2, "attempts_before": 2}.items()


@pytest.mark.parametrize(
    # Refused until the function gives up, and the workflow asks again; or only one answer is lost.
    ("after_effect", "count"),
    [(False, TRIES), (True, 1)],
    ids=["refused", "answer lost"],
)
def test_a_continuation_whose_start_went_wrong_is_started_once(stack, after_effect, count):
    name = f"restart-{after_effect}".lower()
    fault = CallError(
        service="states", operation="StartExecution", resource=f"{name}-x2", after_effect=after_effect, count=count
    )
    placed = stack.cloud.faults.add(fault)
    failing = {"replicas": 1, "entrypoint": ["python", "-c", "raise SystemExit(3)"]}
    first = stack.start({**failing, "rerun": {"on": ["failed"], "max": 1}}, name)
    assert first.wait()["status"] == "FAILED"
    assert placed.fired == count
    wait_until("the continuation", lambda: executions(stack, f"{name}-x2"))
    stack.run(f"{name}-x2").wait()
    assert executions(stack, name) == [name, f"{name}-x2"]


def test_what_cannot_be_resumed_is_refused(stack):
    going = stack.start(stack.gated("going"), "going")
    wait_until("the plan", lambda: going.document(going.layout.plan))
    for run, problem in (("nobody", "is not a run of this stack"), ("going", "has not ended")):
        refused = stack.start({"replicas": 1, "entrypoint": ["python", "-c", "pass"], "resume_from": run}).wait()
        assert f"resume_from: {run} {problem}" in refused["cause"]


def test_a_run_is_continued_years_later_unless_its_rounds_were_deleted(stack):
    spec = {
        "replicas": 1,
        "trainer": TRAINER,
        "kwargs": {"rounds": 6, "fail_after": 3, "gate": str(stack.gates / "{run}")},
        "rendezvous": MEETING,
    }
    for name in ("kept", "kept-x2"):
        stack.open_gate(name)
    assert stack.start(spec, "kept").wait()["status"] == "FAILED"
    before = commits(stack, "kept")
    assert stack.run("kept").result().committed_rounds == len(before) >= 3
    gone = stack.cloud.clock.advance(timedelta(days=3_000))
    assert not [key for key in gone if "/rendezvous/" in key or "/control/" in key or "/checkpoints/" in key]
    continued = stack.start({**spec, "resume_from": "kept"}, "kept-x2")
    assert continued.wait()["status"] == "SUCCEEDED", continued.describe().get("cause")
    after = commits(stack, "kept")
    assert sorted(after) == list(range(1, 7))
    assert {number: after[number] for number in before} == before, "no round was trained a second time"
    assert continued.result().committed_rounds == 6
    # Without its rounds a run has no continuation: none begins anew by mistake.
    for page in stack.s3.get_paginator("list_objects_v2").paginate(Bucket=stack.bucket, Prefix="rendezvous/kept/"):
        for item in page["Contents"]:
            stack.s3.delete_object(Bucket=stack.bucket, Key=item["Key"])
    refused = stack.start({**spec, "resume_from": "kept-x2"}, "too-late").wait()
    assert (refused["status"], refused["error"]) == ("FAILED", "Muster.SpecError")
    assert (
        f"resume_from: the rounds of kept-x2 were deleted from s3://{stack.bucket}/rendezvous/kept/" in refused["cause"]
    )
