"""When a round can be committed: quorum, claims, exclusions, and the grace, which follows what rounds have needed."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.run.commit import Commit, Exclusion, Finish
from muster.contract.run.notices import Notice, NoticeKind
from muster.contract.run.training_pace import Pace
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.replica_errors import FencedError, RendezvousError
from muster.replica.rounds import agreement
from muster.replica.rounds.claims import (
    Claim,
    Holder,
    check_claim,
    claim_rank,
    newer_holder,
    succeed_claim,
)
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.grace_window import FACTOR, ROUND_FRACTION, ROUNDS_MIN, ROUNDS_SEEN, grace_window
from muster.replica.rounds.quorum import STORE_TIME_SECONDS, Quorum, QuorumDecision, QuorumTally
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.suspicions import RANKS_MAX, Suspicions
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Bytes, ObjectExistsError, Store, StoreDeniedError
from muster.replica.wire import rendezvous_keys
from tests.support.peers import RUN, Faults, FaultyStore, HandClock, Run, missing_only_in, returns_before
from tests.support.round_commits import commit_of, member
from tests.support.waiting import wait_until

GRACE = 10.0
WAIT, COMMIT, HOPELESS = QuorumDecision.WAIT, QuorumDecision.COMMIT, QuorumDecision.HOPELESS
A, B = "a" * 8, "b" * 8  # digests of parameters


def committed(ranks: list[int], excluded: tuple[int, ...] = ()) -> Commit:
    return commit_of(ranks, excluded=tuple(Exclusion(rank=rank, reason="NaN") for rank in excluded))


def tally(previous: Commit | None, *present: int, least: int = 2) -> QuorumTally:
    seen = QuorumTally(Quorum(4, least, GRACE), GRACE, previous)
    for rank in present:
        seen.contributed(member(rank))
    return seen


def finish_of(rank: int) -> Finish:
    return Finish(rank=rank, run=RUN, round=7, how="its trainer returned")


def finished(seen: QuorumTally, *gone: int) -> QuorumTally:
    for rank in gone:
        seen.finished_with(2, finish_of(rank))
    return seen


def ranks(seen: QuorumTally) -> list[int]:
    return [item.rank for item in seen.members]


def test_who_is_waited_for_and_for_how_long() -> None:
    """A round of four ranks, of which two are enough unless `least` says otherwise."""
    rows: list[tuple[str, QuorumTally, float, bool, QuorumDecision]] = [
        ("all", tally(None, 0, 1, 2, 3), 0.0, False, COMMIT),
        ("all of the last round", tally(committed([0, 2, 3]), 0, 2, 3), 0.0, False, COMMIT),
        ("who was excluded is expected again", tally(committed([0, 1], excluded=(2,)), 0, 1), 0.0, False, WAIT),
        ("less than a quorum", tally(committed([0, 1]), 0, 1, least=3), 1e9, False, WAIT),
        ("a quorum after the time-out", tally(None, 0, 1), 0.0, True, COMMIT),
        ("less than one after the time-out", tally(None, 0), 0.0, True, WAIT),
    ]
    wrong = [name for name, seen, now, timed_out, found in rows if seen.decide(now, timed_out=timed_out) is not found]
    assert wrong == []
    seen = tally(committed([0, 1, 2]), 0)
    assert (seen.absent, seen.open_ranks) == ((1, 2), [1, 2, 3])


def test_a_quorum_waits_for_the_others_as_long_as_the_grace_lasts() -> None:
    seen = tally(None, 0)
    assert seen.decide(0.0) is WAIT
    # The grace begins with the quorum and not before.
    seen.contributed(member(1))
    assert [seen.decide(now) for now in (100.0, 109.9, 110.0)] == [WAIT, WAIT, COMMIT]


def test_those_who_are_there_wait_no_longer_than_the_absent_would_lose() -> None:
    """Of 30 s rounds three others wait at most five seconds for one, which is half of what it would lose."""
    pace = Pace(rounds=1, round_seconds=30.0, longest_seconds=30.0, samples_per_second=1.0)
    before = committed([0, 1, 2, 3]).model_copy(update={"pace": pace})
    for present, window in (((0, 1, 2), 5.0), ((0, 1), 15.0)):
        seen = QuorumTally(Quorum(4, 2, 60.0), 60.0, before)
        for rank in present:
            seen.contributed(member(rank))
        assert (seen.decide(5.0), seen.closes_at) == (WAIT, 5.0 + window)


def test_a_lost_process_is_not_waited_for_once_its_successor_loads() -> None:
    seen = tally(committed([0, 1, 2]), 0, 1)
    assert (seen.decide(0.0), seen.absent) == (WAIT, (2,))
    seen.claimed(2, 2, loads=True)
    assert (seen.decide(0.0), seen.absent, seen.open_ranks) == (COMMIT, (), [2, 3])
    seen.claimed(2, 3)
    assert (seen.decide(0.0), seen.absent) == (WAIT, (2,))


def test_an_excluded_rank_is_not_waited_for_and_too_many_of_them_leave_no_hope() -> None:
    rows = [
        (tally(None, 0, 1, 3), (2,), COMMIT),
        (tally(None, 0, least=4), (2,), HOPELESS),
        (tally(committed([0, 1]), 0, 1, least=3), (2,), WAIT),  # absent ranks keep hope alive
        (finished(tally(committed([0, 1, 2, 3]), 0, least=4), 3), (1, 2), HOPELESS),
    ]
    for number, (seen, excluded, decision) in enumerate(rows):
        for rank in excluded:
            seen.exclude(rank, "NaN")
        assert seen.decide(0.0) is decision, number
        assert seen.exclusions == tuple(Exclusion(rank=rank, reason="NaN") for rank in excluded)


def of_states(states: dict[int, str | None], least: int = 2) -> QuorumTally:
    seen = QuorumTally(Quorum(4, least, GRACE), GRACE, None)
    for rank, state in states.items():
        seen.contributed(member(rank), state)
    return seen


def test_contributions_that_start_from_other_parameters_than_most_are_excluded() -> None:
    seen = of_states({0: A, 1: B, 2: A, 3: None})
    assert (ranks(seen), seen.state, seen.decide(0.0)) == ([0, 2, 3], A, COMMIT)
    [excluded] = seen.exclusions
    assert excluded.rank == 1
    assert B in excluded.reason
    # Those of one alone are not taken for the run's.
    found = [of_states(states, least=1).confirmed_state for states in ({0: A}, {0: A, 1: None}, {0: A, 1: A})]
    assert found == [None, None, A]


def test_a_tie_between_parameters_is_left_to_those_who_come() -> None:
    seen = of_states({0: A, 1: B}, least=3)
    assert (seen.members, seen.decide(1e9, timed_out=True)) == ((), WAIT)
    seen.contributed(member(2), A)
    assert seen.decide(0.0) is WAIT
    seen.contributed(member(3), A)
    assert (ranks(seen), seen.decide(0.0)) == ([0, 2, 3], COMMIT)
    # It is hopeless if all have contributed.
    seen = of_states({0: A, 1: B, 2: A, 3: B}, least=1)
    assert (seen.decide(0.0), [item.rank for item in seen.exclusions]) == (HOPELESS, [0, 1, 2, 3])


def test_who_has_finished_is_not_waited_for_and_counts_towards_the_quorum() -> None:
    seen = finished(tally(committed([0, 1, 2, 3]), 0, 1, least=4), 3)
    assert (seen.needed, seen.absent, seen.epochs[3]) == (3, (2,), 2)
    assert seen.decide(1e9, timed_out=True) is WAIT
    seen.contributed(member(2))
    assert seen.decide(0.0) is COMMIT
    assert [item.rank for item in seen.finished] == [3]
    last = finished(tally(committed([0, 1, 2, 3]), 0), 1, 2, 3)
    assert (last.needed, last.decide(0.0)) == (1, COMMIT)
    # What a process gave does not count once it has finished without the round.
    assert ranks(finished(tally(committed([0, 1]), 0, 1), 1)) == [0]


def test_a_round_that_times_out_misses_nobody_who_has_finished(tmp_path: Path) -> None:
    run = Run(tmp_path, timeout_seconds=0.2, on_early_finish=OnEarlyFinish.CONTINUE)
    succeed_claim(run.store, RUN, claim_rank(run.store, RUN, 2, 1), finish_of(2))
    assert "round 1 has 1 of at least 2 participants; missing: rank 1." in str(run.start(0).join().error)


def test_who_claims_a_rank_anew_is_waited_for_and_its_predecessor_does_not_count() -> None:
    seen = tally(committed([0, 1]), 0, 1)
    seen.claimed(1, 1)  # as it is known
    assert seen.decide(0.0) is COMMIT
    seen.claimed(1, 2)
    assert (ranks(seen), seen.decide(0.0)) == ([0], WAIT)
    seen.contributed(member(1, epoch=2))
    seen.claimed(2, 2)
    assert seen.decide(0.0) is WAIT
    seen.contributed(member(2, epoch=2))
    assert seen.decide(0.1) is COMMIT
    # The rerun of a replica that had finished.
    seen = finished(tally(committed([0, 1]), 0), 1)
    assert seen.decide(0.0) is COMMIT
    seen.claimed(1, 3)
    assert (seen.finished, seen.absent, seen.decide(0.0)) == ((), (1,), WAIT)
    # With other parameters there was no hope.
    seen = of_states({0: A, 1: B, 2: A, 3: A}, least=4)
    assert seen.decide(0.0) is HOPELESS
    seen.claimed(1, 2)
    assert seen.decide(0.0) is WAIT


# --- a share of the expected, and seats that come and go ------------------------------------------------------------


def elastic(previous: Commit | None, *present: int, seats: int = 8, least: int = 2) -> QuorumTally:
    """Of an elastic run that begins with four seats and wants three in four of the expected."""
    seen = QuorumTally(Quorum(seats, least, GRACE, 0.75, 4), GRACE, previous)
    for rank in present:
        seen.contributed(member(rank))
    return seen


def test_without_its_share_a_round_waits_as_long_as_rounds_usually_take_and_then_does_with_the_fewest() -> None:
    pace = Pace(rounds=8, round_seconds=100.0, longest_seconds=120.0, samples_per_second=1.0)
    for before, patience in ((committed([0, 1, 2, 3]).model_copy(update={"pace": pace}), 100.0), (None, GRACE)):
        seen = elastic(before, 0)
        assert seen.decide(1e9) is WAIT
        seen.contributed(member(1))
        assert [seen.decide(now) for now in (100.0, 99.9 + patience, 100.0 + patience)] == [WAIT, WAIT, COMMIT]
        assert seen.decide(100.0, timed_out=True) is COMMIT
        # The grace begins with the share, and no later than the wait for it would have ended.
        seen.contributed(member(2))
        assert (seen.wanted, seen.decide(105.0), seen.closes_at) == (3, WAIT, 105.0 + GRACE)
        # A successor has not contributed, and is wanted as well.
        seen.claimed(2, 2)
        assert (seen.decide(106.0), seen.closes_at) == (WAIT, 100.0 + patience)
        seen.contributed(member(2, epoch=2))
        assert (seen.decide(101.0 + patience), seen.closes_at) == (WAIT, 100.0 + patience + GRACE)


def test_the_share_is_of_those_who_are_expected_and_the_fewest_less_who_has_finished() -> None:
    quorum = Quorum(10_000, 2, GRACE, 0.55, 20)
    assert [quorum.wanted(expected, 0) for expected in (20, 21, 1, 0)] == [11, 12, 2, 2]
    assert [quorum.wanted(expected, 1) for expected in (20, 1, 0)] == [11, 1, 1]
    seen = finished(elastic(committed([0, 1, 2, 3]), 0), 3)
    assert (seen.wanted, seen.needed, seen.absent) == (3, 1, (1, 2))
    seen.claimed(7, 1)
    assert (seen.wanted, seen.absent) == (3, (1, 2, 7))


def test_who_leaves_is_not_expected_and_an_empty_seat_is_neither_waited_for_nor_given_up() -> None:
    leaving = commit_of([member(0), member(1), member(2, leaves=True)])
    seen = elastic(leaving, 0, least=1)
    assert (seen.open_ranks, seen.absent, seen.decide(0.0)) == ([1], (1,), WAIT)
    seen.contributed(member(1))
    assert seen.decide(0.0) is COMMIT
    # All others have left: a seat may be taken again, by whomever.
    alone = elastic(commit_of([member(0), member(1, leaves=True)]), 0)
    assert (alone.open_ranks, alone.decide(1e9, timed_out=True)) == ([], WAIT)
    alone.claimed(6, 1, loads=True)
    assert alone.decide(0.0) is WAIT
    alone.claimed(6, 2)
    alone.contributed(member(6, epoch=2))
    assert (ranks(alone), alone.decide(0.0)) == ([0, 6], COMMIT)
    # Of those who are there one cannot be averaged: nothing that they wait for would change that.
    hopeless = elastic(committed([0, 1]), 0)
    hopeless.exclude(1, "NaN")
    assert hopeless.decide(0.0) is HOPELESS
    # The first round waits for the seats that are wanted from the start, and for who comes besides.
    first = elastic(None, 0, 1, 2)
    assert (first.open_ranks, first.decide(0.0)) == ([3], WAIT)
    first.claimed(5, 1)
    assert first.absent == (3, 5)


# --- the window in which a quorum waits -----------------------------------------------------------------------------

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
    return commit_of(
        [member(rank, incarnation=incarnations[rank]) for rank in range(4) if rank not in absent],
        round=number,
        committed_at=(BEGAN + timedelta(seconds=number * seconds + skew)).isoformat(),
        arrivals=tuple(arrivals),
        grace_seconds=5.0,
        absent=absent,
    )


def steady(wait: float, rounds: int = ROUNDS_SEEN, *, seconds: float = 1.0, skew: float = 0.0) -> list[Commit]:
    """Rounds whose last member came `wait` after the quorum of two."""
    return [round_of(n, [0.0, 1.0, 1.0, 1.0 + wait], seconds=seconds, skew=skew) for n in range(1, rounds + 1)]


EARLY = [
    round_of(number, [0.0, 1.0, 8.0], absent=(3,)).model_copy(update={"absent": (), "finished": (finish_of(3),)})
    for number in range(1, ROUNDS_SEEN + 1)
]


def test_the_window_is_a_multiple_of_what_rounds_needed_after_their_quorum_within_bounds() -> None:
    rows: list[tuple[str, float, int, list[Commit], float]] = [
        *((f"after {rounds} rounds", LONGEST, 2, steady(0.0, rounds), LONGEST) for rounds in range(ROUNDS_MIN)),
        ("a quorum of two", LONGEST, 2, steady(7.0), FACTOR * 7.0),
        ("a quorum of one", LONGEST, 1, steady(7.0), FACTOR * 8.0),
        ("no longer than the run allows", 10.0, 2, steady(7.0), 10.0),
        ("no shorter than the resolution of the store's clock", LONGEST, 2, steady(0.0), FACTOR * STORE_TIME_SECONDS),
        ("unless the run says so", 0.5, 2, steady(0.0), 0.5),
        ("a share of long rounds", LONGEST, 2, steady(0.0, seconds=300.0), ROUND_FRACTION * 300.0),
        ("a smaller quorum after an early finish", LONGEST, 3, EARLY, FACTOR * 7.0),
        ("a clock that is an hour slow", LONGEST, 2, steady(7.0, skew=-3_600.0), FACTOR * 7.0),
        ("a clock that is an hour fast", LONGEST, 2, steady(7.0, skew=3_600.0), FACTOR * 7.0),
    ]
    found = {
        name: (grace_window(Quorum(4, least, longest), rounds), window) for name, longest, least, rounds, window in rows
    }
    assert {name: both for name, both in found.items() if both[0] != both[1]} == {}


def test_one_slow_round_in_many_does_not_widen_the_window_and_many_do() -> None:
    usual = steady(3.0)
    for slow, needed in ((range(4, 5), 3.0), (range(8, 12), 100.0)):
        for index in slow:
            usual[index] = round_of(index + 1, [0.0, 0.0, 0.0, 100.0])
        assert grace_window(Quorum(4, 2, LONGEST), usual) == FACTOR * needed


def test_a_straggler_that_was_given_up_and_came_back_widens_the_window() -> None:
    rounds = steady(1.0, 6)
    for number in (2, 4):
        rounds[number - 1] = round_of(number, [0.0, 1.0, 1.0], absent=(3,))
    assert grace_window(Quorum(4, 2, LONGEST), rounds) == FACTOR * FACTOR * 5.0
    # One that died and was replaced does not.
    rounds = [
        *steady(1.0, 6),
        round_of(7, [0.0, 1.0, 1.0], absent=(3,)),
        round_of(8, [0.0, 1.0, 1.0, 2.0], incarnations=(1, 1, 1, 2)),
    ]
    assert grace_window(Quorum(4, 2, LONGEST), rounds) == FACTOR * 1.0


@given(
    st.lists(st.lists(st.floats(0, 1e6), min_size=1, max_size=4).map(sorted), max_size=20),
    st.integers(1, 4),
    st.floats(0, 1e5),
)
def test_the_window_lies_within_its_bound(arrivals: list[list[float]], least: int, longest: float) -> None:
    rounds = [round_of(number, each) for number, each in enumerate(arrivals, start=1)]
    assert 0 <= grace_window(Quorum(4, least, longest), rounds) <= longest


def test_the_round_is_committed_when_its_window_closes_and_no_poll_later(tmp_path: Path) -> None:
    for seconds in (0.7, 2.0, 2.3):
        clock, run = HandClock(passes=True), Run(tmp_path / f"{seconds}", replicas=2)
        rendezvous = run.open(clock=clock, quorum=Quorum(2, 1, seconds))
        rendezvous.rounds.exchange(1, LocalUpdate(np.ones(8, np.float32), 1.0))
        assert clock.seconds == pytest.approx(seconds, abs=1e-6)


# --- Claims: one holder per rank, whatever order processes start in -------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return LocalStore(tmp_path)


def test_incarnations_count_within_an_attempt_and_epochs_over_all(store: Store) -> None:
    *former, last = [claim_rank(store, RUN, 3, attempt) for attempt in (1, 1, 2, 2, 5)]
    found = [(claim.attempt, claim.incarnation, claim.epoch) for claim in (*former, last)]
    assert found == [(1, 1, 1), (1, 2, 2), (2, 1, 3), (2, 2, 4), (5, 1, 5)]
    check_claim(store, last)
    for claim in former:
        with pytest.raises(FencedError, match="superseded"):
            check_claim(store, claim)
        with pytest.raises(FencedError):
            succeed_claim(store, RUN, claim)


def test_a_claim_whose_answer_was_lost_is_recognised(tmp_path: Path) -> None:
    def losing() -> FaultyStore:
        lost = iter([True])

        def lose_answer(key: str) -> None:
            if next(lost, False):
                raise ObjectExistsError(key)

        return FaultyStore(LocalStore(tmp_path), Faults(after_create=lose_answer))

    held = claim_rank(losing(), RUN, 0, 1)
    assert held == Claim(0, 1, 1, 1)
    assert succeed_claim(losing(), RUN, held).epoch == 2


def test_a_rank_that_is_given_up_has_no_holder_until_it_is_claimed_again(store: Store) -> None:
    claim = claim_rank(store, RUN, 3, 1)
    assert newer_holder(store, 3, 1) is None
    succeed_claim(store, RUN, claim, finish_of(3))
    assert newer_holder(store, 3, 0) == newer_holder(store, 3, 1) == Holder(2, finish_of(3))
    with pytest.raises(FencedError):
        check_claim(store, claim)
    again = claim_rank(store, RUN, 3, 1)
    assert (again.incarnation, again.epoch) == (2, 3)
    assert newer_holder(store, 3, 1) == Holder(3, None)
    with pytest.raises(FencedError):
        succeed_claim(store, RUN, claim, finish_of(3))


def test_a_claim_that_cannot_be_read_and_a_finish_of_another_rank_fence_and_finish_nothing(store: Store) -> None:
    store.create(rendezvous_keys.claim(3, 1), b"{")
    assert newer_holder(store, 3, 0) == Holder(1, None)
    with pytest.raises(RendezvousError, match=r"claims/00003/000001\.json"):
        claim_rank(store, RUN, 3, 1)
    claim = claim_rank(store, RUN, 2, 1)
    succeed_claim(store, RUN, claim, finish_of(1))
    assert newer_holder(store, 2, 1) == Holder(2, None)


# --- A round that misses a rank on a cluster is reported, and never waits for that ----------------------------------


class WithClusters(Run):
    """A run whose ranks 1 and 2 run on clusters."""

    notices: LocalStore

    def context(self, *arguments: object) -> RoundContext:
        return replace(
            super().context(*arguments),  # type: ignore[arg-type]
            suspicions=Suspicions(self.notices, "run", ((1, 2),)),
        )


def test_a_commit_without_a_clusters_rank_is_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing_only_in(monkeypatch, 2)
    run = WithClusters(tmp_path / "run", replicas=3, min_participants=2, rounds=4)
    run.notices = LocalStore(tmp_path / "notices")
    for peer in [run.start(0), run.start(1), run.start(2, before_step=returns_before(2))][:2]:
        peer.join()
    name = Notice("run", NoticeKind.MISSING, 2, None, "2").name
    wait_until("the report", (tmp_path / "notices" / name).exists)
    assert [path.name for path in (tmp_path / "notices").iterdir()] == [name]


def test_a_round_that_waits_for_long_reports_whom_it_waits_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "WAITING_LOGGED_SECONDS", 0.2)
    run = WithClusters(tmp_path / "run", rounds=1)
    run.notices = LocalStore(tmp_path / "notices")
    peers = [run.start(0), run.start(1)]
    wait_until("the report", (tmp_path / "notices" / "missing-r2-1.json").exists)
    for peer in [*peers, run.start(2)]:
        peer.join()


def test_ranks_on_clusters_are_reported_and_no_more_than_a_bounded_number(tmp_path: Path) -> None:
    pool = ThreadPoolExecutor(1)
    Suspicions(LocalStore(tmp_path / "few"), "run", ((1, 1), (4, 5))).report(pool, 7, [0, 1, 2, 3, 5])
    Suspicions(LocalStore(tmp_path / "many"), "run", ((0, 9_999),)).report(pool, 1, range(10_000))
    pool.shutdown()
    assert sorted(path.name for path in (tmp_path / "few").iterdir()) == ["missing-r1-7.json", "missing-r5-7.json"]
    assert len(list((tmp_path / "many").iterdir())) == RANKS_MAX


def test_a_store_that_hangs_or_denies_delays_nothing(tmp_path: Path) -> None:
    let_go, pool = threading.Event(), ThreadPoolExecutor(1)

    class Hangs(LocalStore):
        def create(self, key: str, body: Bytes) -> None:
            let_go.wait(60)
            raise StoreDeniedError(key, "no")

    Suspicions(Hangs(tmp_path), "run", ((0, 1),)).report(pool, 1, [0])
    let_go.set()
    pool.shutdown()
    assert not list(tmp_path.iterdir())
