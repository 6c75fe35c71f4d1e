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


def test_a_shard_of_one_replica_is_written_without_a_read_except_under_a_key_of_kms(row: Row) -> None:
    """There an ETag is not the MD5 of its object: a write that names one would be lost, and cost a request."""
    for names_md5, calls in ((True, ["PutObject"] * 2), (False, ["PutObject", "GetObject", "PutObject"])):
        with row(f"ETags are MD5: {names_md5}") as harness:
            harness.cloud.s3.names_md5 = names_md5
            shard = launched(harness).documents.layout.roll_up_shard(0)
            harness.deliver()
            assert is_current(harness)
            assert [call.operation for call in harness.cloud.calls.log if call.parameters.get("Key") == shard] == calls


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


# --- an end whose rerun follows at once -----------------------------------------------------------


def test_an_end_whose_rerun_follows_at_once_is_written_by_the_launch(harness: ControlHarness) -> None:
    shard = launched(harness).documents.layout.roll_up_shard(0)
    harness.deliver()
    harness.cloud.calls.reset()
    fail(harness, AGAIN)
    assert shard not in [call["Key"] for call in harness.cloud.calls.of("PutObject")]
    seen: list[bool] = []
    harness.cloud.calls.reset()
    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: seen.append(is_current(harness))))
    harness.arm(attempt=2)
    assert seen == [True]
    assert [one.attempt for one in entry(harness).attempts] == [1, 2]
    # The shard is not what the record before says, so it is read and not written in vain.
    assert harness.cloud.calls.counts()["PutObject"] == 2


def test_an_end_whose_rerun_the_workflow_does_not_learn_is_written(harness: ControlHarness) -> None:
    launched(harness, reruns={"infrastructure": {"max_reruns": 5, "delay_seconds": 0}})
    harness.deliver()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    harness.cloud.calls.inject(throttle("SendTaskFailure", None))
    for _ in range(2):  # a call, and Lambda's first repetition
        with pytest.raises(ClientError):
            harness.react(event)
    assert harness.record().decision is not None
    assert is_current(harness)


def test_an_end_with_a_wait_before_its_rerun_is_written_at_once(harness: ControlHarness) -> None:
    launched(harness, reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 30}})
    fail(harness, AGAIN)
    assert is_current(harness)
