"""PyTorch models: what is exchanged, in which types, and what comes back with a replica."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo as ArrayDiLoCo
from muster.replica.legacy.arrays import FlatArrays
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.torch import Algorithm, DiLoCo, LocalSGD
from tests.support.peers import Run, together


class Tied(torch.nn.Module):
    """An embedding that is the output's weight as well, a norm with statistics, a mask, and a frozen part."""

    def __init__(self, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 4, dtype=dtype)
        self.norm = torch.nn.BatchNorm1d(4)
        self.output = torch.nn.Linear(4, 7, dtype=dtype)
        self.output.weight = self.embedding.weight
        self.frozen = torch.nn.Linear(2, 2).requires_grad_(False)
        self.register_buffer("mask", torch.full((3,), float("-inf")))
        self.register_buffer("cache", torch.zeros(5), persistent=False)

    def forward(self, tokens: Any) -> Any:
        return self.output(self.norm(self.embedding(tokens).float()).to(self.output.weight.dtype))


def learn(model: Any, optimizer: Any, outer: Any, rank: int, rounds: int) -> None:
    generator = torch.Generator().manual_seed(rank)
    while outer.round < rounds:
        tokens = torch.randint(7, (6,), generator=generator)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(tokens).float(), tokens).backward()
        optimizer.step()
        outer.step(len(tokens))
    outer.finish()


def values(model: Any) -> dict[str, bytes]:
    shared = model.state_dict()
    own = ("frozen.weight", "frozen.bias", "norm.num_batches_tracked")
    return {name: bytes(shared[name].float().numpy().tobytes()) for name in shared if name not in own}


def test_models_of_any_type_end_with_the_same_bits(tmp_path: Path) -> None:
    algorithms = {
        "plain": Algorithm(sync_every=6),
        "streaming": Algorithm(sync_every=6, fragments=3, delay=1, alpha=0.5),
        "eager": Algorithm(sync_every=6, eager=True),
    }
    dtypes = (torch.float32, torch.bfloat16, torch.float64)
    for (name, algorithm), dtype in product(algorithms.items(), dtypes):

        def work(rendezvous: Rendezvous, algorithm: Algorithm = algorithm, dtype: Any = dtype) -> dict[str, bytes]:
            model = Tied(dtype)
            optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
            learn(model, optimizer, DiLoCo(rendezvous, model, optimizer, algorithm), rendezvous.rank, 6)
            assert model.output.weight is model.embedding.weight
            return values(model)

        one, other = together(Run(tmp_path / f"{name}-{dtype}", replicas=2, min_participants=2), work)
        assert one == other, (name, dtype)


def test_tied_weights_are_exchanged_once_statistics_are_averaged_and_the_rest_is_left_alone(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)

    def work(rendezvous: Rendezvous) -> Any:
        torch.manual_seed(0)
        model = Tied()
        rank = rendezvous.rank
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        outer = DiLoCo(rendezvous, model, optimizer, Algorithm())
        training = rendezvous.training
        assert training is not None
        # Embedding, norm (weight, bias), output's bias; behind them the norm's running mean and variance.
        assert list(training.packing.shapes) == [
            "embedding.weight", "norm.weight", "norm.bias", "output.bias", "norm.running_mean", "norm.running_var"
        ]  # fmt: skip
        model.norm.running_mean.fill_(rank)
        model.norm.num_batches_tracked.fill_(rank + 5)
        model.frozen.weight.data.fill_(rank)
        outer.step()
        return model

    models = together(run, work)
    for rank, model in enumerate(models):
        # An average, whatever the outer optimizer does with parameters.
        assert model.norm.running_mean.tolist() == [0.5] * 4
        assert model.norm.num_batches_tracked == rank + 5
        assert (model.frozen.weight == rank).all()
        assert torch.isinf(model.mask).all()


def test_a_low_precision_model_that_does_not_move_moves_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    rendezvous = Rendezvous.open(run.context(), 0, 1, Metrics())
    model = torch.nn.Linear(8, 8)
    half = torch.nn.Linear(8, 8).to(torch.bfloat16)
    DiLoCo(rendezvous, model, torch.optim.SGD(model.parameters(), lr=1), Algorithm())
    again = Rendezvous.open(run.context(), 0, 2, Metrics())
    outer = DiLoCo(again, half, torch.optim.SGD(half.parameters(), lr=1), Algorithm())
    assert again.training is not None
    before = again.training.state.parameters.copy()
    for _ in range(3):
        outer.step()
    # The rounding of the replica's own copy is no progress.
    assert np.array_equal(again.training.state.parameters, before)


def test_local_sgd_averages_by_samples(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)

    def work(rendezvous: Rendezvous) -> Any:
        model = torch.nn.Linear(1, 1, bias=False)
        outer = LocalSGD(rendezvous, model, torch.optim.SGD(model.parameters(), lr=1), sync_every=2)
        model.weight.data.fill_(4.0 * rendezvous.rank)
        assert outer.step(1 + 2 * rendezvous.rank) is None
        outcome = outer.step(1 + 2 * rendezvous.rank)
        assert outcome is not None
        assert outcome.participants == (0, 1)
        return model.weight.item()

    # Weights 2 and 6: (2 * 0 + 6 * 4) / 8.
    assert together(run, work) == pytest.approx([3.0, 3.0])


