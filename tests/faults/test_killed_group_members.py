"""kill -9 of a part of a replica: of one of its processes, and of one of its instances, in the middle of a round."""

from __future__ import annotations

import os
from pathlib import Path

from muster.contract.run.result import ReplicaOutcome, Verdict
from tests.support.cloud_processes import kill, of_job
from tests.support.deployed import Deployed, Run
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 4
SPEC = {
    "replicas": 2,
    "trainer": "tests.support.jobs.group_trainers:train_rounds",
    "kwargs": {"rounds": ROUNDS},
    "processes": 2,
    "overrides": {"1": {"processes": 1, "instance_count": 2}},
    # PyTorch's launcher takes seconds to start; tests/integration/replica/test_process_group.py has it.
    "environment": {"PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'jobs' / 'without_torch'}{os.pathsep}{ROOT}"},
    # A process that is killed counts as the user's error: most often its memory ran out.
    "reruns": {"user-code": {"max_reruns": 2}},
}


def written(run: Run, rank: int) -> list[str]:
    """What the first attempt of a replica has written, of all instances."""
    logs, group = run.stack.cloud.client("logs"), "/aws/sagemaker/TrainingJobs"
    try:
        answer = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=f"{run.job(rank)}/")
    except logs.exceptions.ResourceNotFoundException:
        return []  # the first job of the account creates the group
    return [event["message"] for event in answer["events"]]


def test_a_replica_that_loses_a_process_or_an_instance_is_rerun_as_a_whole(stack: Deployed) -> None:
    run = stack.start(SPEC)
    for rank in range(2):
        lines = {f"[{rank}.{process}] process {process} of 2 is in the second round" for process in range(2)}
        wait_until(
            f"the second round of replica {rank}", lambda rank=rank, lines=lines: lines <= set(written(run, rank))
        )
    assert kill(of_job(stack.cloud, run.job(0), "\0RANK=1\0")) == 1
    # The first process of a container: its launcher.
    assert kill(of_job(stack.cloud, run.job(1), "/algo-2/ml")[:1]) == 1
    assert run.wait()["status"] == "SUCCEEDED"
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED
    assert result.parameters_identical
    assert [(one.outcome, one.round, len(one.attempts)) for one in result.replicas] == [
        (ReplicaOutcome.SUCCEEDED, ROUNDS, 2)
    ] * 2
    reasons = [one.attempts[0].reason for one in result.replicas]
    assert "process 1 was killed by SIGKILL" in reasons[0]
    assert all("exit code: 137" in reason for reason in reasons)
