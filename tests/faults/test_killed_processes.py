"""kill -9 of whatever works for a run: it ends with a true verdict, and with the bytes of an undisturbed run."""

import hashlib
from pathlib import Path

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import ReplicaOutcome, Result, Verdict
from tests.support import peers
from tests.support.cloud_processes import kill, of_function, of_job, of_keeper
from tests.support.deployed import Deployed, Run
from tests.support.waiting import wait_until

ROUNDS = 4
RANKS = range(2)
SPEC = {
    "replicas": len(RANKS),
    "trainer": "tests.soak.trainer:train",
    "kwargs": {"rounds": ROUNDS, "pause_seconds": 0.3},
    # A process that is killed counts as the user's error: most often its memory ran out.
    "reruns": {"user-code": {"max_reruns": 2}},
}


def committed(run: Run) -> int:
    """How many rounds are committed."""
    prefix = f"rendezvous/{run.name}/commits/"
    return int(run.stack.s3.list_objects_v2(Bucket=run.stack.bucket, Prefix=prefix)["KeyCount"])


def succeeded(run: Run) -> Result:
    """The result of a run that succeeded with every replica in the last round."""
    assert run.wait()["status"] == "SUCCEEDED"
    result = run.result()
    assert result.verdict is Verdict.SUCCEEDED
    assert result.parameters_identical
    assert [(one.outcome, one.round) for one in result.replicas] == [(ReplicaOutcome.SUCCEEDED, ROUNDS)] * len(RANKS)
    return result


UNDISTURBED = hashlib.sha256(peers.Run(Path(), len(RANKS), len(RANKS), rounds=ROUNDS).replayed_by_hand()).hexdigest()
"""The checksum of a run to which nothing happens."""


def test_a_replica_that_is_killed_is_rerun_and_the_run_ends_with_the_same_bytes(stack: Deployed) -> None:
    run = stack.start(SPEC)
    wait_until("the first commit", lambda: committed(run))
    assert kill(of_job(stack.cloud, run.job(0))) > 0
    result = succeeded(run)
    [killed, _] = result.replicas[0].attempts
    assert killed.failure_class is FailureClass.USER_CODE
    assert "most likely out of memory" in killed.reason
    assert result.replicas[0].checksum == UNDISTURBED


def test_functions_that_are_killed_at_work_lose_nothing(stack: Deployed) -> None:
    run = stack.start(SPEC)
    dead = 0
    while run.describe()["status"] == "RUNNING":
        for name in ("Attempt", "React"):
            dead += kill(of_function(stack.cloud, stack.function_name(name))[:1])
        _next_round(run)
    assert dead > ROUNDS
    assert succeeded(run).replicas[0].checksum == UNDISTURBED
    assert {name: status for name, status in run.statuses().items() if status != "Completed"} == {}


def _next_round(run: Run) -> None:
    reached = committed(run)
    wait_until("a round, or the end", lambda: committed(run) > reached or run.describe()["status"] != "RUNNING")


def test_all_replicas_killed_at_once_are_rerun(stack: Deployed) -> None:
    """The parent of all training jobs dies, and they with it, as all machines of an outage."""
    run = stack.start(SPEC)
    wait_until("the first commit", lambda: committed(run))
    assert kill(of_keeper(stack.cloud)) == 1
    result = succeeded(run)
    assert [len(one.attempts) for one in result.replicas] == [2, 2]
    assert result.replicas[0].checksum == UNDISTURBED
