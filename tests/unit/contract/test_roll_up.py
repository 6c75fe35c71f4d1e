"""The roll-up: entries that follow from records, and shards that never go backwards."""

from __future__ import annotations

from typing import Any

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.roll_up import (
    ATTEMPTS_KEPT,
    ReplicaEntry,
    RollUpShard,
    ranks_of,
    shard_count,
    shard_of,
)


def record(revision: int = 1, *, rank: int = 0, attempts: int = 1, **fields: Any) -> Record:
    made = tuple(Attempt(attempt=number, job=f"job-{number}", **fields) for number in range(1, attempts + 1))
    return Record(run="run", rank=rank, revision=revision, token="secret", armed_at="t", attempts=made)


def entry(revision: int, status: str = "InProgress", rank: int = 0) -> ReplicaEntry:
    return ReplicaEntry.of(record(revision, rank=rank, status=status))


def test_an_entry_holds_the_state_and_no_token() -> None:
    decided = Decision(next=Next.RERUN, attempt=2, delay_seconds=30, reason="capacity")
    before = record(7, status="Failed", failure_class=FailureClass.CAPACITY).model_copy(update={"decision": decided})
    made = ReplicaEntry.of(before)
    assert (made.rank, made.revision, made.decision, made.attempts) == (0, 7, decided, before.attempts)
    assert b"secret" not in RollUpShard(run="run").updated([made]).to_json()


def test_an_entry_stays_small_however_long_a_replica_has_been_tried() -> None:
    history = tuple(Transition(at=f"{number}", secondary="Interrupted") for number in range(200))
    made = ReplicaEntry.of(record(attempts=500, history=history, reason="x" * 1_024, artifacts="s3://bucket/model"))
    assert [attempt.attempt for attempt in made.attempts] == list(range(501 - ATTEMPTS_KEPT, 501))
    steps = [step.at for step in made.attempts[-1].history]
    assert (steps[0], steps[-1], len(steps)) == ("0", "199", 32)
    assert len(made.to_json()) < 40_000


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 3, 1), (3, 1, 2)])
def test_of_entries_in_any_order_the_one_with_the_highest_revision_stays(order: tuple[int, ...]) -> None:
    shard = RollUpShard(run="run")
    for revision in order:
        shard = shard.updated([entry(revision, f"status {revision}")])
    assert [one.attempts[-1].status for one in shard.replicas] == ["status 3"]


def test_an_entry_that_says_nothing_new_is_not_written() -> None:
    shard = RollUpShard(run="run").updated([entry(1)])
    assert shard.updated([entry(2)]) is shard
    assert shard.updated([entry(2, "Completed")]) is not shard


def test_the_entries_of_a_shard_are_sorted_by_rank() -> None:
    shard = RollUpShard(run="run").updated([entry(1, rank=64), entry(1, rank=0), entry(1, rank=32)])
    assert [one.rank for one in shard.replicas] == [0, 32, 64]


@pytest.mark.parametrize(
    ("replicas", "shards"), [(1, 1), (10, 10), (32, 32), (33, 32), (1_000, 32), (1_025, 33), (10_000, 313)]
)
def test_every_replica_has_one_shard_which_it_shares_with_few_others(replicas: int, shards: int) -> None:
    assert shard_count(replicas) == shards
    ranks = {shard: list(ranks_of(shard, replicas)) for shard in range(shards)}
    assert sorted(rank for group in ranks.values() for rank in group) == list(range(replicas))
    assert all(rank in ranks[shard_of(rank, replicas)] for rank in range(replicas))
    assert max(map(len, ranks.values())) <= 32


def test_replicas_that_are_launched_one_after_the_other_do_not_share_a_shard() -> None:
    assert len({shard_of(rank, 1_000) for rank in range(100, 132)}) == 32
