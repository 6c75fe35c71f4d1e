"""A trainer that returns while the others train on: they are told, and the run's rule decides what follows."""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Finish
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import FencedError, RunEndedError
from muster.replica.rounds import agreement
from muster.replica.wire import rendezvous_keys
from tests.support.peers import (
    PATIENT_SECONDS,
    RUN,
    Faults,
    Killed,
    Peer,
    Returned,
    Run,
    all_ended,
    gradient_of,
    kill_at,
    missing_only_in,
    returns_before,
    together,
)
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.waiting import wait_until

RETURNED = "its trainer returned"


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "CHECK_SECONDS", 0.05)


def run_of(root: Path, rule: OnEarlyFinish, **fields: Any) -> Run:
    return replace(Run(root, on_early_finish=rule, timeout_seconds=30), **fields)


def members(run: Run, round_: int) -> list[int]:
    return [member.rank for member in run.commit(round_).members]


def start(run: Run, early: Mapping[int, int]) -> list[Peer]:
    """All replicas, by rank; the trainer of some returns before it trains for the round that `early` says."""
    return [
        run.start(rank, before_step=returns_before(early.get(rank, run.rounds + 1))) for rank in range(run.replicas)
    ]


def ended_in(peer: Peer) -> int:
    peer.parameters()
    assert peer.state is not None
    return peer.state.round


def after(*objects: Path) -> Callable[[int], None]:
    """For `Run.start`: a trainer whose third round begins when these objects exist."""

    def before_step(round_: int) -> None:
        if round_ == 3:
            wait_until("the objects", lambda: all(path.exists() for path in objects))

    return before_step


def test_the_others_train_on_without_a_replica_that_has_finished(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "muster.replica")
    # Without its finish they would wait for it until they time out: all three are needed for a round.
    run = run_of(tmp_path, OnEarlyFinish.CONTINUE, rounds=5)
    peers = start(run, {2: 3})
    with all_ended(peers):
        assert [ended_in(peer) for peer in peers] == [5, 5, 2]
    expected = run.replayed_by_hand(lambda round_: [0, 1, 2] if round_ < 3 else [0, 1])
    assert {peer.parameters() for peer in peers[:2]} == {expected}
    finish = (Finish(rank=2, run=RUN, round=2, how=RETURNED),)
    assert [run.commit(round_).finished for round_ in (2, 3, 5)] == [(), finish, finish]
    assert run.commit(3).absent == ()
    # Each of the others says so once.
    told = [record.getMessage() for record in caplog.records if "event=finished" in record.getMessage()]
    assert len(told) == 2
    assert all("round=3 event=finished rank=2 last_round=2 on_early_finish=continue" in line for line in told)


def test_with_stop_all_others_end_with_the_next_round(tmp_path: Path) -> None:
    run = run_of(tmp_path, OnEarlyFinish.STOP, rounds=9)
    peers = start(run, {2: 3})
    with all_ended(peers):
        assert [ended_in(peer) for peer in peers] == [3, 3, 2]
        assert peers[0].parameters() == peers[1].parameters()
    assert not (tmp_path / rendezvous_keys.commit(4)).exists()
    assert all(peer.rendezvous is not None and peer.rendezvous.context.stops.trainer.is_set() for peer in peers[:2])


def test_with_stop_a_replica_that_joins_later_ends_with_the_same_round(tmp_path: Path) -> None:
    run = run_of(tmp_path, OnEarlyFinish.STOP, rounds=9)
    peers = start(run, {2: 3})
    with all_ended(peers):
        assert [ended_in(peer) for peer in peers] == [3, 3, 2]
    joiner = run.start(1, attempt=2)
    assert joiner.parameters() == peers[0].parameters()
    assert (joiner.outcomes, ended_in(joiner)) == ([], 3)


