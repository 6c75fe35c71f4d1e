"""Algorithms and the trainer's side: what is exchanged when, arrays of any library, the trainer's own state."""

import math
import threading
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Member
from muster.replica.algorithms import outer_optimizer
from muster.replica.algorithms.algorithm import Action, Algorithm, eager_estimate, mixed, norm_of, square_of
from muster.replica.algorithms.outer_optimizer import GlobalState, Nesterov
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.model.final_model import FinalModel
from muster.replica.parts.cut import Cut
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import AlgorithmError, ParametersError
from muster.replica.rounds.exchange import Exchange, RoundOutcome
from muster.replica.rounds.quorum import outliers
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.statistics.metrics import METRICS_MAX
from muster.replica.wire.binary_format import Floats
from tests.support.data_position import DataPosition
from tests.support.groups import ThreadGroup
from tests.support.peers import Run, run_all, together

COUNT = 103


def test_an_exchange_runs_beside_the_inner_steps_and_blocks_only_when_its_turn_comes(tmp_path: Path) -> None:
    run, algorithm = Run(tmp_path, replicas=2, min_participants=2), Algorithm(sync_every=4, delay=3)
    a, b = (np.zeros(COUNT, np.float32) for _ in range(2))
    first = DiLoCo(run.open(), a, algorithm)
    a -= 1
    # It gives and continues, although no other replica has come.
    assert (first.step(), first.step(), first.round) == (None, None, 1)
    second = DiLoCo(run.open(1), b, algorithm)
    b -= 3
    second.step()
    assert first.step() is None
    outcome = first.step()
    assert outcome is not None
    assert outcome.participants == (0, 1)
    # The mean pseudo-gradient is 2: a first Nesterov step from rest goes by 0.7 * (2 + 0.9 * 2).
    np.testing.assert_allclose(a, -2.66, rtol=1e-6)
    second.finish()


def test_what_is_measured_has_room_beside_as_many_metrics_as_a_trainer_may_log(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    outer, metrics = DiLoCo(rendezvous := run.open(), np.zeros(4, np.float32)), rendezvous.statistics.metrics
    metrics.log(**{f"metric{index}": index for index in range(METRICS_MAX)})
    for _ in range(2):
        outer.step()
    assert 0 <= metrics.latest()["utilisation"] == outer.utilisation < 1
    assert outer.blocked_seconds > 0
    # What was measured of the first round goes with the second.
    assert [len(run.commit(round_).members[0].metrics) for round_ in (1, 2)] == [METRICS_MAX, METRICS_MAX + 1]
    with pytest.raises(ValueError, match="a trainer can log at most 31 metrics"):
        metrics.log(one_more=1)


def test_the_outer_step_of_a_large_model_has_the_same_bits_in_several_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(300_001).astype(np.float32) for _ in range(3)]
    whole, divided = (GlobalState(0, *(array.copy() for array in arrays[:2])) for _ in range(2))
    Nesterov().apply(whole, arrays[2], Cut(300_001))
    monkeypatch.setattr(outer_optimizer, "THREAD_ELEMENTS_MIN", 100_000)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    Nesterov().apply(divided, arrays[2], Cut(300_001))
    assert divided.parameters.tobytes() == whole.parameters.tobytes()
    assert divided.momentum.tobytes() == whole.momentum.tobytes()


def test_fragments_take_turns_each_with_its_own_place_in_the_schedule() -> None:
    algorithm = Algorithm(sync_every=12, fragments=2, delay=2, learning_rate=1.0, momentum=0.0, decay_rounds=1)
    assert [algorithm.action_after(step) for step in range(1, 7)] == [
        *[Action.NOTHING] * 3, Action.GIVE, Action.NOTHING, Action.MERGE
    ]  # fmt: skip
    assert Algorithm(sync_every=1).action_after(1) is Action.GIVE_AND_MERGE
    cut = Cut(COUNT, fragments=2)
    assert [index for round_ in (5, 6) for index in range(COUNT)[cut.fragment_of(round_)]] == list(range(COUNT))
    state = GlobalState(0, np.zeros(4, np.float32), np.zeros(4, np.float32))
    for expected in ([-1, -1, 0, 0], [-1] * 4, [-1] * 4, [-1] * 4):
        # The first update of either fragment has the full rate, the second one none.
        algorithm.outer.apply(state, np.ones(2, np.float32), Cut(4, fragments=2))
        assert state.parameters.tolist() == expected


