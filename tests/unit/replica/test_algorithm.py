"""Algorithms: when fragments are exchanged, what is done with them, and that all replicas hold the same bits."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms import outer_optimizer
from muster.replica.algorithms.algorithm import Action, Algorithm, eager_estimate, mixed
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov, Outer
from muster.replica.errors import AlgorithmError, ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import METRICS_MAX, Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from tests.support.peers import Run, gradient_of, run_all
from tests.support.waiting import wait_until

COUNT = 103

ALGORITHMS: dict[str, dict[str, Any]] = {
    "diloco": {"sync_every": 4},
    "averaging": {"sync_every": 4, "learning_rate": 1.0, "momentum": 0.0},
    "streaming": {"sync_every": 12, "fragments": 3, "delay": 2, "alpha": 0.5},
    "eager": {"sync_every": 4, "eager": True},
}


def replica(
    rendezvous: Rendezvous, settings: dict[str, Any], rounds: int, before: Callable[[int], None] = lambda _: None
) -> bytes:
    """Trains on gradients that depend on rank and inner step; returns the final global parameters."""
    parameters = np.zeros(COUNT, np.float32)
    outer = DiLoCo(rendezvous, parameters, Algorithm(**settings))
    step = 0
    while outer.round < rounds:
        before(outer.round)
        step += 1
        parameters -= np.float32(0.01) * gradient_of(rendezvous.rank, 100 * outer.round + step % 7, COUNT)
        outer.step(1 + rendezvous.rank)
    outer.finish()
    assert rendezvous.training is not None
    assert parameters.tobytes() == rendezvous.training.state.parameters.tobytes()
    return parameters.tobytes()


@pytest.mark.parametrize("settings", ALGORITHMS.values(), ids=ALGORITHMS)
def test_all_replicas_and_one_that_was_killed_end_with_the_same_bits(tmp_path: Path, settings: dict[str, Any]) -> None:
    run = Run(tmp_path, replicas=3, min_participants=3)
    results: list[bytes] = []
    errors: list[BaseException] = []

    def work(rank: int) -> None:
        def dies(round_: int) -> None:
            if rank == 1 and round_ == 4:
                raise InterruptedError

        try:
            try:
                results.append(replica(Rendezvous.open(run.context(), rank, 1, Metrics()), settings, 9, dies))
            except InterruptedError:
                results.append(replica(Rendezvous.open(run.context(), rank, 2, Metrics()), settings, 9))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in range(3)]
    run_all(threads)
    assert errors == []
    assert len(results) == 3
    assert len(set(results)) == 1
    # A joiner that was never there replays to the same bits.
    late = np.zeros(COUNT, np.float32)
    DiLoCo(Rendezvous.open(run.context(), 2, 2, Metrics()), late, Algorithm(**settings))
    assert late.tobytes() == results[0]


def test_an_exchange_runs_beside_the_inner_steps_and_blocks_only_when_its_turn_comes(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    algorithm = Algorithm(sync_every=4, delay=3)
    first = DiLoCo(Rendezvous.open(run.context(), 0, 1, Metrics()), a := np.zeros(COUNT, np.float32), algorithm)
    a -= 1
    assert first.step() is None  # gives
    assert first.step() is None  # and continues, although no other replica has come
    assert first.round == 1
    second = DiLoCo(Rendezvous.open(run.context(), 1, 1, Metrics()), b := np.zeros(COUNT, np.float32), algorithm)
    b -= 3
    second.step()
    wait_until("the first commit", (tmp_path / "commits" / "00000001.json").exists)
    assert first.step() is None
    outcome = first.step()
    assert outcome is not None
    assert outcome.participants == (0, 1)
    # The mean pseudo-gradient is 2: a first Nesterov step from rest goes by 0.7 * (2 + 0.9 * 2).
    np.testing.assert_allclose(a, -2.66, rtol=1e-6)
    assert 0 < first.utilisation <= 1
    second.finish()


def test_utilisation_is_measured_and_goes_along_without_the_trainers_doing(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    metrics = Metrics()
    outer = DiLoCo(Rendezvous.open(run.context(), 0, 1, metrics), np.zeros(4, np.float32), Algorithm(sync_every=2))
    # As many names as a trainer may use: what is measured has room beside them.
    metrics.log(**{f"metric{index}": index for index in range(METRICS_MAX)})
    for _ in range(4):
        outer.step()
    assert 0 <= metrics.latest()["utilisation"] == outer.utilisation < 1
    assert outer.blocked_seconds > 0
    # What was measured of the first round goes with the second.
    assert "utilisation" not in run.commit(1).members[0].metrics
    assert len(run.commit(2).members[0].metrics) == METRICS_MAX + 1
    assert run.commit(2).members[0].metrics["utilisation"] < 1
    with pytest.raises(ValueError, match="a trainer can log at most 31 metrics"):
        metrics.log(one_more=1)


def test_averaging_is_the_weighted_average_of_the_parameters() -> None:
    rng = np.random.default_rng(0)
    state = GlobalState(0, rng.standard_normal(20).astype(np.float32), np.zeros(20, np.float32))
    locals_ = rng.standard_normal((3, 20)).astype(np.float32)
    weights = np.array([0.2, 0.3, 0.5], np.float32)
    mean = sum(
        (weight * (state.parameters - local) for weight, local in zip(weights, locals_, strict=True)), np.zeros(20)
    )
    Outer(Nesterov(1.0, 0.0)).apply(state, mean.astype(np.float32))
    np.testing.assert_allclose(state.parameters, weights @ locals_, rtol=1e-5, atol=1e-6)


def test_the_outer_step_of_a_large_model_has_the_same_bits_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(300_001).astype(np.float32) for _ in range(3)]
    whole, divided = (GlobalState(0, *(array.copy() for array in arrays[:2])) for _ in range(2))
    Outer().apply(whole, arrays[2])
    monkeypatch.setattr(outer_optimizer, "THREAD_ELEMENTS_MIN", 100_000)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    Outer().apply(divided, arrays[2])
    assert divided.parameters.tobytes() == whole.parameters.tobytes()
    assert divided.momentum.tobytes() == whole.momentum.tobytes()


def test_fragments_take_turns_and_cover_everything_once() -> None:
    outer = Outer(fragments=4)
    seen = [index for round_ in range(5, 9) for index in range(COUNT)[outer.part(round_, COUNT)]]
    assert seen == list(range(COUNT))
    state = GlobalState(0, np.zeros(COUNT, np.float32), np.zeros(COUNT, np.float32))
    part = outer.part(1, COUNT)
    outer.apply(state, np.ones(part.stop, np.float32))
    assert (state.parameters[part] != 0).all()
    assert not state.parameters[part.stop :].any()


def test_the_schedule_gives_and_merges_within_each_interval() -> None:
    algorithm = Algorithm(sync_every=12, fragments=2, delay=2)
    assert [algorithm.action_after(step) for step in range(1, 7)] == [
        Action.NOTHING, Action.NOTHING, Action.NOTHING, Action.GIVE, Action.NOTHING, Action.MERGE
    ]  # fmt: skip
    assert Algorithm(sync_every=1).action_after(1) is Action.GIVE_AND_MERGE


def test_mixing_keeps_alpha_of_the_local_parameters() -> None:
    local, shared = np.full(3, 4, np.float32), np.zeros(3, np.float32)
    assert mixed(local, shared, 0.25).tolist() == [1, 1, 1]
    assert mixed(local, shared, 0.0) is shared


def test_an_eager_estimate_renews_ones_own_part_of_the_last_mean() -> None:
    own, given, mean = (np.full(2, value, np.float32) for value in (6, 2, 5))
    assert eager_estimate(own, None).tolist() == [6, 6]
    assert eager_estimate(own, (mean, given, 0.25)).tolist() == [6, 6]  # 5 + (6 - 2) / 4


def test_everything_that_is_wrong_with_the_settings_is_said_at_once() -> None:
    with pytest.raises(AlgorithmError) as caught:
        Algorithm(sync_every=0, momentum=1.0, alpha=-1)
    assert str(caught.value) == (
        "The algorithm's settings are invalid: sync_every is 0; allowed: 1 or more inner steps; "
        "momentum is 1.0; allowed: from 0 to below 1; alpha is -1; allowed: from 0 to below 1."
    )


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"sync_every": 10, "fragments": 3}, "sync_every is 10; allowed: a multiple of the 3 fragments"),
        (
            {"sync_every": 10, "fragments": 2, "delay": 5},
            "delay is 5; allowed: below 5, the steps between two exchanges",
        ),
        ({"sync_every": 10, "eager": True, "alpha": 0.5}, "eager cannot be combined with fragments, delay or alpha"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(AlgorithmError, match=reason):
        Algorithm(**settings)


def test_more_fragments_than_values_are_refused(tmp_path: Path) -> None:
    rendezvous = Rendezvous.open(Run(tmp_path).context(), 0, 1, Metrics())
    with pytest.raises(ParametersError, match="fragments is 4; allowed: 1 to 2, the values of the model"):
        DiLoCo(rendezvous, np.zeros(2, np.float32), Algorithm(sync_every=4, fragments=4))


def test_replicas_with_other_settings_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    DiLoCo(Rendezvous.open(run.context(), 0, 1, Metrics()), np.zeros(5, np.float32), Algorithm(learning_rate=0.7))
    with pytest.raises(AlgorithmError, match=r"learning_rate is 0\.5 here and 0\.7 in the run"):
        DiLoCo(Rendezvous.open(run.context(), 1, 1, Metrics()), np.zeros(5, np.float32), Algorithm(learning_rate=0.5))
