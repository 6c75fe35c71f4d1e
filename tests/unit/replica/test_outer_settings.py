"""Settings of the outer step: schedules of learning rate and momentum, a limit of norms, outliers."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from muster.contract.run.commit import Member
from muster.replica.algorithms.algorithm import Algorithm, norm_of, square_of
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov
from muster.replica.errors import AlgorithmError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.rounds.exchange import Outcome
from muster.replica.rounds.quorum import outliers
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import PATIENT_SECONDS, Run, together


def test_the_learning_rate_falls_and_the_momentum_rises_linearly() -> None:
    optimizer = Nesterov(0.8, 0.9, decay_rounds=4, final_learning_rate=0.4, momentum_rounds=3)
    found = [optimizer.at(update) for update in range(6)]
    np.testing.assert_allclose([each.learning_rate for each in found], [0.8, 0.7, 0.6, 0.5, 0.4, 0.4])
    np.testing.assert_allclose([each.momentum for each in found], [0, 0.3, 0.6, 0.9, 0.9, 0.9])


def test_without_a_schedule_every_update_has_the_settings_bit_for_bit() -> None:
    optimizer = Nesterov(0.7, 0.9)
    assert {optimizer.at(update) for update in (0, 1, 10_000)} == {optimizer}


def test_each_fragment_has_its_own_place_in_the_schedule() -> None:
    outer = Algorithm(sync_every=2, fragments=2, learning_rate=1.0, momentum=0.0, decay_rounds=1).outer
    state = GlobalState(0, np.zeros(4, np.float32), np.zeros(4, np.float32))
    for _ in range(4):
        outer.apply(state, np.ones(2, np.float32))
    # The first update of either fragment has the full rate, the second one none.
    assert state.parameters.tolist() == [-1, -1, -1, -1]


def test_a_replica_that_joins_later_replays_the_schedule(tmp_path: Path) -> None:
    algorithm = Algorithm(decay_rounds=3, final_learning_rate=0.1, momentum_rounds=2)

    def joined(attempt: int) -> tuple[DiLoCo, Floats]:
        run = Run(tmp_path, replicas=1, min_participants=1)
        parameters = np.zeros(5, np.float32)
        return DiLoCo(Rendezvous.open(run.context(), 0, attempt, Metrics()), parameters, algorithm), parameters

    outer, parameters = joined(1)
    for step in range(5):
        parameters -= np.float32(step)
        outer.step()
    by_hand = GlobalState(0, np.zeros(5, np.float32), np.zeros(5, np.float32))
    optimizer = Nesterov(0.7, 0.9, 3, 0.1, 2)
    for step in range(5):
        optimizer.at(step).step(by_hand.parameters, by_hand.momentum, np.full(5, step, np.float32))
    np.testing.assert_allclose(parameters, by_hand.parameters, rtol=1e-5)
    assert joined(2)[1].tobytes() == parameters.tobytes()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"decay_rounds": -1}, "decay_rounds is -1; allowed: 0 or more rounds"),
        ({"final_learning_rate": -0.1}, "final_learning_rate is -0.1; allowed: a number from 0"),
        ({"momentum_rounds": -3}, "momentum_rounds is -3; allowed: 0 or more rounds"),
        ({"clip_norm": float("nan")}, "clip_norm is nan; allowed: a number from 0"),
        ({"outlier_factor": 1.5}, "outlier_factor is 1.5; allowed: 0, or a number from 2"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(AlgorithmError) as caught:
        Algorithm(**settings)  # type: ignore[arg-type]
    assert message in str(caught.value)


def test_the_norm_does_not_depend_on_how_the_values_are_divided() -> None:
    values = np.random.default_rng(1).standard_normal(200_000).astype(np.float32) * 1e15
    whole = norm_of([square_of(values)])
    assert whole == pytest.approx(float(np.linalg.norm(values.astype(np.float64))), rel=1e-12)
    parts = np.split(values, [65_536, 131_072])
    assert norm_of(map(square_of, parts)) == norm_of(map(square_of, reversed(parts))) == whole


def trained(run: Run, algorithm: Algorithm, size: dict[int, float]) -> tuple[list[Floats], list[Outcome | None]]:
    """One round in which rank r moves each parameter by `size[r]`."""

    def work(rendezvous: Rendezvous) -> tuple[Floats, Outcome | None]:
        parameters = np.zeros(100, np.float32)
        outer = DiLoCo(rendezvous, parameters, algorithm)
        parameters -= np.float32(size[rendezvous.rank])
        return parameters, outer.step()

    results = together(run, work)
    return [parameters for parameters, _ in results], [outcome for _, outcome in results]


def test_a_pseudo_gradient_above_the_limit_is_scaled_down_to_it(tmp_path: Path) -> None:
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, clip_norm=20.0)  # 2 for each of 100 values
    parameters, _ = trained(Run(tmp_path), algorithm, {0: 1.0, 1: 50.0, 2: 3.0})
    np.testing.assert_allclose(parameters[0], -(1 + 2 + 2) / 3, rtol=1e-6)
    assert len({found.tobytes() for found in parameters}) == 1


def test_an_outlier_is_excluded_and_the_reason_is_named(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=4, min_participants=3)
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, outlier_factor=10.0)
    parameters, outcomes = trained(run, algorithm, {0: 1.0, 1: 2.0, 2: 500.0, 3: 3.0})
    np.testing.assert_allclose(parameters[0], -2, rtol=1e-6)
    assert len({found.tobytes() for found in parameters}) == 1
    assert [outcome.took_part for outcome in outcomes if outcome is not None] == [True, True, False, True]
    (excluded,) = run.commit(1).excluded
    assert (excluded.rank, excluded.reason) == (
        2,
        "the norm of its pseudo-gradient, 5000, is more than 10 times the median of the round, 25",
    )


def member(rank: int, norm: float | None) -> Member:
    return Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="00000000", norm=norm)


@pytest.mark.parametrize(
    ("norms", "factor", "needed", "excluded"),
    [
        ((1.0, 1.0, 100.0), 10.0, 2, [2]),
        ((1.0, 1.0, 100.0), 10.0, 3, []),  # the quorum is kept
        ((1.0, 1.0, 100.0), 0.0, 1, []),
        ((1.0, 100.0), 10.0, 1, []),  # which of the two?
        ((1.0, 2.0, 1.0, 50.0, 80.0), 10.0, 4, [4]),  # the furthest first
        ((1.0, 2.0, 1.0, 50.0, 80.0), 10.0, 1, [4, 3]),
        ((None, None, 100.0), 10.0, 1, []),
        ((0.0, 0.0, 0.0), 10.0, 1, []),
    ],
)
def test_outliers_are_those_far_above_the_median(
    norms: tuple[float | None, ...], factor: float, needed: int, excluded: list[int]
) -> None:
    members = [member(rank, norm) for rank, norm in enumerate(norms)]
    assert [item.rank for item in outliers(members, factor, needed)] == excluded


def test_members_have_no_norm_where_outliers_are_not_excluded(tmp_path: Path) -> None:
    run = Run(tmp_path)
    trained(run, Algorithm(clip_norm=1.0), {0: 1.0, 1: 2.0, 2: 3.0})
    assert "norm" not in run.commit(1).members[0].model_dump(exclude_defaults=True)


def test_a_replica_of_several_processes_is_scaled_by_the_norm_of_all_of_it(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1, count=100_000)
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, clip_norm=1.0)
    shared, links, board = Shared(2), Shared(2), LocalBoard()
    found: list[Floats] = []

    def work(index: int) -> None:
        context = replace(run.context(), group=InnerGroup(index, 2, index), board=board)
        rendezvous = Rendezvous.open(context, 0, 1, Metrics())
        rendezvous.connect(ThreadLink(shared, index))
        parameters = np.zeros(run.count, np.float32)
        packing = CopiedArray(parameters, ThreadLink(links, index))
        outer = Synchronizer(rendezvous, packing, algorithm, OwnState(lambda *_: lambda: None, lambda: None), None)
        parameters -= 3
        outer.step(1)
        found.append(parameters)

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENT_SECONDS)
    assert len(found) == 2
    for parameters in found:
        assert norm_of([square_of(parameters)]) == pytest.approx(1.0, rel=1e-5)
