"""How the replicas of a run are launched: at the account's pace, by slots that nobody hands out."""

from __future__ import annotations

from infra.settings import StackSettings
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
