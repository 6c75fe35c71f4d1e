"""Elastic runs: replicas join and leave while the others train, and seats without capacity wait."""

from muster.contract.run.result import ReplicaOutcome, Verdict
from tests.memory.harness import ControlHarness
from tests.support.control_steps import finished
from tests.support.elastic_runs import ElasticRun


def test_a_run_is_scaled_up_and_down_and_ends(harness: ControlHarness) -> None:
    run = ElasticRun(harness)
    assert (run.jobs, sorted(run.tokens)) == (["r0-a1", "r1-a1"], [0, 1, 2, 3])
    assert run.scale(4) == "scaled"
    assert run.jobs == ["r0-a1", "r1-a1", "r2-a1", "r3-a1"]
    run.train()
    assert run.scale(2) == "scaled"
    assert run.jobs == ["r0-a1", "r1-a1"]
    run.stopped()
    assert (run.attempts, sorted(run.tokens)) == ({0: 1, 1: 1, 2: 2, 3: 2}, [0, 1, 2, 3])
    assert harness.record(2).current.failure_class == "stopped-by-muster"
    run.scale(3)
    assert run.jobs == ["r0-a1", "r1-a1", "r2-a2"]
    for rank in (0, 1, 2):
        run.complete(rank)
    assert run.tokens == {}
    assert run.scale(4) == "refused: the run ends: replica 0 has trained to the end"
    result = finished(harness).result
    assert (result.verdict, result.reason) == (Verdict.SUCCEEDED, "3 of 3 replicas succeeded")
    assert [replica.outcome for replica in result.replicas][3] is ReplicaOutcome.PARKED
    counts = {name: harness.emitted().count(name) for name in ("Run Scaled", "Replica Parked", "Scale Refused")}
    assert counts == {"Run Scaled": 3, "Replica Parked": 2, "Scale Refused": 1}
    assert "Replica Rerun" not in harness.emitted()
