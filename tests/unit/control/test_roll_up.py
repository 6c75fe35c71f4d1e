"""The roll-up is written after the records, before the workflow hears of them, and never lags behind for good."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from botocore.exceptions import ClientError

from muster.contract.run.roll_up import ReplicaEntry, RollUpShard, ranks_of, shard_of
from muster.control.active_run import ActiveRun
from tests.memory import Fault, server_error, throttle
from tests.memory.harness import RUN, ControlHarness
from tests.support.roll_ups import entries

BROKEN = "AlgorithmError: ExitCode 1"


def entry(harness: ControlHarness, rank: int = 0) -> ReplicaEntry:
    return entries(harness.cloud, RUN)[rank]


def is_current(harness: ControlHarness, rank: int = 0) -> bool:
    return entry(harness, rank).says_the_same(ReplicaEntry.of(harness.record(rank)))


def remove(harness: ControlHarness, run: ActiveRun, shard: int = 0) -> None:
    harness.cloud.client("s3").delete_object(Bucket=harness.cloud.bucket, Key=run.documents.layout.roll_up_shard(shard))


def test_a_life_is_in_the_roll_up_step_by_step(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    assert entry(harness).attempts[-1].status == ""
    harness.deliver()
    assert entry(harness).attempts[-1].secondary == "Starting"
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()
    found = entry(harness)
    assert (found.attempts[-1].status, found.decision) == ("Failed", harness.record().decision)


def test_the_workflow_hears_of_an_end_only_after_the_roll_up(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), BROKEN)
    seen: list[bool] = []
    harness.cloud.calls.inject(Fault("SendTaskFailure", action=lambda: seen.append(is_current(harness))))
    harness.deliver()
    assert seen == [True]


@pytest.mark.parametrize(("replicas", "operation"), [(1, "PutObject"), (33, "PutObject"), (33, "GetObject")])
def test_an_event_whose_entry_could_not_be_written_is_repeated_and_writes_it(
    harness: ControlHarness, replicas: int, operation: str
) -> None:
    """A shard of one replica is written without a read of it."""
    run = harness.plan(replicas=replicas)
    harness.arm()
    harness.deliver()
    harness.cloud.training.fail(harness.job(), BROKEN)
    event = harness.last_event(harness.job())
    key = run.documents.layout.roll_up_shard(0)
    fault = server_error(operation, None)
    fault.when = lambda call: call.parameters.get("Key") == key
    harness.cloud.calls.inject(fault)
    with pytest.raises(ClientError):
        harness.react(event)
    assert harness.answer() is None
    harness.cloud.calls.reset()
    assert entry(harness).attempts[-1].status == "InProgress"
    harness.react(event)
    assert is_current(harness)
    assert harness.answer() is not None


def test_a_re_arm_repairs_an_entry_that_was_lost(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.deliver()
    remove(harness, run)
    harness.arm()
    assert is_current(harness)
    assert entry(harness).attempts[-1].secondary == "Starting"


def test_a_re_arm_that_finds_nothing_new_writes_nothing(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    key = run.documents.layout.roll_up_shard(0)
    harness.cloud.calls.reset()
    harness.arm()
    assert [call["Key"] for call in harness.cloud.calls.of("PutObject")] == [run.documents.layout.record(0)]
    assert [call["Key"] for call in harness.cloud.calls.of("GetObject")].count(key) == 1


def test_a_shard_of_one_replica_is_written_without_a_read(harness: ControlHarness) -> None:
    run = harness.plan(replicas=32)
    harness.arm()
    harness.deliver()
    harness.cloud.training.fail(harness.job(), BROKEN)
    harness.deliver()
    shard = run.documents.layout.roll_up_shard(0)
    assert is_current(harness)
    assert shard not in [call["Key"] for call in harness.cloud.calls.of("GetObject")]


def test_a_lost_entry_is_repaired_by_the_next_status(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    remove(harness, run)
    harness.deliver()
    assert is_current(harness)


def test_an_entry_that_another_function_has_written_is_not_replaced_by_an_older_one(harness: ControlHarness) -> None:
    """The record has gone on while the shard was being written."""
    run = harness.plan()
    harness.arm()
    key = run.documents.layout.roll_up_shard(0)
    other = ControlHarness(cloud=harness.cloud)

    def train_meanwhile() -> None:
        harness.cloud.training.train(harness.job())
        other.react(harness.last_event(harness.job()))

    late = harness.last_event(harness.job())
    harness.cloud.calls.inject(
        Fault("PutObject", when=lambda call: call.parameters["Key"] == key, action=train_meanwhile)
    )
    harness.react(late)
    assert entry(harness).attempts[-1].secondary == "Training"
    assert is_current(harness)


def test_under_a_key_of_kms_a_shard_is_read_before_it_is_written(harness: ControlHarness) -> None:
    """There an ETag is not the MD5 of its object: a write that names one would be lost, and cost a request."""
    harness.cloud.s3.names_md5 = False
    run = harness.plan()
    harness.arm()
    harness.deliver()
    key = run.documents.layout.roll_up_shard(0)
    assert is_current(harness)
    made = [call.operation for call in harness.cloud.calls.log if call.parameters.get("Key") == key]
    assert made == ["PutObject", "GetObject", "PutObject"]


def test_a_run_of_an_older_version_gets_its_roll_up_from_its_records(harness: ControlHarness) -> None:
    """The first function that touches one replica of a shard writes the entries of all of them."""
    run = harness.plan(replicas=100)
    for rank in range(100):
        harness.arm(rank)
    harness.deliver()
    for shard in range(32):
        remove(harness, run, shard)
    harness.arm(0)
    assert sorted(entries(harness.cloud, RUN)) == list(ranks_of(0, 100))
    assert all(is_current(harness, rank) for rank in ranks_of(0, 100))


@pytest.mark.parametrize("body", [b"", b"{}", b"damaged", b'{"version":9}'])
def test_a_damaged_shard_is_made_again(harness: ControlHarness, body: bytes) -> None:
    run = harness.plan(replicas=64)
    for rank in (0, 32):
        harness.arm(rank)
    harness.cloud.client("s3").put_object(
        Bucket=harness.cloud.bucket, Key=run.documents.layout.roll_up_shard(0), Body=body
    )
    harness.arm(0)
    assert sorted(entries(harness.cloud, RUN)) == [0, 32]


def test_a_damaged_record_keeps_no_other_out_of_the_roll_up(harness: ControlHarness) -> None:
    run = harness.plan(replicas=64)
    harness.cloud.client("s3").put_object(
        Bucket=harness.cloud.bucket, Key=run.documents.layout.record(32), Body=b"damaged"
    )
    harness.arm(0)
    assert is_current(harness, 0)


def test_functions_that_write_the_same_shard_lose_no_entry(harness: ControlHarness) -> None:
    run = harness.plan(replicas=1_024)
    ranks = list(ranks_of(shard_of(5, 1_024), 1_024))
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(harness.arm, ranks))
    body = run.documents.store.get(run.documents.layout.roll_up_shard(5))
    assert body is not None
    assert [one.rank for one in RollUpShard.from_json(body.body, "shard").replicas] == ranks


def test_an_end_whose_rerun_follows_at_once_is_written_by_the_launch(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    harness.deliver()
    key = run.documents.layout.roll_up_shard(0)
    harness.cloud.training.fail(harness.job(), "InternalServerError")
    event = harness.last_event(harness.job())
    harness.cloud.calls.reset()
    harness.react(event)
    assert key not in [call["Key"] for call in harness.cloud.calls.of("PutObject")]
    seen: list[bool] = []
    harness.cloud.calls.reset()
    harness.cloud.calls.inject(Fault("CreateTrainingJob", action=lambda: seen.append(is_current(harness))))
    harness.arm(attempt=2)
    assert seen == [True]
    assert [one.attempt for one in entry(harness).attempts] == [1, 2]
    # The shard is not what the record before says, so it is read and not written in vain.
    assert harness.cloud.calls.counts()["PutObject"] == 2


def test_an_end_whose_rerun_the_workflow_does_not_learn_is_written(harness: ControlHarness) -> None:
    harness.plan(reruns={"infrastructure": {"max_reruns": 5, "delay_seconds": 0}})
    harness.arm()
    harness.deliver()
    harness.cloud.training.fail(harness.job(), "InternalServerError")
    event = harness.last_event(harness.job())
    harness.cloud.calls.inject(throttle("SendTaskFailure", None))
    for _ in range(2):  # a call, and Lambda's first repetition
        with pytest.raises(ClientError):
            harness.react(event)
    assert harness.record().decision is not None
    assert is_current(harness)


def test_an_end_with_a_wait_before_its_rerun_is_written_at_once(harness: ControlHarness) -> None:
    harness.plan(reruns={"infrastructure": {"max_reruns": 1, "delay_seconds": 30}})
    harness.arm()
    harness.cloud.training.fail(harness.job(), "InternalServerError")
    harness.deliver()
    assert is_current(harness)
