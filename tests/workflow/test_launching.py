"""How the replicas of a run are launched: at the account's pace, by slots that nobody hands out."""

from __future__ import annotations

import json
from datetime import datetime
from itertools import pairwise

from muster import Muster
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.control.timers import Fired
from muster.infra.settings.stack_settings import RunsTable
from muster.local.faults import CapacityError, LostInstance, QuotaError, SlowStart
from tests.support.deployed import Run
from tests.support.waiting import wait_until
from tests.support.workshop import turn_to

PASS = {"entrypoint": ["python", "-c", "pass"]}
RATE = RunsTable().launches_per_second


def created_after_seconds(run: Run, rank: int) -> float:
    """From the start of the execution to the creation of the rank's first job."""
    job = run.stack.sagemaker.describe_training_job(TrainingJobName=run.job(rank))
    return (job["CreationTime"] - run.describe()["startDate"]).total_seconds()


def test_no_rank_is_launched_before_its_slot(stack):
    run = stack.start({**PASS, "replicas": 24})
    assert run.wait()["status"] == "SUCCEEDED"
    early = {rank: at for rank in range(24) if (at := created_after_seconds(run, rank)) < rank / RATE}
    assert early == {}
    assert stack.calls("CreateTrainingJob") == 24


def test_a_replica_that_waits_for_quota_is_seen_waiting_and_launched_in_the_end(stack, monkeypatch):
    struck = stack.cloud.faults.add(QuotaError(job="*-r1-*", count=2))
    budget = {"quota": {"max_reruns": 3, "delay_seconds": 4}}
    run = stack.start(stack.gated("quota", replicas=2, reruns=budget))
    turn_to(monkeypatch, stack.cloud)
    seen = Muster().run(run.name)
    wait_until("the wait in the status", lambda: seen.status().replicas[1].waiting_for is FailureClass.QUOTA)
    page = seen.live_page().look()
    assert page.replicas[1].state == "waiting for quota"
    assert "1 waits for quota" in page.verdict
    run.wait_for_status(1, 3, "Training")
    assert seen.status().replicas[1].waiting_for is None
    assert "2 of 2 replicas have a job" in seen.live_page().look().verdict
    stack.open_gate("quota")
    assert run.wait()["status"] == "SUCCEEDED"
    attempts = run.result().replicas[1].attempts
    assert [attempt.failure_class for attempt in attempts] == [FailureClass.QUOTA, FailureClass.QUOTA, None]
    waits = [
        datetime.fromisoformat(later.launched_at) - datetime.fromisoformat(earlier.ended_at or "")
        for earlier, later in pairwise(attempts)
    ]
    assert waits[0].total_seconds() >= 4
    assert waits[1].total_seconds() >= 8
    assert struck.fired == 2


def test_a_replica_without_capacity_takes_the_next_instance_type_at_once(stack):
    stack.cloud.faults.add(CapacityError(job="*-r0-a1"))
    stack.cloud.faults.add(QuotaError(job="*-r0-a2"))
    types = {"instance_type": "ml.g5.xlarge", "fallback_instance_types": ["ml.g5.2xlarge", "ml.g4dn.xlarge"]}
    run = stack.start({**PASS, **types, "replicas": 1})
    assert run.wait()["status"] == "SUCCEEDED"
    classes = [attempt.failure_class for attempt in run.result().replicas[0].attempts]
    assert classes == [FailureClass.CAPACITY, FailureClass.QUOTA, None]
    taken = [
        stack.sagemaker.describe_training_job(TrainingJobName=run.job(0, attempt))["ResourceConfig"]["InstanceType"]
        for attempt in (1, 3)
    ]
    assert taken == ["ml.g5.xlarge", "ml.g4dn.xlarge"]


def test_a_run_whose_gate_stays_shut_stops_all_its_replicas_and_says_why(stack):
    stack.cloud.faults.add(SlowStart(job="*-r1-a1", seconds=90))
    gate = {"replicas": 2, "within_seconds": 5}
    run = stack.start(stack.gated("shut", replicas=2, launch_gate=gate))
    ended = run.wait()
    assert ended["status"] == "FAILED"
    why, _, _ = ended["cause"].partition("\n\n")
    assert why.startswith("launch gate: ")
    assert why.endswith("of the required 2 replicas were training after 5 s")
    assert set(run.statuses().values()) <= {"Stopped"}
    ends = {replica.outcome for replica in run.result().replicas}
    assert ends <= {ReplicaOutcome.STOPPED, ReplicaOutcome.NOT_LAUNCHED}
    assert stack.invoke("Timer", {"run": run.name, "timer": "launch-gate"}) == {"timer": Fired.OVER.value}


def test_a_run_passes_its_gate_is_stopped_at_its_deadline_and_says_why(stack):
    stack.cloud.faults.add(LostInstance(job="*-r1-a1"))
    budget = {"infrastructure": {"max_reruns": 1, "delay_seconds": 5}}
    # Both timers fire by hand.
    gate = {"replicas": 1, "within_seconds": 1_000}
    run = stack.start(stack.gated("late", replicas=2, launch_gate=gate, deadline_seconds=1_001, reruns=budget))
    run.wait_for_status(0, 1, "Training")
    # By the job itself: the record may not know yet.
    assert stack.invoke("Timer", {"run": run.name, "timer": "launch-gate"}) == {"timer": Fired.PASSED.value}
    name = f"{stack.prefix}-{run.name}-deadline"
    deadline = json.loads(stack.cloud.client("scheduler").get_schedule(Name=name)["Target"]["Input"])
    assert stack.invoke("Timer", deadline) == {"timer": Fired.STOPPED.value}
    ended = run.wait()
    why, _, _ = ended["cause"].partition("\n\n")
    assert (ended["status"], why) == ("FAILED", "deadline: the run had not ended 1,001 s after its launch")
    assert "InProgress" not in run.statuses().values()
    assert run.result().verdict is Verdict.FAILED


def test_nothing_is_rerun_once_the_cost_ceiling_is_reached_and_the_verdict_says_so(stack):
    stack.cloud.faults.add(LostInstance(job="*-r0-a1", after_seconds=2))
    # About 2 cents a second.
    run = stack.start(stack.gated("ceiling", instance_type="ml.p5.48xlarge", cost_ceiling_usd=0.02))
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert "the cost ceiling of $0.02 is reached (about $" in ended["cause"]
    assert run.statuses() == {"r0-a1": "Failed"}
    assert [attempt.failure_class for attempt in run.result().replicas[0].attempts] == [FailureClass.INFRASTRUCTURE]


def test_a_deadline_far_away_keeps_no_run_alive_and_is_set_once(stack):
    spec = {**PASS, "replicas": 1, "deadline_seconds": 30_000_000}
    run = stack.start(spec)
    ended = run.wait()
    assert ended["status"] == "SUCCEEDED"
    schedules = stack.cloud.client("scheduler")
    name = f"{stack.prefix}-{run.name}-deadline"
    before = schedules.get_schedule(Name=name)
    # A call of plan whose answer was lost is made again.
    again = {
        "execution_name": run.name,
        "execution_arn": run.execution_arn,
        "started_at": ended["startDate"].isoformat(),
        "input": spec,
    }
    assert stack.invoke("Plan", again)["accepted"] is True
    assert schedules.get_schedule(Name=name)["ScheduleExpression"] == before["ScheduleExpression"]
    assert before["ActionAfterCompletion"] == "DELETE"
    assert stack.invoke("Timer", {"run": run.name, "timer": "deadline"}) == {"timer": Fired.OVER.value}