def test_mixing_keeps_alpha_of_the_local_parameters_and_an_estimate_renews_ones_own_part_of_the_mean() -> None:
    local, shared = np.full(3, 4, np.float32), np.zeros(3, np.float32)
    assert mixed(local, shared, 0.25).tolist() == [1, 1, 1]
    assert mixed(local, shared, 0.0) is shared
    own, given, mean = (np.full(2, value, np.float32) for value in (6, 2, 5))
    assert eager_estimate(own, None).tolist() == [6, 6]
    assert eager_estimate(own, (mean, given, 0.25)).tolist() == [6, 6]  # 5 + (6 - 2) / 4


def test_settings_that_contradict_each_other_are_refused(tmp_path: Path, subtests: pytest.Subtests) -> None:
    refused: list[tuple[dict[str, Any], str]] = [
        ({"sync_every": 0, "momentum": 1.0, "alpha": -1}, "sync_every is 0; .*momentum is 1.0; .*alpha is -1; "),
        ({"sync_every": 10, "fragments": 3}, "sync_every is 10; allowed: a multiple of"),
        ({"sync_every": 10, "fragments": 2, "delay": 5}, "delay is 5; allowed: below 5"),
        ({"sync_every": 10, "eager": True, "alpha": 0.5}, "eager cannot be combined with"),
        ({"decay_rounds": -1}, "decay_rounds is -1; allowed: 0 or more"),
        ({"final_learning_rate": -0.1}, "final_learning_rate is -0.1; allowed"),
        ({"final_learning_rate": 0.1}, "final_learning_rate is set without decay_rounds"),
        ({"momentum_rounds": -3}, "momentum_rounds is -3; allowed: 0 or more"),
        ({"restart_rounds": -1}, "restart_rounds is -1; allowed: 0 or more"),
        ({"feedback_decay": 0.0, "codec": "int4"}, "feedback_decay is 0.0; allowed: above 0 to 1"),
        ({"feedback_decay": 0.9}, "feedback_decay is set, and fp32 loses nothing"),
        ({"average": "median"}, "average is 'median'; allowed: mean, rda"),
        ({"average": "rda", "codec": "topk2-64"}, "average is 'rda'; allowed with codec topk2-64: mean, because"),
        ({"clip_norm": float("nan")}, "clip_norm is nan; allowed"),
        ({"outlier_factor": 1.5}, "outlier_factor is 1.5; allowed: 0, or"),
    ]
    for settings, reason in refused:
        with subtests.test(reason), pytest.raises(AlgorithmError, match=reason):
            Algorithm(**settings)
    with pytest.raises(ParametersError, match="fragments is 4; allowed: 1 to 2"):
        DiLoCo(Run(tmp_path).open(), np.zeros(2, np.float32), Algorithm(sync_every=4, fragments=4))


def test_settings_of_another_type_are_refused_all_at_once() -> None:
    wrong: list[tuple[str, Any, str]] = [
        ("sync_every", "500", "a whole number"),
        ("fragments", 2.0, "a whole number"),
        ("delay", 0.5, "a whole number"),
        ("learning_rate", "1e-3", "a number"),
        ("momentum", True, "a number"),
        ("clip_norm", None, "a number"),
        ("eager", "false", "true or false"),
        ("codec", None, "a text"),
        ("average", 1, "a text"),
        ("decay_rounds", -1, "0 or more rounds"),
    ]
    with pytest.raises(AlgorithmError) as refused:
        Algorithm(**{name: value for name, value, _ in wrong})
    for name, value, allowed in wrong:
        assert f"{name} is {value!r}; allowed: {allowed}" in str(refused.value)
    Algorithm(learning_rate=1, momentum=np.float64(0.5), alpha=0)


