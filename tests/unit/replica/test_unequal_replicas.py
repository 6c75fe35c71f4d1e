"""A slow replica gives the steps that it has made when the others' contributions are enough for the round."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import StoppedError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.rounds import agreement, lookout
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.lookout import Lookout
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire import keys
from tests.support.copied_array import CopiedArray
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import PATIENT_SECONDS, Faults, FaultyStore, Run
from tests.support.waiting import wait_until

STEPS = 2_000  # inner steps of a phase: a slow replica does not come that far in a test
SLOW = 2  # the rank of the slow replica


def window_of(monkeypatch: pytest.MonkeyPatch, module: Any, seconds: float) -> None:
    """Let `module` take the grace window for so long."""

    def window(_longest: float, _least: int, _recent: Sequence[Commit]) -> float:
        return seconds

    monkeypatch.setattr(module, "grace_window", window)


class Replica:
    """One replica in a thread; what it does to its parameters depends on its rank and step alone."""

    def __init__(self, run: Run, rank: int, algorithm: Algorithm, attempt: int = 1) -> None:
        self.stop = threading.Event()
        self.rendezvous = Rendezvous.open(run.context(stop=self.stop), rank, attempt, Metrics())
        self.parameters = np.zeros(run.count, np.float32)
        self.outer = DiLoCo(self.rendezvous, self.parameters, algorithm)
        self.steps = 0

    def step(self) -> Outcome | None:
        self.steps += 1
        self.parameters -= np.float32(self.rendezvous.rank + 1)
        return self.outer.step()


def train_fast(replica: Replica, rounds: int) -> None:
    while replica.outer.round < rounds:
        replica.step()
    replica.outer.finish()


def train_slowly(replica: Replica, rounds: int) -> list[Outcome]:
    """Begin with three steps; a further one every now and then, until the rounds are over."""
    outcomes = []
    while replica.outer.round < rounds and not replica.stop.is_set():
        outcome = replica.step()
        if outcome is not None:
            outcomes.append(outcome)
        if replica.steps > 3:
            replica.stop.wait(0.01)
    replica.outer.finish()
    return outcomes


def trained(run: Run, algorithm: Algorithm, rounds: int, attempt: int = 1) -> tuple[list[Replica], list[Outcome]]:
    """Two fast replicas and a slow one; the outcomes of the slow one's rounds."""
    replicas = [Replica(run, rank, algorithm, attempt) for rank in range(3)]
    errors: list[BaseException] = []

    def fast(replica: Replica) -> None:
        try:
            train_fast(replica, rounds)
        except BaseException as error:
            errors.append(error)
            replicas[SLOW].stop.set()

    threads = [threading.Thread(target=fast, args=(replica,), daemon=True) for replica in replicas[:SLOW]]
    for thread in threads:
        thread.start()
    outcomes = train_slowly(replicas[SLOW], rounds)
    for thread in threads:
        thread.join(PATIENT_SECONDS)
        assert not thread.is_alive()
    assert not errors, errors
    return replicas, outcomes


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(STEPS),
        Algorithm(2 * STEPS, fragments=2),
        Algorithm(STEPS, delay=1, alpha=0.5),
        Algorithm(STEPS, eager=True),
        Algorithm(STEPS, codec="int8"),
    ],
    ids=["DiLoCo", "fragments", "delayed", "eager", "int8"],
)
def test_a_slow_replica_gives_what_it_has_when_the_others_are_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm
) -> None:
    window_of(monkeypatch, lookout, 0.0)
    run = Run(tmp_path, min_participants=2)
    replicas, outcomes = trained(run, algorithm, rounds=2)
    assert all(outcome.took_part for outcome in outcomes)
    assert len({replica.parameters.tobytes() for replica in replicas}) == 1
    for round_ in (1, 2):
        weights = {member.rank: member.weight for member in run.commit(round_).members}
        assert sorted(weights) == [0, 1, SLOW]
        # The others have made their whole phases; every step of the slow one counts, and no other.
        assert weights[0] + weights[1] >= STEPS
        assert 0 < weights[SLOW] < STEPS
    # A fragment weighs all steps since it was last exchanged.
    rounds = (2,) if algorithm.fragments == 2 else (1, 2)
    given = sum(member.weight for round_ in rounds for member in run.commit(round_).members if member.rank == SLOW)
    assert given in {replicas[SLOW].steps, replicas[SLOW].steps - 1}