def test_non_contiguous_parameters_are_written_in_place(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    model = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    outer = DiLoCo(
        Rendezvous.open(run.context(), 0, 1, Metrics()),
        model,
        optimizer,
        Algorithm(sync_every=3, fragments=3, momentum=0.0),
    )
    pointer, before = model.weight.data_ptr(), model.weight.detach().clone()
    model.weight.data += 1
    for _ in range(3):
        outer.step()
    outer.finish()
    assert model.weight.data_ptr() == pointer
    assert not model.weight.is_contiguous()
    torch.testing.assert_close(model.weight.detach(), before + 0.7)


def test_a_last_round_may_have_fewer_steps(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    outer = LocalSGD(Rendezvous.open(run.context(), 0, 1, Metrics()), model, optimizer, sync_every=4)
    assert outer.end_round() is None  # no step has been trained
    for _ in range(6):
        model.weight.data += 1
        outer.step(10)
    moved = model.weight.item()
    outcome = outer.end_round()
    assert outcome is not None
    assert (outcome.took_part, outer.round) == (True, 2)
    assert [run.commit(round_).members[0].weight for round_ in (1, 2)] == [40, 20]
    outer.finish()
    assert model.weight.item() == pytest.approx(moved)


class DeepSpeedEngine(torch.nn.Module):
    """What accelerate.prepare returns where DeepSpeed is set."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def test_what_cannot_be_trained_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    rendezvous = Rendezvous.open(Run(tmp_path, replicas=1, min_participants=1).context(), 0, 1, Metrics())
    model, algorithm = torch.nn.Linear(2, 2), Algorithm()
    inner = torch.optim.SGD(model.parameters(), lr=1)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((model, inner, rendezvous, algorithm), "rendezvous is of type Linear"),
        ((rendezvous, [model], inner, algorithm), "model is of type list"),
        ((rendezvous, model, algorithm, algorithm), "inner_optimizer is of type Algorithm"),
        ((rendezvous, model, inner, inner), "algorithm is of type SGD"),
        ((rendezvous, torch.nn.Linear(2, 2).requires_grad_(False), inner, algorithm), "no parameter that requires"),
        ((rendezvous, DeepSpeedEngine(model), inner, algorithm), "the model is a DeepSpeedEngine"),
    ]
    for arguments, reason in wrong:
        with pytest.raises(ParametersError, match=reason):
            DiLoCo(*arguments)


class Position:
    """Where a replica's data are."""

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, _: dict[str, Any]) -> None: ...


def test_a_state_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    model = torch.nn.Linear(2, 2)
    inner = torch.optim.AdamW(model.parameters())

    def begin(attempt: int, **trainer_state: Position) -> DiLoCo:
        rendezvous = Rendezvous.open(run.context(), 0, attempt, Metrics())
        folder = tmp_path / "checkpoints"
        return DiLoCo(rendezvous, model, inner, Algorithm(), trainer_state=trainer_state, checkpoint_dir=folder)

    outer = begin(1, data=Position())
    state = outer.state_dict()
    outer.step()
    outer.load_state_dict(state)
    with pytest.raises(ParametersError, match="belongs to round 9, but the run is in round 1"):
        outer.load_state_dict({**state, "round": 9})
    with pytest.raises(ParametersError, match="trainer_state has the names data, schedule; allowed: data"):
        begin(2, data=Position(), schedule=Position())


def test_the_tensors_of_an_all_reduce_are_overwritten_in_their_own_type() -> None:
    tensors = {dtype: torch.arange(6, dtype=dtype).reshape(2, 3).t() for dtype in (torch.float32, torch.bfloat16)}
    tensors["leaf"] = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3).t())
    for name, tensor in tensors.items():
        before = tensor.detach().clone()
        arrays = FlatArrays([tensor])
        arrays.write(arrays.read() + np.float32(0.5))
        assert torch.equal(tensor.detach(), before + 0.5), name
        assert tensor.dtype == before.dtype, name
    with pytest.raises(ParametersError, match=r"values is torch.int64"):
        FlatArrays(torch.arange(3))


def test_a_tensor_among_arrays_is_overwritten(tmp_path: Path) -> None:
    alone = Run(tmp_path, replicas=1, min_participants=1).context()
    tensor = torch.zeros(2, 3)
    outer = ArrayDiLoCo(Rendezvous.open(alone, 0, 1, Metrics()), {"w": tensor})
    tensor -= 1
    outer.step()
    # A first Nesterov step from rest with the pseudo-gradient 1: -0.7 * (1 + 0.9).
    torch.testing.assert_close(tensor, torch.full((2, 3), -1.33))


def test_a_batch_of_nan_takes_the_inner_optimizer_back_and_leaves_its_learning_rate(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=1)

    def work(rendezvous: Rendezvous) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 4)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        outer = DiLoCo(
            rendezvous,
            model,
            optimizer,
            Algorithm(sync_every=2),
            trainer_state={"schedule": schedule},
            checkpoint_dir=tmp_path / f"rank-{rendezvous.rank}",
        )
        participants = []
        for step in range(12):
            is_poisoned = rendezvous.rank == 1 and step == 3
            optimizer.zero_grad()
            (model(torch.full((2, 4), torch.nan if is_poisoned else 1.0)).sum()).backward()
            optimizer.step()
            schedule.step()
            if (outcome := outer.step()) is not None:
                participants.append(outcome.participants)
        moments = [value for state in optimizer.state.values() for value in state.values()]
        assert all(torch.isfinite(value).all() for value in moments)
        assert optimizer.param_groups[0]["lr"] == schedule.get_last_lr()[0] == pytest.approx(1e-2 * 0.5**12)
        return participants, moments[0].item()

    (participants, _), (same, steps) = together(run, work)
    assert participants == same == [(0, 1), (0,), (0, 1), (0, 1), (0, 1), (0, 1)]
    # Two steps were taken back with the moments.
    assert steps == 10
