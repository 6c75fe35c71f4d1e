"""Rounds of runs whose seats come and go: who leaves delays nobody, and whoever comes next continues from the log."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.model import model_writers
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds import agreement
from muster.replica.rounds.claims import Claim, announce, announced
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.store.local_store import LocalStore
from muster.replica.wire import rendezvous_keys
from tests.support.peers import (
    Faults,
    FaultyStore,
    HandClock,
    Killed,
    Peer,
    Run,
    all_ended,
    gradient_of,
    kill_at,
    missing_only_in,
)
from tests.support.rendezvous_keys import of_round
from tests.support.round_commits import commit_of, member
from tests.support.scaled_rounds import GRACE_SECONDS, scaled_rounds
from tests.support.waiting import wait_until

# A wait for a replica that has left would last as long as a test may: so does the grace of `Run`.


def elastic(root: Path, **fields: Any) -> Run:
    """A run of eight seats that begins with two."""
    usual: dict[str, Any] = {"replicas": 8, "min_participants": 1, "share": 0.75, "start_with": 2}
    return Run(root, **{**usual, **fields})


def leaving_in(run: Run, rank: int, round_: int) -> Peer:
    """A replica that is asked to stop in its phase for `round_`."""
    peers: list[Peer] = []

    def before_step(next_: int) -> None:
        if next_ == round_:
            wait_until("the peer", lambda: peers)
            peers[0].stop.set()

    peers.append(run.start(rank, before_step=before_step))
    return peers[0]


def ranks_of(run: Run, round_: int) -> list[int]:
    return [member.rank for member in run.commit(round_).members]


def test_who_leaves_gives_what_it_has_and_is_not_waited_for(tmp_path: Path) -> None:
    run = elastic(tmp_path, rounds=5)
    leaver, other = leaving_in(run, 1, 3), run.start(0)
    with all_ended([leaver, other]):
        found = other.parameters()
        assert isinstance(leaver.join().error, StoppedError)
    assert found == run.replayed_by_hand(lambda round_: [0, 1] if round_ <= 3 else [0])
    assert [[member.leaves for member in run.commit(round_).members] for round_ in (2, 3, 4)] == [
        [False, False],
        [False, True],
        [False],
    ]
    assert [run.commit(round_).absent for round_ in (3, 4, 5)] == [()] * 3
    assert other.rendezvous is not None
    assert other.rendezvous.members == (0,)


def test_who_is_stopped_while_it_waits_counts_and_is_not_waited_for(tmp_path: Path) -> None:
    run = elastic(tmp_path, rounds=5)
    given = tmp_path / rendezvous_keys.contribution(3, 1, 1)
    peers: list[Peer] = []

    def stops(_: str) -> None:
        if given.exists():
            peers[0].stop.set()

    def waits(next_: int) -> None:
        if next_ == 3:
            wait_until("the stop", peers[0].stop.is_set)

    peers.append(run.start(1, faults=Faults(before_read=stops)))
    other = run.start(0, before_step=waits)
    with all_ended([*peers, other]):
        found = other.parameters()
        assert isinstance(peers[0].join().error, StoppedError)
    assert found == run.replayed_by_hand(lambda round_: [0, 1] if round_ <= 3 else [0])
    assert (run.commit(4).absent, run.commit(4).epochs[:2]) == ((), (1, 2))


def test_who_leaves_makes_nothing_of_the_mean() -> None:
    """It may be gone by then. Where all leave, whoever is still there makes it."""
    staying, leaving = member(0), member(1, leaves=True)
    assert commit_of([staying, leaving]).makers == (staying,)
    assert commit_of([leaving]).makers == (leaving,)


def test_of_a_run_that_is_not_elastic_who_is_stopped_is_expected_again(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    leaver = leaving_in(run, 1, 3)
    other = run.start(0)
    with all_ended([leaver, other]):
        leaver.join()
        wait_until("the round", (tmp_path / rendezvous_keys.commit(3)).exists)
        rerun = run.start(1, attempt=2)
        assert rerun.parameters() == other.parameters()
    assert all(not member.leaves for round_ in range(1, 5) for member in run.commit(round_).members)


def test_after_all_have_left_another_replica_continues_from_the_log(tmp_path: Path) -> None:
    run = elastic(tmp_path, rounds=5)
    leavers = [leaving_in(run, rank, 3) for rank in range(2)]
    with all_ended(leavers):
        assert [type(peer.join().error) for peer in leavers] == [StoppedError] * 2
    assert not (run.root / rendezvous_keys.commit(3)).exists()
    late = run.start(5)
    with all_ended([late]):
        # What the two have given counts with its own.
        assert late.parameters() == run.replayed_by_hand(
            lambda round_: {3: [0, 1, 5]}.get(round_, [0, 1] if round_ < 3 else [5])
        )
    assert (run.commit(4).absent, run.commit(5).epochs) == ((), (1, 1, 0, 0, 0, 2))


def test_after_all_are_lost_another_replica_continues_from_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 3)
    run = elastic(tmp_path, share=None, rounds=5)
    dies = Faults(before_create=kill_at(of_round(rendezvous_keys.CONTRIBUTIONS, 3)))
    lost = [run.start(rank, faults=dies) for rank in range(2)]
    with all_ended(lost):
        assert [type(peer.join().error) for peer in lost] == [Killed] * 2
    late = run.start(5)
    with all_ended([late]):
        assert late.parameters() == run.replayed_by_hand(lambda round_: [0, 1] if round_ < 3 else [5])
    assert [run.commit(round_).absent for round_ in (3, 4)] == [(0, 1), ()]


def test_who_joins_is_known_while_it_loads_and_counts_in_the_round_after_it_is_ready(tmp_path: Path) -> None:
    run = elastic(tmp_path, rounds=5)
    opened: list[Rendezvous] = []
    joined: list[DiLoCo] = []
    parameters = np.zeros(run.count, np.float32)

    def before_step(round_: int) -> None:
        if round_ == 3:
            opened.append(run.open(6))
        if round_ == 4:
            joined.append(DiLoCo(opened[0], parameters))

    first, second = run.start(0, before_step=before_step), run.start(1)
    with all_ended([first, second]):
        wait_until("the joiner", lambda: joined)
        for round_ in (4, 5):
            parameters -= gradient_of(6, round_, run.count)
            outcome = joined[0].step(7)
            assert outcome is not None
            assert outcome.participants == (0, 1, 6)
        assert first.parameters() == second.parameters() == parameters.tobytes()
    # Data that it may still load are kept, because the commit knows of it.
    assert (ranks_of(run, 3), run.commit(3).epochs, run.commit(3).absent) == ([0, 1], (1, 1, 0, 0, 0, 0, 1), ())
    assert opened[0].members == (0, 1, 6)


def test_a_process_that_stays_although_it_was_to_leave_is_counted_again(tmp_path: Path) -> None:
    run = elastic(tmp_path, rounds=3)
    renewed = {1: rendezvous_keys.contribution(1, 1, 1), 2: rendezvous_keys.contribution(2, 1, 2)}

    def before_step(round_: int) -> None:
        if round_ in renewed:
            wait_until("what it gives", (run.root / renewed[round_]).exists)

    other, rendezvous = run.start(0, before_step=before_step), run.open(1)
    with all_ended([other]):
        DiLoCo(rendezvous, np.zeros(run.count, np.float32))
        training = rendezvous.departure.training
        assert isinstance(training, ReplicatedState)
        rendezvous.rounds.give(1, update := LocalUpdate(gradient_of(1, 1, run.count), 2.0))
        wait_until("the commit", (run.root / rendezvous_keys.commit(1)).exists)
        while training.round < run.rounds:
            rendezvous.rounds.play(training, replace(update, gradient=gradient_of(1, training.round + 1, run.count)))
        assert other.parameters() == training.state.parameters.tobytes()
    assert [ranks_of(run, round_) for round_ in (1, 2)] == [[0, 1]] * 2


def test_four_replicas_then_sixteen_then_two_train_on_without_a_restart_and_delay_no_round() -> None:
    """At the second change fourteen leave in the middle of a phase, which takes 120 s."""
    found = scaled_rounds(4, [(500, 16), (1_200, 2)], rounds=12, step=10, steps=12)
    assert found.failed == []
    assert [len(states) for states in found.states.values()] == [1] * 12
    assert found.longest_round < 1.1 * (120 + GRACE_SECONDS)
    assert len(found.passed) == 12
    assert max(found.passed.values()) <= 1


def test_a_look_costs_what_the_members_cost_however_many_seats_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agreement, "CHECK_SECONDS", 1_000.0)  # one look of each for a round
    sizes, requests = [], []
    for seats in (4, 10_000):
        run, seen = elastic(tmp_path / f"{seats}", replicas=seats, start_with=3, rounds=4), Counter[str]()
        count = Faults(before_read=lambda key, seen=seen: seen.update([key.split("/")[0]]))  # type: ignore[misc]
        peers = [run.start(rank, faults=count) for rank in range(3)]
        with all_ended(peers):
            for peer in peers:
                peer.parameters()
        requests.append(seen["contributions"] + seen["claims"])
        commit = run.commit(4)
        assert (len(commit.epochs), commit.pace is None or len(commit.pace.by_rank)) == (3, 3)
        sizes.append((run.root / rendezvous_keys.commit(4)).stat().st_size)
    # Of 3 peers and 4 rounds; the looks of one that waits depend on the machine.
    assert max(requests) < 3 * 4 * 3 * 6
    assert abs(sizes[1] - sizes[0]) < 100


def test_announcements_are_read_from_their_names_and_what_is_none_is_passed_over(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    announce(store, Claim(7, 1, 1, 3), 4)
    announce(store, Claim(9_999, 2, 1, 12, loads=True), 4)
    announce(store, Claim(8, 1, 1, 1), 5)
    store.create(f"{rendezvous_keys.announced_after(4)}x", b"")
    assert announced(store, 4) == [Claim(7, 0, 0, 3), Claim(9_999, 0, 0, 12, loads=True)]
    assert announced(store, 6) == []


# --- The model of a run in which a member of the last round never finishes ------------------------------------------


def left_by(run: Run, rank: int, clock: HandClock, results: Path, **fields: Any) -> None:
    """A replica that joins, whose trainer then returns."""
    rendezvous = run.open(rank, 2, Outside(results=LocalStore(results)), clock=clock, **fields)
    DiLoCo(rendezvous, np.zeros(run.count, np.float32)).finish()


@pytest.fixture
def trained(tmp_path: Path) -> Run:
    """An elastic run of two members, both of which have contributed to the last round."""
    run = elastic(tmp_path / "run", rounds=2, on_early_finish=None)
    peers = [run.start(rank) for rank in range(2)]
    with all_ended(peers):
        assert len({peer.parameters() for peer in peers}) == 1
    return replace(run, on_early_finish=OnEarlyFinish.CONTINUE)


def test_the_model_is_written_although_a_member_of_the_last_round_was_parked(trained: Run, tmp_path: Path) -> None:
    clock, results = HandClock(passes=True), tmp_path / "output"
    quorum = Quorum(8, 1, 30.0, 0.75, 2)
    left_by(trained, 0, clock, results, quorum=quorum)
    assert list(results.rglob("*.safetensors"))
    # It has waited for the other as long as a round may take, and not for seats that are empty.
    assert 30.0 <= clock.seconds < 35.0


def test_no_model_is_written_of_a_round_that_another_one_follows(
    trained: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results, looks = tmp_path / "output", []

    def commits(_context: object, _rank: int, _commit: object) -> bool:
        looks.append(1)
        if len(looks) == 2:
            body = (trained.root / rendezvous_keys.commit(2)).read_bytes()
            (trained.root / rendezvous_keys.commit(3)).write_bytes(body)
        return True

    monkeypatch.setattr(model_writers, "others_train_on", commits)
    left_by(trained, 0, HandClock(passes=True), results)
    assert not list(results.rglob("*.safetensors"))


def test_a_replica_that_is_asked_to_stop_while_it_waits_for_the_others_writes_the_model(
    trained: Run, tmp_path: Path
) -> None:
    results, rendezvous = tmp_path / "output", trained.open(0, 2, Outside(results=LocalStore(tmp_path / "output")))
    outer = DiLoCo(rendezvous, np.zeros(trained.count, np.float32))
    inner = FaultyStore(trained.store, Faults(before_read=lambda _: rendezvous.context.stops.asked.set()))
    rendezvous.rounds.context = replace(rendezvous.context, store=inner)
    outer.finish()
    assert list(results.rglob("*.safetensors"))
