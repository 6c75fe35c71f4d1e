"""How the replicas of a run are launched: at the account's pace, by slots that nobody hands out."""

from __future__ import annotations

from infra.settings import StackSettings
from muster.contract.result import Verdict
from muster.control.alarm import Rung
from muster.local.faults import LostInstance, SlowStart
from tests.stack.deployed import Run

PASS = {"entrypoint": ["python", "-c", "pass"]}
RATE = StackSettings().launches_per_second


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


def test_a_run_whose_gate_stays_shut_stops_all_its_replicas_and_says_why(stack):
    stack.cloud.faults.add(SlowStart(job="*-r1-a1", seconds=90))
    gate = {"replicas": 2, "within_seconds": 5}
    run = stack.start(stack.gated("shut", replicas=2, launch_gate=gate))
    ended = run.wait()
    assert ended["status"] == "FAILED"
    assert ended["cause"].startswith("launch gate: ")
    assert ended["cause"].endswith("of the 2 replicas that it asks for were at work after 5 s")
    assert set(run.statuses().values()) == {"Stopped"}
    assert stack.invoke("Alarm", {"run": run.name, "alarm": "launch-gate"}) == {"alarm": Rung.OVER.value}


def test_a_run_passes_its_gate_is_stopped_at_its_deadline_and_says_why(stack):
    stack.cloud.faults.add(LostInstance(job="*-r1-a1"))
    budget = {"infrastructure": {"max_reruns": 1, "delay_seconds": 5}}
    gate = {"replicas": 1, "within_seconds": 14}
    run = stack.start(stack.gated("late", replicas=2, launch_gate=gate, deadline_seconds=15, reruns=budget))
    run.wait_for_status(0, 1, "Training")
    # By the job itself: the record may not know yet.
    assert stack.invoke("Alarm", {"run": run.name, "alarm": "launch-gate"}) == {"alarm": Rung.PASSED.value}
    ended = run.wait()
    assert (ended["status"], ended["cause"]) == ("FAILED", "deadline: the run was not over 15 s after its launch")
    assert "InProgress" not in run.statuses().values()
    assert run.result().verdict is Verdict.FAILED


def test_a_deadline_far_away_keeps_no_run_alive(stack):
    run = stack.start({**PASS, "replicas": 1, "deadline_seconds": 30_000_000})
    assert run.wait()["status"] == "SUCCEEDED"