def test_replicas_with_other_settings_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    DiLoCo(run.open(), np.zeros(5, np.float32), Algorithm(learning_rate=0.7))
    with pytest.raises(AlgorithmError, match=r"learning_rate is 0\.5 here and 0\.7 in the run"):
        DiLoCo(run.open(1), np.zeros(5, np.float32), Algorithm(learning_rate=0.5))


def test_nesterov_follows_its_formula_and_its_schedule() -> None:
    rng = np.random.default_rng(1)
    theta, m = rng.standard_normal(50), np.zeros(50)
    state = GlobalState(0, theta.astype(np.float32), np.zeros(50, np.float32))
    for _ in range(3):
        gradient = rng.standard_normal(50).astype(np.float32)
        Nesterov(0.5, 0.8).apply(state, gradient, Cut(50))
        m = 0.8 * m + gradient
        theta -= 0.5 * (gradient + 0.8 * m)
    assert state.round == 3
    np.testing.assert_allclose(state.parameters, theta, rtol=1e-4, atol=1e-5)
    optimizer = Nesterov(0.8, 0.9, decay_rounds=4, final_learning_rate=0.4, momentum_rounds=3)
    found = [optimizer.at(update) for update in range(6)]
    np.testing.assert_allclose([each.learning_rate for each in found], [0.8, 0.7, 0.6, 0.5, 0.4, 0.4])
    np.testing.assert_allclose([each.momentum for each in found], [0, 0.3, 0.6, 0.9, 0.9, 0.9])
    settings = {"decay_rounds": 3, "final_learning_rate": 0.1, "momentum_rounds": 2, "restart_rounds": 9}
    assert Algorithm(**settings).outer == Nesterov(0.7, 0.9, 3, 0.1, 2, 9)  # type: ignore[arg-type]


def test_the_momentum_begins_again_at_each_restart_of_every_fragment() -> None:
    for fragments in (1, 2):
        state = GlobalState(0, np.zeros(4, np.float32), np.zeros(4, np.float32))
        seen = []
        for _ in range(4 * fragments):
            part = Cut(4, fragments=fragments).fragment_of(state.round + 1)
            cut = Cut(4, fragments=fragments)
            Nesterov(1.0, 0.5, restart_rounds=2).apply(state, np.ones(4 // fragments, np.float32), cut)
            seen.append(float(state.momentum[cut.local(part)][0]))
        assert seen == [momentum for momentum in (1, 1.5, 1, 1.5) for _ in range(fragments)]


@pytest.mark.parametrize(("rounds", "begins_again"), [(1, False), (2, True)])
def test_the_momentum_begins_again_in_a_void_round_too(tmp_path: Path, rounds: int, begins_again: bool) -> None:
    run, parameters = Run.alone(tmp_path), zeros(3)
    rendezvous = run.open()
    outer = DiLoCo(rendezvous, parameters, Algorithm(restart_rounds=2))
    for _ in range(rounds):
        parameters -= 1
        outer.step()
    training = rendezvous.departure.training
    assert isinstance(training, ReplicatedState)
    before = training.state.parameters.tobytes(), training.state.momentum.tobytes()
    void = run.commit(rounds).model_copy(update={"void": True})
    training.apply(Exchange(void, zeros(3), rank=0))
    assert training.round == rounds + 1
    after = training.state.parameters.tobytes(), training.state.momentum.tobytes()
    assert after == (before[0], zeros(3).tobytes() if begins_again else before[1])


def trained(run: Run, algorithm: Algorithm, size: dict[int, float]) -> tuple[list[Floats], list[RoundOutcome | None]]:
    """One round in which rank r moves each parameter by `size[r]`."""

    def work(rendezvous: Rendezvous) -> tuple[Floats, RoundOutcome | None]:
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


@pytest.mark.parametrize("average", ["mean", "rda"])
def test_an_eager_replica_continues_from_what_it_has_sent_of_a_step_that_is_too_large(
    tmp_path: Path, average: str
) -> None:
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, eager=True, clip_norm=1.0, average=average)

    def work(rendezvous: Rendezvous) -> list[float]:
        parameters, seen = zeros(4), []
        outer = DiLoCo(rendezvous, parameters, algorithm)
        for phase in range(4):
            parameters -= np.float32(50 if (phase, rendezvous.rank) == (1, 0) else 0.05)  # norms of 100 and 0.1
            outer.step()
            seen.append(float(parameters[0]))
        outer.finish()
        return seen

    # Of the second round it knows all: the mean of 0.5, which is left of 50, and 0.05.
    spiked, _ = together(Run(tmp_path, replicas=2, min_participants=2), work)
    np.testing.assert_allclose(spiked, [-0.05, -0.325, -0.375, -0.425], rtol=1e-4)


@pytest.mark.parametrize("codec", ["fp32", "int4"])
def test_norms_and_directions_are_averaged_apart(tmp_path: Path, codec: str) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2, count=60_000)
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, average="rda", codec=codec)
    found: dict[tuple[int, int], Floats] = {}

    def work(rank: int, size: int, length: float) -> None:
        """One round in which this rank moves a half of the parameters of its own, by `length` in all."""
        group = ThreadGroup(size)

        def process(index: int) -> None:
            parameters = found[rank, index] = np.zeros(run.count, np.float32)
            outer = group.trainer(group.open(run.context(), index, rank), parameters, algorithm)
            parameters[rank::2] -= np.float32(length / math.sqrt(run.count / 2))
            outer.step(3.0 / size if rank else 1.0)

        group.run(process)

    run_all([threading.Thread(target=work, args=each, daemon=True) for each in ((0, 1, 3.0), (1, 3, 1.0))])
    assert len({values.tobytes() for values in found.values()}) == 1
    # The direction is the mean of the directions, of which the second counts threefold; so is the norm that of norms.
    moved = -found[0, 0].reshape(-1, 2).mean(axis=0, dtype=np.float64) * math.sqrt(run.count / 2)
    expected = 1.5 * np.array([1, 3]) / math.sqrt(10)
    np.testing.assert_allclose(moved, expected, rtol=1e-5 if codec == "fp32" else 0.05)


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


