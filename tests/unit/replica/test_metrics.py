"""What a replica measures: steps and rates, what it spends its time on, whom it waits for."""

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from muster.contract.run.time_use import Activity, TimeUse, seconds_of
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.replica_errors import ParametersError
from muster.replica.statistics import stopwatch
from muster.replica.statistics.metrics import Metrics
from muster.replica.statistics.statistics import Statistics
from muster.replica.statistics.stopwatch import Stopwatch
from muster.replica.statistics.time_account import TimeAccount
from muster.replica.wire import rendezvous_keys
from tests.support.contexts import context_of, trained
from tests.support.peers import HandClock, Run, run_all
from tests.support.waiting import wait_until


def train_alone(run: Run, algorithm: Algorithm, last: int, samples: int = 1, **expected: Any) -> list[int]:
    """Train with so many samples in a step; the steps of a metric that a trainer logs after every inner step."""
    seen: list[int] = []

    def train(context: Context) -> None:
        for name, value in expected.items():
            context.expect(**{name: value})
        outer = DiLoCo(context.rendezvous, {name: np.zeros(run.count, np.float32) for name in "ab"}, algorithm)
        while outer.round < last:
            outer.step(samples)
            seen.append(context.metrics.step)
        outer.finish()

    trained(train, [context_of(run)])
    return seen


def test_steps_are_counted_over_rounds_and_restarts(tmp_path: Path) -> None:
    for name, options in {"plain": {}, "delayed": {"delay": 1}, "eager": {"eager": True}}.items():
        steps = train_alone(Run.alone(tmp_path / name), Algorithm(sync_every=3, **options), 3)
        assert steps == list(range(1, len(steps) + 1)), name
    # A later process continues at the run's step.
    assert train_alone(Run.alone(tmp_path / "plain"), Algorithm(sync_every=3), 4) == [10, 11, 12]


def test_what_a_trainer_expects_is_in_the_commits(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "store")
    train_alone(run, Algorithm(sync_every=2), 3, 500, rounds=80, unit="tokens")
    commits = [run.commit(round_) for round_ in (1, 2, 3)]
    assert {(commit.expected_rounds, commit.unit) for commit in commits} == {(80, "tokens")}
    assert [commit.samples for commit in commits] == [1_000.0, 2_000.0, 3_000.0]
    assert commits[0].pace is None
    assert commits[2].pace is not None
    assert commits[2].pace.rounds == 2
    other = Run.alone(tmp_path / "other")
    with pytest.raises(ParametersError, match=r"rounds is 0; allowed: 1 to .*; unit is 'Tokens/s'; allowed: "):
        context_of(other).expect(rounds=0, unit="Tokens/s")
    # Each sample is part of two rounds, but for those of the first interval, which one fragment alone carries.
    train_alone(other, Algorithm(sync_every=4, fragments=2), 6, 100)
    assert (other.commit(6).fragments, other.commit(6).samples) == (2, 6 * 2 * 100 - 100)


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
    assert account.trained() == 12
    assert account.take() == (12_000, 8_000, 6_000, 4_000, 7_000)
    now += 1
    assert account.take() == (1000,)


def test_a_round_says_who_was_last_and_the_next_one_how_long_the_others_waited(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, timeout_seconds=1e9)
    clocks = [HandClock(passes=True) for _ in range(2)]
    rounds = 3

    def the_other_waits(round_: int) -> None:
        wait_until("the other one", lambda: run.store.exists(rendezvous_keys.contribution(round_, 0, 1)))
        given = clocks[0].seconds
        wait_until("its wait", lambda: clocks[0].seconds > given + 1)

    def train(rank: int) -> None:
        rendezvous = run.open(rank, clock=clocks[rank])
        metrics = rendezvous.statistics.metrics
        clocks[rank].seconds += 5  # the trainer builds its model
        outer = DiLoCo(rendezvous, np.zeros(run.count, np.float32), Algorithm(sync_every=2))
        metrics.log(start=0.0)
        while outer.round < rounds:
            round_ = outer.round + 1
            clocks[rank].seconds += 10
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
        "update_norm": 1,
        "utilisation": 1,
        "within": 0,
    }


def test_ranks_that_a_run_does_not_have_are_not_counted_on(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    for attempt in (1, 2):
        DiLoCo(run.open(attempt=attempt), np.zeros(run.count, np.float32)).step()
        use = run.commit(attempt).time_use
        assert use is not None
        assert (len(use.last), len(use.held_up), use.rounds) == (1, attempt - 1, attempt)
        wrong = TimeUse(rounds=1, last=(1,) * 9_000, held_up=(1,) * 9_000)
        lies = run.commit(attempt).model_copy(update={"time_use": wrong})
        (run.root / rendezvous_keys.commit(attempt)).write_bytes(lies.to_json())


def test_a_blocked_time_within_another_one_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: now))
    watch = Stopwatch(Statistics(Metrics(), lambda: now))
    with watch.blocked():
        now += 1
        with watch.blocked():
            now += 2
        now += 3
    now += 4
    with watch.blocked():
        now += 10
    watch.lap()
    assert watch.blocked_seconds == 16
    assert watch.utilisation == pytest.approx(0.2)