def test_a_replica_that_ends_its_phase_within_the_grace_window_gives_all_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window_of(monkeypatch, lookout, 1e9)
    run = Run(tmp_path, min_participants=2)
    trained(run, Algorithm(200), rounds=1)
    assert [member.weight for member in run.commit(1).members] == [200, 200, 200]


def test_a_rerun_makes_all_steps_of_a_phase_to_which_its_predecessor_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The round may count its predecessor's contribution: with fewer steps it would come to the same data again.
    window_of(monkeypatch, lookout, 0.0)
    run = Run(tmp_path, min_participants=2)
    predecessor = Replica(run, SLOW, Algorithm(200))
    predecessor.stop.set()
    with pytest.raises(StoppedError):
        predecessor.step()
    replicas, _ = trained(run, Algorithm(200), rounds=1, attempt=2)
    assert replicas[SLOW].steps == 200


def test_a_rerun_whose_predecessor_gave_nothing_ends_its_first_phase_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window_of(monkeypatch, lookout, 0.0)
    run = Run(tmp_path, min_participants=2)
    replicas, _ = trained(run, Algorithm(200), rounds=1, attempt=2)
    assert replicas[SLOW].steps < 200
    assert [member.weight for member in run.commit(1).members] == [200, 200, replicas[SLOW].steps]


def test_a_replica_that_the_round_has_left_out_ends_its_phase_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window_of(monkeypatch, agreement, 0.0)
    window_of(monkeypatch, lookout, 1e9)
    run = Run(tmp_path, min_participants=2)
    slow = Replica(run, SLOW, Algorithm(STEPS))
    others = [Replica(run, rank, Algorithm(STEPS)) for rank in range(2)]
    threads = [threading.Thread(target=train_fast, args=(other, 1), daemon=True) for other in others]
    for thread in threads:
        thread.start()
    slow.step()
    wait_until("round 1", (run.root / keys.commit(1)).exists)
    (outcome,) = train_slowly(slow, 1)
    assert (outcome.participants, outcome.took_part) == ((0, 1), False)
    assert slow.steps < STEPS
    for thread in threads:
        thread.join(PATIENT_SECONDS)
    assert slow.parameters.tobytes() == others[0].parameters.tobytes()


@pytest.mark.parametrize(("needed", "looks"), [(3, False), (2, True)])
def test_no_look_is_made_where_every_contribution_is_needed(tmp_path: Path, needed: int, looks: bool) -> None:
    asked = threading.Event()

    class Asked(FaultyStore):
        def exists(self, key: str) -> bool:
            asked.set()
            return super().exists(key)

    run = Run(tmp_path, min_participants=needed)
    found = Lookout(run.context(Asked(run.store, Faults())), SLOW)
    found.begin(1, ())
    if looks:
        wait_until("a look", asked.is_set)
    assert not found.is_late(1e12)
    found.end()
    assert asked.is_set() == looks


def test_the_processes_of_a_slow_replica_give_after_the_same_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window_of(monkeypatch, lookout, 0.0)
    run = Run(tmp_path / "run", replicas=2, min_participants=1, count=100_000)
    algorithm = Algorithm(STEPS)
    fast = Replica(run, 0, algorithm)
    thread = threading.Thread(target=train_fast, args=(fast, 1), daemon=True)
    thread.start()
    shared, links, board = Shared(2), Shared(2), LocalBoard()
    steps, states, errors = [0, 0], [b"", b""], list[BaseException]()

    def work(index: int) -> None:
        try:
            context = replace(run.context(), group=InnerGroup(index, 2, index), board=board)
            rendezvous = Rendezvous.open(context, 1, 1, Metrics())
            rendezvous.connect(ThreadLink(shared, index))
            parameters = np.zeros(run.count, np.float32)
            packing = CopiedArray(parameters, ThreadLink(links, index))
            outer = Synchronizer(rendezvous, packing, algorithm, OwnState(lambda *_: lambda: None, lambda: None), None)
            while outer.round < 1:
                steps[index] += 1
                parameters -= 2
                outer.step(0.5)
                rendezvous.context.stop.wait(0.01)
            outer.finish()
            states[index] = parameters.tobytes()
        except BaseException as error:
            errors.append(error)
            links.barrier.abort()

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for process in threads:
        process.start()
    for process in (*threads, thread):
        process.join(PATIENT_SECONDS)
        assert not process.is_alive()
    assert not errors, errors
    assert steps[0] == steps[1] < STEPS
    assert [member.weight for member in run.commit(1).members] == [STEPS, steps[0]]
    assert set(states) == {fast.parameters.tobytes()}
