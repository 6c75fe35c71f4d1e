"""The window in which a quorum waits for the others follows what the last rounds needed, and nothing else."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.run.commit import Commit, Finish, Member
from muster.replica.metrics import Metrics
from muster.replica.rounds.grace import FACTOR, GRACE_MIN_SECONDS, ROUND_FRACTION, ROUNDS_MIN, ROUNDS_SEEN, grace_window
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.rendezvous import LocalUpdate, Rendezvous
from tests.support.peers import Run

LONGEST = 600.0
BEGAN = datetime(2026, 11, 21, tzinfo=UTC)


def round_of(
    number: int,
    arrivals: list[float],
    *,
    absent: tuple[int, ...] = (),
    seconds: float = 1.0,
    incarnations: tuple[int, ...] = (1, 1, 1, 1),
    skew: float = 0.0,
) -> Commit:
    present = [rank for rank in range(4) if rank not in absent]
    return Commit(
        run="r",
        round=number,
        committed_at=(BEGAN + timedelta(seconds=number * seconds + skew)).isoformat(),
        count=1,
        members=tuple(
            Member(rank=rank, attempt=1, incarnation=incarnations[rank], epoch=1, weight=1.0, checksum="0" * 8)
            for rank in present
        ),
        absent=absent,
        arrivals=tuple(arrivals),
        grace_seconds=5.0,
        epochs=(1, 1, 1, 1),
    )


def steady(wait: float, rounds: int = ROUNDS_SEEN, *, seconds: float = 1.0, skew: float = 0.0) -> list[Commit]:
    """Rounds whose last member came `wait` after the quorum of two."""
    return [round_of(n, [0.0, 1.0, 1.0, 1.0 + wait], seconds=seconds, skew=skew) for n in range(1, rounds + 1)]


def test_as_long_as_nothing_is_known_the_longest_window_holds() -> None:
    for rounds in range(ROUNDS_MIN):
        assert grace_window(LONGEST, 2, steady(0.0, rounds)) == LONGEST


def test_the_window_is_a_multiple_of_what_rounds_needed_after_their_quorum() -> None:
    assert grace_window(LONGEST, 2, steady(7.0)) == FACTOR * 7.0
    assert grace_window(LONGEST, 1, steady(7.0)) == FACTOR * 8.0


def test_it_is_never_longer_than_the_run_allows_nor_shorter_than_the_resolution_of_the_stores_clock() -> None:
    assert grace_window(10.0, 2, steady(7.0)) == 10.0
    assert grace_window(LONGEST, 2, steady(0.0)) == GRACE_MIN_SECONDS
    assert grace_window(0.5, 2, steady(0.0)) == 0.5


def test_long_rounds_allow_a_share_of_themselves() -> None:
    assert grace_window(LONGEST, 2, steady(0.0, seconds=300.0)) == ROUND_FRACTION * 300.0


def test_one_slow_round_in_many_does_not_widen_the_window_and_many_do() -> None:
    usual = steady(3.0)
    usual[4] = round_of(5, [0.0, 0.0, 0.0, 100.0])
    assert grace_window(LONGEST, 2, usual) == FACTOR * 3.0
    for index in range(8, 12):
        usual[index] = round_of(index + 1, [0.0, 0.0, 0.0, 100.0])
    assert grace_window(LONGEST, 2, usual) == FACTOR * 100.0


def test_a_straggler_that_was_given_up_and_came_back_widens_the_window() -> None:
    rounds = steady(1.0, 6)
    for number in (2, 4):
        rounds[number - 1] = round_of(number, [0.0, 1.0, 1.0], absent=(3,))
    assert grace_window(LONGEST, 2, rounds) == FACTOR * FACTOR * 5.0


def test_one_that_died_and_was_replaced_does_not() -> None:
    rounds = [
        *steady(1.0, 6),
        round_of(7, [0.0, 1.0, 1.0], absent=(3,)),
        round_of(8, [0.0, 1.0, 1.0, 2.0], incarnations=(1, 1, 1, 2)),
    ]
    assert grace_window(LONGEST, 2, rounds) == FACTOR * 1.0


@pytest.mark.parametrize("skew", [-3_600.0, 3_600.0])
def test_a_clock_that_is_an_hour_wrong_changes_nothing(skew: float) -> None:
    assert grace_window(LONGEST, 2, steady(7.0, skew=skew)) == grace_window(LONGEST, 2, steady(7.0))


@given(
    st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=4).map(sorted), max_size=20),
    st.integers(1, 4),
    st.floats(0, 1e5),
)
def test_whatever_was_seen_the_window_lies_within_its_bound(
    arrivals: list[list[float]], least: int, longest: float
) -> None:
    rounds = [round_of(number, each) for number, each in enumerate(arrivals, start=1)]
    assert 0 <= grace_window(longest, least, rounds) <= longest


def test_a_round_after_an_early_finish_has_a_smaller_quorum() -> None:
    early = Finish(rank=3, run="r", round=1, how="its trainer returned")
    rounds = [round_of(n, [0.0, 1.0, 8.0], absent=(3,)) for n in range(1, ROUNDS_SEEN + 1)]
    rounds = [commit.model_copy(update={"absent": (), "finished": (early,)}) for commit in rounds]
    assert grace_window(LONGEST, 3, rounds) == FACTOR * 7.0


class PassingClock:
    """Time passes while the process waits, and only then."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def wait(self, stop: threading.Event, seconds: float) -> bool:
        self.now += seconds
        return stop.is_set()


@pytest.mark.parametrize("seconds", [0.7, 2.0, 2.3])
def test_the_round_is_committed_when_its_window_closes_and_no_poll_later(tmp_path: Path, seconds: float) -> None:
    clock = PassingClock()
    context = replace(Run(tmp_path, replicas=2).context(), clock=clock, quorum=Quorum(2, 1, seconds))
    rendezvous = Rendezvous.open(context, 0, 1, Metrics())
    rendezvous.exchange(1, LocalUpdate(np.ones(8, np.float32), 1.0))
    assert clock.now == pytest.approx(seconds, abs=1e-6)
