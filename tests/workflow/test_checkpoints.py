"""What a replica keeps of itself in S3, while it trains and when it starts again."""

from __future__ import annotations

from muster.replica.store.checkpoints import KEPT

ROUNDS = 100
BYTES = 100_000


def test_a_hundred_rounds_leave_a_few_objects_and_a_rerun_restores_exactly(stack):
    run = stack.start(
        {
            "replicas": 1,
            "trainer": "tests.support.jobs.trainers:fail_once_at",
            "kwargs": {"round_": ROUNDS, "size": BYTES},
            "reruns": {"user-code": {"max_reruns": 1}},
        }
    )
    ended = run.wait(300)
    assert ended["status"] == "SUCCEEDED", ended["cause"]
    (replica,) = run.result().replicas
    assert len(replica.attempts) == 2
    metrics = replica.metrics
    assert metrics["drawn"] == ROUNDS
    # The unfinished file may be caught by the copying as well.
    assert KEPT <= metrics["files"] <= KEPT + 1
    assert metrics["bytes"] < (KEPT + 1) * BYTES * 1.1
    prefix = run.layout.checkpoints(0)
    listed = stack.s3.list_objects_v2(Bucket=stack.bucket, Prefix=prefix)["Contents"]
    names = {entry["Key"].removeprefix(prefix) for entry in listed}
    states = {f"muster-trainer-{slot}.ckpt" for slot in range(KEPT)}
    assert states <= names <= {*states, "muster-trainer.tmp"}