def test_a_finished_replica_counts_towards_the_quorum_and_a_dead_one_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One of four may be dead. One has finished as well: the two others go on after a grace window.
    missing_only_in(monkeypatch, 2)
    run = run_of(tmp_path, OnEarlyFinish.CONTINUE, replicas=4, min_participants=3, rounds=3)
    early = run.start(3, before_step=returns_before(2))
    dead = run.start(2, faults=Faults(before_create=kill_at(of_round(rendezvous_keys.CONTRIBUTIONS, 2))))
    others = [run.start(rank) for rank in (0, 1)]
    with all_ended([early, dead, *others]):
        assert [ended_in(peer) for peer in others] == [3, 3]
        assert isinstance(dead.join().error, Killed)
    assert (members(run, 2), run.commit(2).absent) == ([0, 1], (2,))


def test_a_rerun_of_a_replica_that_had_finished_takes_part_again(tmp_path: Path) -> None:
    """Its job failed after its trainer had returned, and before the others had contributed to the next round."""
    for rule in OnEarlyFinish:
        run = run_of(tmp_path / rule, rule, rounds=4)
        early = run.start(2, before_step=returns_before(3))
        others = [run.start(rank, before_step=after(run.root / rendezvous_keys.claim(2, 3))) for rank in (0, 1)]
        with all_ended([early, *others]):
            early.parameters()
            rerun = run.start(2, attempt=2)
            finals = {peer.parameters() for peer in (rerun, *others)}
        assert finals == {run.replayed_by_hand()}, rule
        assert run.commit(4).finished == (), rule


def test_a_process_that_dies_while_it_reports_its_finish_is_rerun_like_any_other(tmp_path: Path) -> None:
    run = run_of(tmp_path, OnEarlyFinish.CONTINUE, rounds=4)
    dies = Faults(before_create=kill_at(rendezvous_keys.claim(2, 2)))
    early = run.start(2, before_step=returns_before(3), faults=dies)
    others = [run.start(rank) for rank in (0, 1)]
    with all_ended([early, *others]):
        assert isinstance(early.join().error, Killed)
        rerun = run.start(2, attempt=2, before_step=returns_before(3))
        assert [ended_in(peer) for peer in (rerun, *others)] == [2, 4, 4]
    assert run.commit(4).finished == (Finish(rank=2, run=RUN, round=2, how=RETURNED),)


def test_a_superseded_process_cannot_give_up_the_rank_of_its_successor(tmp_path: Path) -> None:
    run = run_of(tmp_path, OnEarlyFinish.CONTINUE, replicas=1, min_participants=1, rounds=1)
    superseded: list[Peer] = []

    def supersede(_: int) -> None:
        superseded.append(run.start(0, attempt=2))
        wait_until("the newer claim", (run.root / rendezvous_keys.claim(0, 2)).exists)
        raise Returned

    early = run.start(0, before_step=supersede)
    assert isinstance(early.join().error, FencedError)
    assert ended_in(superseded[0]) == 1


