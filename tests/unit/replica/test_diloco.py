"""The trainer's side: parameters in place, the outer step, models that do not fit."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov, Outer
from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_history import last_committed
from muster.replica.store.local_store import LocalStore
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.keys import commit
from tests.support.peers import Run, together


def alone(root: Path) -> Rendezvous:
    return Rendezvous.open(Run(root, replicas=1, min_participants=1).context(), 0, 1, Metrics())


def zeros(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


def test_named_arrays_are_updated_in_place_and_the_result_does_not_depend_on_their_order(tmp_path: Path) -> None:
    results = []
    for name, order in (("one", ("a", "b")), ("two", ("b", "a"))):
        arrays = {key: {"a": zeros(3, 4), "b": zeros(5)}[key] for key in order}
        outer = DiLoCo(alone(tmp_path / name), arrays)
        arrays["a"] -= 1
        arrays["b"] -= 2
        outer.step()
        assert outer.round == 1
        results.append((arrays["a"].tobytes(), arrays["b"].tobytes()))
    assert results[0] == results[1]
    # First Nesterov step from rest: -0.7 * (g + 0.9 g).
    np.testing.assert_allclose(np.frombuffer(results[0][0], np.float32), -1.33, rtol=1e-6)


def test_nesterov_follows_its_formula() -> None:
    rng = np.random.default_rng(1)
    state = GlobalState(0, rng.standard_normal(50).astype(np.float32), zeros(50))
    theta, m = state.parameters.astype(np.float64), np.zeros(50)
    for _ in range(10):
        gradient = rng.standard_normal(50).astype(np.float32)
        Outer(Nesterov(0.5, 0.8)).apply(state, gradient)
        m = 0.8 * m + gradient
        theta -= 0.5 * (gradient + 0.8 * m)
    assert state.round == 10
    np.testing.assert_allclose(state.parameters, theta, rtol=1e-4, atol=1e-5)


def test_everything_that_is_wrong_with_the_parameters_is_said_at_once(tmp_path: Path) -> None:
    fixed = zeros(2)
    fixed.flags.writeable = False
    wrong = {"a": np.zeros(3), "b": fixed, "c": [1.0]}
    with pytest.raises(ParametersError) as caught:
        DiLoCo(alone(tmp_path), wrong)
    assert str(caught.value) == (
        "The parameters cannot be trained: a is float64, not float32; b is read-only; "
        "c is of type list, neither a NumPy array nor one that DLPack can share with NumPy."
    )


@pytest.mark.parametrize("other", [{"a": zeros(4)}, {"b": zeros(3)}, {"a": zeros(3, 1)}])
def test_a_replica_with_another_model_is_refused(tmp_path: Path, other: dict[str, Floats]) -> None:
    DiLoCo(alone(tmp_path), {"a": zeros(3)})
    with pytest.raises(ParametersError, match="Every replica must build the same model"):
        DiLoCo(alone(tmp_path), other)


def test_no_parameters_and_a_second_join_are_refused(tmp_path: Path) -> None:
    rendezvous = alone(tmp_path)
    with pytest.raises(ParametersError, match="there are no parameters"):
        DiLoCo(rendezvous, {})
    DiLoCo(rendezvous, zeros(3))
    with pytest.raises(ParametersError, match="has already joined the rendezvous"):
        DiLoCo(rendezvous, zeros(3))


@pytest.mark.parametrize("samples", [-1, float("nan"), float("inf")])
def test_a_weight_that_is_none_is_refused(tmp_path: Path, samples: float) -> None:
    outer = DiLoCo(alone(tmp_path), zeros(3))
    with pytest.raises(ParametersError, match=r"samples is .*; allowed: 0 or a positive, finite number"):
        outer.step(samples)


def test_a_round_without_samples_is_declined_and_a_step_without_any_is_not(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=1)

    def work(rendezvous: Rendezvous) -> list[tuple[int, ...]]:
        outer = DiLoCo(rendezvous, zeros(3), Algorithm(sync_every=2))
        participants = []
        for step in range(4):
            # Rank 1 has no samples in the first round, and some in the second step of the second one.
            outcome = outer.step(samples=0 if rendezvous.rank == 1 and step < 3 else 1)
            if outcome is not None:
                participants.append(outcome.participants)
        return participants

    assert together(run, work)[0] == [(0,), (0, 1)]


def test_all_replicas_begin_with_the_same_parameters_whatever_they_brought(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=4)
    begun: list[bytes] = []

    def begin(rank: int) -> None:
        parameters = np.full(100, rank, np.float32)
        DiLoCo(Rendezvous.open(run.context(), rank, 1, Metrics()), parameters)
        begun.append(parameters.tobytes())

    threads = [threading.Thread(target=begin, args=(rank,)) for rank in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(begun) == 4
    assert len(set(begun)) == 1


def test_the_last_committed_round_is_found_by_few_looks(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for round_ in range(40):
        assert last_committed(store) == round_
        store.create(commit(round_ + 1), b"{}")
