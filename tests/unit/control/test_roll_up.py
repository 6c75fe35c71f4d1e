"""The roll-up is written after the records, before the workflow hears of them, and never lags behind for good."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_of
from tests.memory import Fault, throttle
from tests.memory.harness import RUN, ControlHarness
from tests.support.control_steps import AGAIN, Row, entries, fail, found, launched


def entry(harness: ControlHarness, rank: int = 0) -> ReplicaEntry:
    return entries(harness.cloud, RUN)[rank]


def is_current(harness: ControlHarness, rank: int = 0) -> bool:
    return entry(harness, rank).says_the_same(ReplicaEntry.of(harness.record(rank)))


def put(harness: ControlHarness, key: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=key, Body=body)


def test_a_lost_entry_is_repaired_by_the_next_status(harness: ControlHarness) -> None:
    shard = launched(harness).documents.layout.roll_up_shard(0)
    harness.cloud.client("s3").delete_object(Bucket=harness.cloud.bucket, Key=shard)
    harness.deliver()
    assert is_current(harness)


def test_functions_that_write_the_same_shard_lose_no_entry(harness: ControlHarness) -> None:
    run = harness.plan(replicas=1_024)
    ranks = list(ranks_of(shard_of(5, 1_024), 1_024))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(harness.arm, ranks))
    body = found(run.documents.store.get(run.documents.layout.roll_up_shard(5))).body
    assert [one.rank for one in RollUpShard.from_json(body, "shard").replicas] == ranks


def test_a_damaged_shard_is_made_again(row: Row) -> None:
    for body in (b"", b"{}", b"damaged", b'{"version":9}'):
        with row(body) as harness:
            run = harness.plan(replicas=64)
            for rank in (0, 32):
                harness.arm(rank)
            put(harness, run.documents.layout.roll_up_shard(0), body)
            harness.arm(0)
            assert sorted(entries(harness.cloud, RUN)) == [0, 32]


def test_a_damaged_record_keeps_no_other_out_of_the_roll_up(harness: ControlHarness) -> None:
    put(harness, harness.plan(replicas=64).documents.layout.record(32), b"damaged")
    harness.arm(0)
    assert is_current(harness, 0)


def test_an_end_is_written_before_the_workflow_learns_of_it_and_a_rerun_before_its_job_exists(
    harness: ControlHarness,
) -> None:
    launched(harness, reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 0}})
    seen: list[bool] = []
    for operation in ("SendTaskFailure", "CreateTrainingJob"):
        harness.cloud.calls.inject(Fault(operation, action=lambda: seen.append(is_current(harness))))
    fail(harness, AGAIN)
    harness.arm(attempt=2)
    assert seen == [True, True]
    assert [one.attempt for one in entry(harness).attempts] == [1, 2]


def test_an_end_of_which_the_workflow_does_not_learn_is_written(harness: ControlHarness) -> None:
    launched(harness, reruns={"infrastructure": {"max_reruns": 5, "delay_seconds": 0}})
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    harness.cloud.calls.inject(throttle("SendTaskFailure", None))
    with pytest.raises(ClientError):
        harness.react(event)
    assert harness.record().decision is not None
    assert is_current(harness)