def test_outliers_are_those_far_above_the_median() -> None:
    rows: list[tuple[tuple[float | None, ...], float, int, list[int]]] = [
        ((1.0, 1.0, 100.0), 10.0, 2, [2]),
        ((1.0, 1.0, 100.0), 10.0, 3, []),  # the quorum is kept
        ((1.0, 1.0, 100.0), 0.0, 1, []),
        ((1.0, 100.0), 10.0, 1, []),  # which of the two?
        ((1.0, 2.0, 1.0, 50.0, 80.0), 10.0, 4, [4]),  # the furthest first
        ((1.0, 2.0, 1.0, 50.0, 80.0), 10.0, 1, [4, 3]),
        ((None, None, 100.0), 10.0, 1, []),
        ((0.0, 0.0, 0.0), 10.0, 1, []),
    ]
    for norms, factor, needed, excluded in rows:
        members = [member(rank, norm) for rank, norm in enumerate(norms)]
        found = [item.rank for item in outliers(members, factor, needed)]
        assert found == excluded, (norms, factor, needed)


def test_a_replica_of_several_processes_is_scaled_by_the_norm_of_all_of_it(tmp_path: Path) -> None:
    run = Run.alone(tmp_path, count=100_000)
    algorithm = Algorithm(learning_rate=1.0, momentum=0.0, clip_norm=1.0)
    group, found = ThreadGroup(2), list[Floats]()

    def work(index: int) -> None:
        parameters = np.zeros(run.count, np.float32)
        outer = group.trainer(group.open(run.context(), index), parameters, algorithm)
        parameters -= 3
        outer.step(1)
        found.append(parameters)

    group.run(work)
    assert len(found) == 2
    for parameters in found:
        assert norm_of([square_of(parameters)]) == pytest.approx(1.0, rel=1e-5)


# --- The trainer's side: arrays of any library in place, the outer step, what does not fit, the trainer's own state -


# A first Nesterov step from rest with the pseudo-gradient 1: -0.7 * (1 + 0.9).
ONE_STEP = -1.33


def alone(root: Path, attempt: int = 1) -> Rendezvous:
    return Run.alone(root).open(attempt=attempt)