def test_a_contribution_of_a_process_that_has_finished_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program ended while it exchanged: what it holds, and what its manifest says, is without that round."""
    # The others see the finish when they look before they commit, and not before.
    monkeypatch.setattr(agreement, "CHECK_SECONDS", PATIENT_SECONDS)
    run = run_of(tmp_path, OnEarlyFinish.CONTINUE, rounds=3)
    gives = of_round(rendezvous_keys.CONTRIBUTIONS, 3)

    def finish(key: str) -> None:
        if is_like(key, gives):
            assert early.rendezvous is not None
            early.rendezvous.departure.finish("its trainer called sys.exit(0)")

    def hold(key: str) -> None:
        if is_like(key, gives):
            wait_until("the finish", (run.root / rendezvous_keys.claim(2, 2)).exists)

    early = run.start(2, faults=Faults(after_create=finish))
    others = [run.start(rank, faults=Faults(before_create=hold)) for rank in (0, 1)]
    with all_ended([early, *others]):
        finals = {peer.parameters() for peer in others}
        assert isinstance(early.join().error, FencedError)
    assert members(run, 3) == [0, 1]
    assert [finish.rank for finish in run.commit(3).finished] == [2]
    assert finals == {run.replayed_by_hand(lambda round_: [0, 1, 2] if round_ < 3 else [0, 1])}


def test_a_continuation_calls_the_trainers_again_and_waits_for_all(tmp_path: Path) -> None:
    for rule in OnEarlyFinish:
        first = run_of(tmp_path / rule, rule, rounds=3)
        peers = start(first, {2: 3})
        with all_ended(peers):
            assert [ended_in(peer) for peer in peers] == [3, 3, 2]
        second = replace(first, name="second", rounds=5)
        late = [second.start(0, attempt=2), second.start(1, attempt=2)]
        with all_ended(late):
            given = "contributions/*/00000004-*"
            wait_until("both contributions", lambda given=given, run=second: len(list(run.root.glob(given))) == 2)
            assert not (second.root / rendezvous_keys.commit(4)).exists(), "rank 2 of the continuation is not there yet"
            late.append(second.start(2, attempt=2))
            assert [ended_in(peer) for peer in late] == [5, 5, 5], rule
        assert (members(second, 4), second.commit(4).finished) == ([0, 1, 2], ()), rule


def test_a_continuation_of_a_run_that_all_had_finished_does_not_begin_with_one_replica(tmp_path: Path) -> None:
    first = run_of(tmp_path, OnEarlyFinish.CONTINUE, rounds=3)
    peers = first.start_all()
    with all_ended(peers):
        assert [ended_in(peer) for peer in peers] == [3, 3, 3]
    second = replace(first, name="second", rounds=4)
    read: list[str] = []
    peers = [second.start(0, attempt=2, faults=Faults(before_read=read.append))]
    with all_ended(peers):
        # The finish of each other replica is its second claim. Its look for the third ones is over.
        wait_until(
            "a look for newer claims", lambda: {rendezvous_keys.claim(1, 3), rendezvous_keys.claim(2, 3)} <= set(read)
        )
        peers += [second.start(rank, attempt=2) for rank in (1, 2)]
        assert [ended_in(peer) for peer in peers] == [4, 4, 4]
    assert members(second, 4) == [0, 1, 2]


def test_with_stop_every_algorithm_ends_with_the_global_parameters(tmp_path: Path) -> None:
    algorithms = {
        "plain": Algorithm(sync_every=4),
        "delayed": Algorithm(sync_every=4, delay=2, alpha=0.5),
        "streaming": Algorithm(sync_every=4, fragments=2, delay=1),
        "eager": Algorithm(sync_every=4, eager=True),
    }
    for (name, algorithm), looks in product(algorithms.items(), (True, False)):
        # The trainer returns when it is asked to, or calls on until it is told that the run has ended.
        run = run_of(tmp_path / f"{name}-{looks}", OnEarlyFinish.STOP)

        def train(
            rendezvous: Rendezvous, run: Run = run, algorithm: Algorithm = algorithm, looks: bool = looks
        ) -> tuple[int, bool]:
            parameters = np.zeros(run.count, np.float32)
            outer = DiLoCo(rendezvous, parameters, algorithm)
            training = rendezvous.departure.training
            assert training is not None
            rounds = 2 if rendezvous.rank == 2 else 50
            with suppress(RunEndedError):
                while outer.round < rounds and not (looks and rendezvous.context.stops.trainer.is_set()):
                    parameters -= gradient_of(rendezvous.rank, outer.round + 1, run.count)
                    outer.step()
            outer.finish()
            rendezvous.departure.finish(RETURNED)
            return training.state.round, parameters.tobytes() == training.state.parameters.tobytes()

        *others, early = together(run, train)
        assert all(same for _, same in (early, *others)), (name, looks)
        assert {round_ for round_, _ in others} == {early[0] + 1}, (name, looks)


def test_with_stop_a_trainer_is_asked_to_return_during_the_phase_in_which_the_run_ends(tmp_path: Path) -> None:
    run = run_of(tmp_path, OnEarlyFinish.STOP)
    algorithm = Algorithm(sync_every=9, delay=8)

    def train(rendezvous: Rendezvous) -> None:
        outer = DiLoCo(rendezvous, np.zeros(run.count, np.float32), algorithm)
        if rendezvous.rank == 0:
            rendezvous.departure.finish(RETURNED)
            return
        outer.step()  # gives to the last round, whose result enters the parameters eight steps later
        wait_until("the end of the run", rendezvous.context.stops.trainer.is_set, seconds=30)
        outer.finish()

    together(run, train)
