"""What a replica spends its time on, and for whom it waits."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np

from muster.contract.run.time_use import Activity, TimeUse, seconds_of
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.time_account import TimeAccount
from muster.replica.wire import keys
from tests.support.peers import Run, run_all
from tests.support.waiting import wait_until


def test_blocked_time_counts_for_what_the_exchange_does() -> None:
    now = 0.0
    account = TimeAccount(lambda: now)
    now += 7
    account.ready()
    account.ready()  # a trainer with its own loop may still make a DiLoCo
    now += 10
    with account.stage(Activity.WAITING):
        now += 2  # beside the training loop: it trains on
        with account.blocked():
            now += 3
            with account.stage(Activity.SAVING):
                now += 4
            now += 5
    with account.blocked():
        now += 6
    assert account.take() == (12_000, 8_000, 6_000, 4_000, 7_000)
    now += 1
    assert account.take() == (1000,)


def test_a_stage_that_ends_within_another_threads_stage_leaves_that_one() -> None:
    now = 0.0
    account = TimeAccount(lambda: now)
    account.ready()
    saving, waiting = account.stage(Activity.SAVING), account.stage(Activity.WAITING)
    with account.blocked():
        saving.__enter__()
        waiting.__enter__()
        saving.__exit__(None, None, None)
        now += 1
        waiting.__exit__(None, None, None)
    assert account.take() == (0, 1000)


class SteppedClock:
    """Time passes only while someone waits, and when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stop.wait(min(seconds, 0.005))


def test_a_round_says_who_was_last_and_the_next_one_how_long_the_others_waited(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    clocks = [SteppedClock(), SteppedClock()]
    rounds = 3

    def the_other_waits(round_: int) -> None:
        wait_until("the other one", lambda: run.store.exists(keys.contribution(round_, 0, 1)))
        given = clocks[0].now
        wait_until("its wait", lambda: clocks[0].now > given + 1)

    def train(rank: int) -> None:
        context = replace(run.context(), clock=clocks[rank])
        metrics = Metrics()
        rendezvous = Rendezvous.open(context, rank, 1, metrics)
        clocks[rank].now += 5  # the trainer builds its model
        outer = DiLoCo(rendezvous, np.zeros(run.count, np.float32), Algorithm(sync_every=2))
        metrics.log(start=0.0)
        while outer.round < rounds:
            round_ = outer.round + 1
            clocks[rank].now += 10
            outer.step()
            metrics.log(within=float(round_))
            if rank == 1:
                the_other_waits(round_)
            outer.step()
            metrics.log(after=float(round_))
        outer.finish()

    run_all([threading.Thread(target=train, args=(rank,), daemon=True) for rank in (0, 1)])
    commits = [run.commit(round_) for round_ in range(1, rounds + 1)]
    assert [commit.last for commit in commits] == [1, 1, 1]
    first, second = (seconds_of(commits[at].members[0].time) for at in (0, 1))
    assert first[Activity.LOADING] >= 5
    assert first[Activity.TRAINING] == 10
    assert first[Activity.WAITING] == 0
    assert second[Activity.WAITING] > 1
    assert second[Activity.TRAINING] == 10
    use = commits[2].time_use
    assert use is not None
    assert (use.rounds, use.last) == (3, (0, 3))
    # What replica 0 waited for the first two rounds, and replica 1 next to nothing.
    waited = sum(member.time[1] for commit in commits for member in commit.members if len(member.time) > 1)
    assert use.held_up == (0, waited)
    # What was logged after a round belongs to it, and what was logged within a phase to the round of the phase.
    member = commits[1].members[0]
    assert dict(zip(sorted(member.metrics), member.logged, strict=True)) == {
        "after": 1,
        "start": 2,
        "utilisation": 1,
        "within": 0,
    }


def test_ranks_that_a_run_does_not_have_are_not_counted_on(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)

    def train_alone(attempt: int) -> None:
        outer = DiLoCo(Rendezvous.open(run.context(), 0, attempt, Metrics()), np.zeros(run.count, np.float32))
        outer.step()

    train_alone(1)
    first = run.commit(1)
    assert first.time_use is not None
    lies = first.model_copy(update={"time_use": TimeUse(rounds=1, last=(1,) * 9_000, held_up=(1,) * 9_000)})
    (run.root / keys.commit(1)).write_bytes(lies.to_json())
    train_alone(2)
    use = run.commit(2).time_use
    assert use is not None
    assert (len(use.last), len(use.held_up), use.rounds) == (1, 1, 2)
