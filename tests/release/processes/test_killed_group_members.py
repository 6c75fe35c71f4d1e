"""kill -9 of a process, an instance and a whole replica, in the middle of a round of 1, 2 and 4 processes."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from muster.contract.run.result import ReplicaOutcome, Verdict
from tests.support import peers
from tests.support.cloud_processes import kill, of_job
from tests.support.deployed import Deployed, Run
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]
ROUNDS = 4
COUNT = 100_000  # seven blocks: each of four processes has some
SIZES = (1, 2, 4)
SPEC = {
    "replicas": len(SIZES),
    "trainer": "tests.support.jobs.joint_trainer:train",
    "processes": 2,
    "overrides": {"0": {"processes": 1}, "2": {"instance_count": 2}},
    # PyTorch takes seconds to start; tests/integration/replica has replicas with it.
    "environment": {"PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'jobs' / 'without_torch'}{os.pathsep}{ROOT}"},
    # A process that is killed counts as the user's error: most often its memory ran out.
    "reruns": {"user-code": {"max_reruns": 2}},
}


def written(run: Run, rank: int) -> str:
    """What the first attempt of a replica has written, of all instances."""
    logs, group = run.stack.cloud.client("logs"), "/aws/sagemaker/TrainingJobs"
    try:
        answer = logs.filter_log_events(logGroupName=group, logStreamNamePrefix=f"{run.job(rank)}/")
    except logs.exceptions.ResourceNotFoundException:
        return ""  # the first job of the account creates the group
    return "\n".join(event["message"] for event in answer["events"])


def parts(run: Run, rank: int) -> int:
    """How many objects of its second contribution a replica has stored."""
    prefix = f"rendezvous/{run.name}/contributions/{rank:05d}/00000002-"
    return int(run.stack.s3.list_objects_v2(Bucket=run.stack.bucket, Prefix=prefix)["KeyCount"])


def undisturbed(folder: Path) -> str:
    """The checksum of the same training by replicas of one process each, to which nothing happens."""
    run = peers.Run(folder, len(SIZES), len(SIZES), rounds=ROUNDS, count=COUNT)
    first, *_ = [peer.parameters() for peer in [run.start(rank) for rank in range(len(SIZES))]]
    return hashlib.sha256(first).hexdigest()


def test_a_process_an_instance_and_a_replica_that_are_killed_in_a_round_change_no_bytes(
    stack: Deployed, tmp_path: Path
) -> None:
    run = stack.start({**SPEC, "kwargs": {"rounds": ROUNDS, "count": COUNT, "folder": str(tmp_path / "links")}})
    for rank, size in enumerate(SIZES):
        line = f"process {size - 1} of {size} stays in the second round"
        wait_until(f"the second round of replica {rank}", lambda rank=rank, line=line: line in written(run, rank))
        wait_until(f"the parts of replica {rank}", lambda rank=rank, size=size: parts(run, rank) == size - 1)
    assert kill(of_job(stack.cloud, run.job(0))) > 0
    assert kill(of_job(stack.cloud, run.job(1), "\0RANK=1\0")) == 1
    # The first process of a container: its launcher.
    assert kill(of_job(stack.cloud, run.job(2), "/algo-2/ml")[:1]) == 1
    assert run.wait()["status"] == "SUCCEEDED"
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED
    assert [(one.outcome, one.round, len(one.attempts)) for one in result.replicas] == [
        (ReplicaOutcome.SUCCEEDED, ROUNDS, 2)
    ] * 3
    assert {one.checksum for one in result.replicas} == {undisturbed(tmp_path / "undisturbed")}
    reasons = [one.attempts[0].reason for one in result.replicas]
    assert "process 1 was killed by SIGKILL" in reasons[1]
    assert all("exit code: 137" in reason for reason in reasons)