def zeros(*shape: int) -> Floats:
    return np.zeros(shape, np.float32)


def test_named_arrays_are_updated_in_place_and_the_result_does_not_depend_on_their_order(tmp_path: Path) -> None:
    results = []
    for name, order in (("one", ("a", "empty", "b")), ("two", ("b", "a", "empty"))):
        arrays = {key: {"a": zeros(3, 4), "b": zeros(5), "empty": zeros(0)}[key] for key in order}
        outer = DiLoCo(alone(tmp_path / name), arrays, Algorithm(sync_every=2, fragments=2))
        arrays["a"] -= 1
        arrays["b"] -= 2
        outer.step()
        # The first fragment ends within `a`.
        assert [(array != -1).sum() for array in (arrays["a"], arrays["b"] / 2)] == [8, 0]
        outer.step()
        results.append((arrays["a"].tolist(), arrays["b"].tolist()))
    assert results[0] == results[1]
    np.testing.assert_allclose(results[0][1], 2 * ONE_STEP, rtol=1e-6)


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    rendezvous = alone(tmp_path)
    outer = DiLoCo(rendezvous, {"a": zeros(3)})
    with pytest.raises(ParametersError, match="has already joined the rendezvous"):
        DiLoCo(rendezvous, zeros(3))
    for other in ({"a": zeros(4)}, {"b": zeros(3)}, {"a": zeros(3, 1)}):
        with pytest.raises(ParametersError, match="Every replica must build the same model"):
            DiLoCo(alone(tmp_path), other)
    wrong: list[Any] = [-1, float("nan"), float("inf"), None, "5", np.ones(2), 1j, 10**400]
    for samples in wrong:
        with pytest.raises(ParametersError, match=r"samples is .*; allowed: 0 or"):
            outer.step(samples)


def test_a_round_without_samples_is_declined_and_a_step_without_any_is_not(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous) -> list[tuple[int, ...]]:
        outer = DiLoCo(rendezvous, zeros(3), Algorithm(sync_every=2))
        # Rank 1 has no samples in the first round, and some in the second step of the second one.
        outcomes = [outer.step(samples=0 if rendezvous.rank == 1 and step < 3 else 1) for step in range(4)]
        return [outcome.participants for outcome in outcomes if outcome is not None]

    assert together(Run(tmp_path, replicas=2, min_participants=1), work)[0] == [(0,), (0, 1)]


# --- what all front ends share --------------------------------------------------------------------------------------


def test_arguments_of_a_wrong_type_are_refused_with_what_is_allowed(tmp_path: Path) -> None:
    rendezvous, fixed = alone(tmp_path), zeros(2)
    fixed.flags.writeable = False
    of_types = {"a": np.zeros(3), "b": fixed, "c": [1.0]}
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"rendezvous": "s3://bucket/run/"}, "rendezvous is of type str; allowed: the context's rendezvous"),
        ({"parameters": [zeros(3), zeros(3)]}, "parameters is of type list; allowed: a float32 array, or a dict"),
        ({"parameters": of_types}, "a is float64, not float32; b is read-only; c is of type list, neither "),
        ({"parameters": {}}, "there are no parameters"),
        ({"algorithm": 500}, "algorithm is of type int; allowed: an Algorithm"),
        ({"trainer_state": {"data": 3}}, r"trainer_state\['data'\] is of type int; allowed: an object with state_dict"),
        ({"trainer_state": [at(3)]}, "trainer_state is of type list; allowed: a dict of names to objects"),
        ({"checkpoint_dir": 3}, "checkpoint_dir is of type int; allowed: a path, such as context.checkpoint_dir"),
        ({"final_model": ["config.json"]}, "final_model is of type list; allowed: a FinalModel"),
        ({"final_model": FinalModel(adapter="default")}, "FinalModel.adapter is for PyTorch models"),
    ]
    for given, reason in wrong:
        arguments: dict[str, Any] = {"rendezvous": rendezvous, "parameters": zeros(3), **given}
        with pytest.raises(ParametersError, match=reason):
            DiLoCo(**arguments)


def at(position: int) -> DataPosition:
    data = DataPosition()
    data.position = position
    return data


