"""Documents of a run that several write or read: its roll-up, the queue of runs, its events."""

from typing import Any

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.record import Decision, Next, Record
from muster.contract.run.result import Result, Verdict
from muster.contract.run.roll_up import ATTEMPTS_KEPT, ReplicaEntry, RollUpShard, ranks_of, shard_count, shard_of
from muster.contract.run.run_events import (
    EVENT_VERSION,
    ReplicaLaunched,
    RunFailed,
    RunStopped,
    RunSucceeded,
    run_ended,
)
from muster.contract.run.run_queue import Queue, QueuedRun

# --- the roll-up --------------------------------------------------------------------------------------


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


def test_of_entries_in_any_order_the_one_with_the_highest_revision_stays() -> None:
    for order in ((1, 2, 3), (3, 2, 1), (2, 3, 1)):
        shard = RollUpShard(run="run").updated([entry(1, rank=64), entry(1, rank=32)])
        for revision in order:
            shard = shard.updated([entry(revision, f"status {revision}")])
        assert [one.rank for one in shard.replicas] == [0, 32, 64]
        assert shard.replicas[0].attempts[-1].status == "status 3", order
    # One that says nothing new is not written.
    assert shard.updated([entry(4, "status 3")]) is shard


def test_every_replica_has_one_shard_which_it_shares_with_few_others() -> None:
    for replicas, shards in ((1, 1), (32, 32), (33, 32), (1_025, 33), (10_000, 313)):
        assert shard_count(replicas) == shards
        ranks = {shard: list(ranks_of(shard, replicas)) for shard in range(shards)}
        assert sorted(rank for group in ranks.values() for rank in group) == list(range(replicas)), replicas
        assert all(rank in ranks[shard_of(rank, replicas)] for rank in range(replicas)), replicas
        assert max(map(len, ranks.values())) <= 32, replicas
    # Replicas that are launched one after the other do not share one.
    assert len({shard_of(rank, 1_000) for rank in range(100, 132)}) == 32


# --- the queue ----------------------------------------------------------------------------------------


def queued(run: str, replicas: int) -> QueuedRun:
    return QueuedRun(run=run, execution_arn=f"arn:{run}", replicas=replicas, asked_at="2026-01-01T00:00:00.000Z")


def queue(*runs: tuple[str, int], cap: int = 10) -> Queue:
    after = Queue()
    for run, replicas in runs:
        after = after.asked(queued(run, replicas), cap)
    return after


def admitted(queue_: Queue) -> list[str]:
    return [entry.run for entry in queue_.runs if entry.admitted]


def test_runs_are_admitted_while_they_fit_and_asking_twice_is_asking_once() -> None:
    runs = queue(("a", 4), ("b", 6), ("c", 1))
    assert admitted(runs) == ["a", "b"]
    assert runs.asked(queued("c", 1), 10) == runs.asked(queued("a", 4), 10) == runs
    assert runs.before("c") == ("a", "b")
    assert runs.before("a") is runs.before("unknown") is None


def test_a_large_run_is_not_overtaken_by_small_ones_until_it_leaves() -> None:
    runs = queue(("a", 4), ("large", 9), ("small", 1))
    assert admitted(runs) == ["a"]
    assert admitted(runs.without({"arn:a"}, 10)) == ["large", "small"]
    assert admitted(runs.without({"arn:large"}, 10)) == ["a", "small"]
    assert admitted(runs.without({"arn:a"}, 5)) == ["large"], "a run above the cap starts alone"


# --- events -------------------------------------------------------------------------------------------

AT = "2026-01-01T00:00:00.000Z"
LAUNCHED = ReplicaLaunched(at=AT, run="night", rank=3, attempt=2, job="muster-night-r3-a2")


def test_a_copy_of_an_event_has_the_same_id_and_other_events_have_others() -> None:
    changes: list[dict[str, Any]] = [{}, {"run": "day"}, {"rank": 4}, {"attempt": 3}]
    assert len({LAUNCHED.model_copy(update=change).id for change in changes}) == len(changes)
    assert LAUNCHED.model_copy(update={"at": "2026-01-01T00:00:09.000Z"}).id == LAUNCHED.id
    ends = [kind(at="", run="night", reason="", replicas=1, reruns=0, result="") for kind in (RunFailed, RunStopped)]
    assert ends[0].id != ends[1].id
    detail = {"at": AT, "run": "night", "rank": 3, "attempt": 2, "job": "muster-night-r3-a2"}
    assert LAUNCHED.detail() == {"id": LAUNCHED.id, "version": EVENT_VERSION, **detail}


def test_every_verdict_has_its_event() -> None:
    for verdict, kind in zip(Verdict, (RunSucceeded, RunFailed, RunStopped), strict=True):
        result = Result(run="night", verdict=verdict, reason="x" * 5_000, settled_at="now", replicas=(), reruns=0)
        event = run_ended(result, "s3://bucket/control/night/result.json")
        assert (type(event), len(event.reason)) == (kind, 1_024)
