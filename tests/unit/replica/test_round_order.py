"""The order of a round's steps, where another order would lose or double something."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from math import floor
from pathlib import Path
from threading import Event

import numpy as np
import pytest

from muster.contract.run.commit import Commit
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import FencedError, StoppedError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.agreement import Recent, agree, commit_time
from muster.replica.rounds.claims import claim_rank
from muster.replica.rounds.contribution import Notes, contribute, make_contribution
from muster.replica.rounds.exchange import LocalUpdate
from muster.replica.rounds.quorum import Quorum
from muster.replica.rounds.reduction import reduced_mean
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_context import RoundContext
from muster.replica.store.local_store import LocalStore
from muster.replica.store.transport import Store
from muster.replica.wire import keys
from tests.support.peers import RUN, Faults, FaultyStore, Killed, Run, gradient_of, kill_at
from tests.support.rendezvous_keys import is_like


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path, replicas=1, min_participants=1)


def train(store: Store, checkpoints: Path, rounds: int, attempt: int) -> bytes:
    """A replica that trains alone, with error feedback; its parameters."""
    context = RoundContext(store, RUN, Quorum(1, 1, 1.0), 20.0, Event())
    parameters = np.zeros(1000, np.float32)
    rendezvous = Rendezvous.open(context, 0, attempt, Metrics())
    outer = DiLoCo(rendezvous, parameters, Algorithm(codec="int4"), checkpoint_dir=checkpoints)
    while outer.round < rounds:
        parameters -= gradient_of(0, outer.round, parameters.size)
        outer.step()
    return parameters.tobytes()


def test_the_residual_is_not_lost_with_a_process_that_dies_once_its_contribution_counts(tmp_path: Path) -> None:
    unbroken = train(LocalStore(tmp_path / "a"), tmp_path / "b", rounds=5, attempt=1)
    store, checkpoints = LocalStore(tmp_path / "run"), tmp_path / "checkpoints"
    dies = FaultyStore(store, Faults(after_create=kill_at(keys.commit(2))))
    with pytest.raises(Killed):
        train(dies, checkpoints, rounds=5, attempt=1)
    assert train(store, checkpoints, rounds=5, attempt=2) == unbroken


class _Stops:
    """A clock whose first wait is interrupted: the process was asked to stop."""

    def monotonic(self) -> float:
        return 0.0

    def wait(self, stop: Event, seconds: float) -> bool:
        return True


@pytest.mark.parametrize(("replicas", "beside"), [(8, 7), (9, 1)])
def test_looks_beside_a_look_are_no_more_than_the_connections(tmp_path: Path, replicas: int, beside: int) -> None:
    """One replica has not contributed yet: where the others' claims are looked at besides, that is in vain."""
    run, read = Run(tmp_path, replicas=replicas, min_participants=1), list[str]()
    claims = [claim_rank(run.store, RUN, rank, 1) for rank in range(replicas)]
    made = [
        make_contribution(run.context(), claim, 2, LocalUpdate(gradient_of(claim.rank, 2, run.count), 1.0), Notes())
        for claim in claims
    ]
    for contribution in made[:-1]:
        contribute(run.context(), contribution)
    before = Commit(
        run=RUN,
        round=1,
        committed_at="2026-11-23T12:00:00+00:00",
        count=run.count,
        members=tuple(contribution.header.member for contribution in made),
        epochs=(1,) * replicas,
    )
    context = replace(run.context(FaultyStore(run.store, Faults(before_read=read.append))), clock=_Stops())
    with pytest.raises(StoppedError):
        agree(context, claims[0], made[0], Recent((before,), 0.0), context.polling())
    assert len([key for key in read if is_like(key, "claims/")]) == beside


def test_a_superseded_process_makes_no_shard_in_the_place_of_its_successor(run: Run) -> None:
    older = claim_rank(run.store, RUN, 0, 1)
    mine = make_contribution(run.context(), older, 1, LocalUpdate(gradient_of(0, 1, run.count), 1.0), Notes())
    successor = run.start(0, attempt=2).join()
    assert successor.error is None
    made: list[str] = []
    context = run.context(FaultyStore(run.store, Faults(before_create=made.append)))
    reduced_mean(context, run.commit(1), mine, context.polling())
    assert made == []


def test_a_superseded_process_uploads_no_contribution(run: Run) -> None:
    older = Rendezvous.open(run.context(), 0, 1, Metrics())
    claim_rank(run.store, RUN, 0, 2)
    update = LocalUpdate(gradient_of(0, 1, run.count), 1.0)
    for contributes in (older.exchange, older.give):
        with pytest.raises(FencedError):
            contributes(1, update)
    assert run.store.keys(keys.CONTRIBUTIONS, "d") == []


@pytest.mark.parametrize("committed", [False, True])
def test_a_replicas_own_state_is_saved_before_its_contribution_can_be_seen(run: Run, committed: bool) -> None:
    if committed:
        # Too late to contribute: the state is saved all the same, because the data were used.
        run.start(0).join()
    saved: list[str] = []
    store = FaultyStore(run.store, Faults(before_create=kill_at(keys.CONTRIBUTIONS)))
    rendezvous = Rendezvous.open(run.context(store), 0, 2, Metrics())
    update = LocalUpdate(np.ones(run.count, np.float32), 1.0, before_giving=lambda _: saved.append("saved"))
    if committed:
        rendezvous.exchange(1, update)
    else:
        with pytest.raises(Killed):
            rendezvous.exchange(1, update)
    assert saved == ["saved"]


@pytest.mark.parametrize("seconds", [0.3, 0.7, 2.9])
def test_a_commits_time_is_finer_than_the_stores_clock(seconds: float) -> None:
    noticed_after = 0.02  # a process sees a commit late, and the next one is made by the process that saw it
    committed = [100.0]
    for round_ in range(1, 60):
        now = 100.4 + round_ * seconds
        contributed = now - 0.05
        committed.append(commit_time(floor(contributed) + 0.05, committed[-1], seconds - noticed_after))
        assert now - 1 <= committed[-1] <= now
    # Whole seconds would make 0 and 1 of rounds that take a third of one.
    assert all(abs(end - begin - seconds) < 0.25 for begin, end in pairwise(committed[10:]))


def test_a_commits_time_follows_the_stores_clock_when_the_own_one_is_wrong() -> None:
    assert commit_time(1000.0, 990.0, 3600.0) == 1001.0
    assert commit_time(1000.0, 990.0, 0.0) == 1000.0
    assert commit_time(1000.0, 990.0, 10.4) == 1000.4