def begin(root: Path, attempt: int, **trainer_state: DataPosition) -> DiLoCo:
    # The folder is a path or its name.
    return DiLoCo(alone(root, attempt), zeros(3), trainer_state=trainer_state, checkpoint_dir=str(root / "checkpoints"))


def test_a_state_is_restored_and_one_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    begin(tmp_path, 1, data=at(7)).step()
    with pytest.raises(ParametersError, match="trainer_state has the names data, schedule; allowed: data"):
        begin(tmp_path, 2, data=DataPosition(), schedule=DataPosition())
    with pytest.raises(ParametersError, match="trainer_state has the names none; allowed: data"):
        begin(tmp_path, 3)
    outer = begin(tmp_path, 4, data=(data := DataPosition()))
    assert data.position == 7
    # A trainer may also keep it elsewhere.
    state = outer.state_dict()
    data.position = 9
    outer.load_state_dict(state)
    assert data.position == 7
    with pytest.raises(ParametersError, match="state_dict has the keys data; allowed: round, trainer"):
        outer.load_state_dict({"data": 1})
    with pytest.raises(ParametersError, match="belongs to round 9, but the run is in round 1"):
        outer.load_state_dict({**state, "round": 9})


# --- arrays of other libraries --------------------------------------------------------------------------------------


class Shared:
    """An array of another library, whose memory NumPy can share."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


class Immutable(Shared):
    """An array like JAX's: its memory is read-only, and its library is named as the array API standard says."""

    device = "cpu"

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self.shape = values.shape
        values.flags.writeable = False

    def __array_namespace__(self) -> Any:
        return Library


class Library:
    """Whose arrays these are."""

    @staticmethod
    def asarray(values: Floats, *, device: str) -> Immutable:
        assert device == "cpu"
        return Immutable(values)


def test_memory_that_can_be_shared_is_overwritten_where_it_lies(tmp_path: Path) -> None:
    values, memory = np.zeros(5, np.float32), np.zeros((3, 4), np.float32)
    outer = DiLoCo(alone(tmp_path), {"shared": Shared(values), "not contiguous": memory.T[::2]})
    values -= 1
    memory -= [1, 0, 2, 0]
    outer.step()
    np.testing.assert_allclose(values, ONE_STEP, rtol=1e-6)
    np.testing.assert_allclose(memory, np.broadcast_to([ONE_STEP, 0, 2 * ONE_STEP, 0], (3, 4)), rtol=1e-6)


@pytest.mark.parametrize("settings", [{"fragments": 3, "sync_every": 3}, {"eager": True}])
def test_immutable_arrays_are_replaced_in_their_dict(tmp_path: Path, settings: dict[str, Any]) -> None:
    immutable: dict[str, Any] = {"w": Immutable(np.full((2, 3), 5, np.float32))}
    usual = {"w": np.full((2, 3), 5, np.float32)}
    outer = DiLoCo(alone(tmp_path / "immutable"), immutable, Algorithm(**settings))
    other = DiLoCo(alone(tmp_path / "usual"), usual, Algorithm(**settings))
    for step in range(7):
        immutable["w"] = Immutable(np.from_dlpack(immutable["w"]) - np.float32(step))
        usual["w"] -= np.float32(step)
        outer.step()
        other.step()
    outer.finish()
    other.finish()
    assert np.array_equal(np.from_dlpack(immutable["w"]), usual["w"])


def test_an_immutable_array_stays_what_it_was_and_needs_a_dict(tmp_path: Path) -> None:
    array = Immutable(np.zeros(3, np.float32))
    for parameters in (array, MappingProxyType({"parameters": array})):
        with pytest.raises(ParametersError, match="parameters is read-only: put it into a dict"):
            DiLoCo(alone(tmp_path), parameters)
    replaced: dict[str, Any] = {"w": array}
    outer = DiLoCo(alone(tmp_path), replaced)
    replaced["w"] = Immutable(np.zeros(4, np.float32))
    with pytest.raises(ParametersError, match=r"w is float32 of shape \(4,\), not float32 of shape \(3,\)"):
        outer.step()
