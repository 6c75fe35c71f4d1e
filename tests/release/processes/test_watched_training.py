"""A replica that hangs, on the deployed stack: it is told, rerun, and the run succeeds."""

import os
from pathlib import Path

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.result import Verdict
from muster.contract.spec.watch_rules import Rule
from tests.support.deployed import Deployed

ROOT = Path(__file__).resolve().parents[3]
SPEC = {
    "replicas": 1,
    "trainer": "tests.support.jobs.group_trainers:train_rounds",  # its first attempt hangs in the second round
    "kwargs": {"rounds": 3},
    "processes": 2,
    "environment": {"PYTHONPATH": f"{ROOT / 'tests' / 'support' / 'jobs' / 'without_torch'}{os.pathsep}{ROOT}"},
    "watch": {"hang": {"after_seconds": 3.0, "then": "restart"}},
    # What a rule ends has a budget of its own.
    "reruns": {"infrastructure": {"max_reruns": 0}},
}


def test_a_replica_that_hangs_once_is_told_and_rerun_and_its_run_succeeds(stack: Deployed) -> None:
    run = stack.start(SPEC)
    assert run.wait()["status"] == "SUCCEEDED", run.result().reason
    result = run.result()
    assert (result.verdict, result.committed_rounds) == (Verdict.SUCCEEDED, 3)
    hung, second = result.replicas[0].attempts
    assert (hung.failure_class, second.failure_class) == (FailureClass.INFRASTRUCTURE, None)
    assert hung.reason.startswith("AlgorithmError: [hang] process 0: process 0 of 2 has made no step for ")
    assert " in step 2: threading.py:" in hung.reason
    assert " in train_rounds" in hung.reason
    (finding,) = result.findings
    assert (finding.rule, finding.then, finding.rank, finding.attempt, finding.round) == (Rule.HANG, "restart", 0, 1, 1)
    assert finding.text[:40] in hung.reason
