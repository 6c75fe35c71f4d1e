"""PyTorch models: what is exchanged, in which types, what comes back with a replica, what is refused, what is left."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch
import torch.distributed as dist
from safetensors import safe_open
from safetensors.torch import load_file, load_model
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate
from torch.optim.lr_scheduler import (
    ChainedScheduler,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    LRScheduler,
    MultiStepLR,
    SequentialLR,
)

from muster.options.executor.replica.arrays import FlatArrays
from muster.replica.frontends.framework_loop import catch_up
from muster.replica.group.board import InnerGroup
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import ParametersError, StoppedError
from muster.replica.rounds.round_context import Stops
from muster.replica.store.local_store import LocalStore
from muster.torch import Algorithm, DiLoCo, FinalModel, LocalSGD
from tests.support.peers import Run, together


class Model(torch.nn.Module):
    """Tied weights, a norm with statistics and a counter, a frozen part, a transposed weight, masks, a cache."""

    def __init__(self, dtype: Any = torch.float32) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 4, dtype=dtype)
        self.norm = torch.nn.BatchNorm1d(4)
        self.output = torch.nn.Linear(4, 7, dtype=dtype)
        self.output.weight = self.embedding.weight
        self.frozen = torch.nn.Linear(2, 3, dtype=torch.float16).requires_grad_(False)
        self.turned = torch.nn.Parameter(torch.arange(6.0).view(2, 3).t())
        self.scale = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("mask", torch.full((3,), float("-inf")))
        self.register_buffer("chosen", torch.tensor([True, False]))
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
            model = Model(dtype)
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
        model = Model()
        rank = rendezvous.rank
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        outer = DiLoCo(rendezvous, model, optimizer, Algorithm())
        training = rendezvous.departure.training
        assert training is not None
        # The statistics come behind the parameters.
        parameters = ["turned", "scale", "embedding.weight", "norm.weight", "norm.bias", "output.bias"]
        assert list(training.packing.shapes) == [*parameters, "norm.running_mean", "norm.running_var"]
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


@pytest.mark.parametrize("codec", ["topk2-64", "int4"])
def test_a_model_with_statistics_is_finite_in_eval_mode_whatever_the_codec(tmp_path: Path, codec: str) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(6, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        outer = DiLoCo(rendezvous, model, optimizer, Algorithm(sync_every=4, codec=codec))
        # Of features over several decades, as between layers.
        scales = torch.logspace(-3, 2, 6)
        for _ in range(24):
            inputs = torch.randn(16, 6) * scales
            optimizer.zero_grad()
            (model(inputs) - inputs[:, :1]).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            outer.step(16)
        model.eval()
        return model[1].running_var, model(torch.randn(64, 6) * scales)

    for variances, outputs in together(Run(tmp_path, replicas=2, min_participants=2), work):
        assert (variances > 0).all()
        assert outputs.isfinite().all()


def test_a_low_precision_model_that_does_not_move_moves_nothing(tmp_path: Path) -> None:
    run = Run.alone(tmp_path)
    rendezvous = run.open()
    model = torch.nn.Linear(8, 8)
    half = torch.nn.Linear(8, 8).to(torch.bfloat16)
    DiLoCo(rendezvous, model, torch.optim.SGD(model.parameters(), lr=1), Algorithm())
    again = run.open(attempt=2)
    outer = DiLoCo(again, half, torch.optim.SGD(half.parameters(), lr=1), Algorithm())
    assert again.departure.training is not None
    before = again.departure.training.state.parameters.copy()
    for _ in range(3):
        outer.step()
    # The rounding of the replica's own copy is no progress.
    assert np.array_equal(again.departure.training.state.parameters, before)


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
    run = Run.alone(tmp_path)
    model = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    outer = DiLoCo(
        run.open(),
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
    run = Run.alone(tmp_path)
    model = torch.nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1)
    outer = LocalSGD(run.open(), model, optimizer, sync_every=4)
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


class OnGpu(torch.Tensor):
    """A tensor that NumPy cannot read, as if it were on a GPU."""

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError

    numpy = __array__


def test_samples_may_be_a_tensor_on_a_gpu_and_are_counted_exactly(tmp_path: Path) -> None:
    tokens, stop = torch.tensor(2**24 + 1).as_subclass(OnGpu), threading.Event()
    run, model = Run.alone(tmp_path), torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rendezvous = run.open(stops=Stops(stop, stop))
    outer = DiLoCo(rendezvous, model, optimizer, Algorithm(sync_every=3), checkpoint_dir=tmp_path / "checkpoints")
    for _ in range(4):
        outer.step(tokens)
    assert run.commit(1).members[0].weight == 3 * (2**24 + 1)
    stop.set()
    with pytest.raises(StoppedError):
        outer.step(tokens)
    assert (tmp_path / "checkpoints" / "muster-stopped-0.ckpt").exists()


# --- schedulers ---------------------------------------------------------------------------------------------------


SCHEDULERS: dict[str, Callable[[Any], Any]] = {
    "lambda": lambda optimizer: LambdaLR(optimizer, lambda step: 0.9**step),
    "sequence": lambda optimizer: SequentialLR(optimizer, [LinearLR(optimizer), ExponentialLR(optimizer, 0.9)], [5]),
    "chain": lambda optimizer: ChainedScheduler([LinearLR(optimizer), ExponentialLR(optimizer, 0.9)]),
    "chain of a chain": lambda optimizer: ChainedScheduler(
        [ChainedScheduler([LinearLR(optimizer)]), ExponentialLR(optimizer, 0.9)]
    ),
    "chain of a sequence": lambda optimizer: ChainedScheduler(
        [
            SequentialLR(optimizer, [LinearLR(optimizer), ExponentialLR(optimizer, 0.9)], [5]),
            MultiStepLR(optimizer, [3]),
        ]
    ),
}


@pytest.mark.parametrize("name", SCHEDULERS)
def test_a_scheduler_catches_up_to_the_rates_of_its_steps(name: str) -> None:
    def scheduled() -> tuple[Any, Any]:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
        return optimizer, SCHEDULERS[name](optimizer)

    (stepped, scheduler), (joined, its_scheduler) = scheduled(), scheduled()
    for steps in range(1, 13):
        stepped.step()
        scheduler.step()
        if steps in {4, 12}:  # as a replica that joins and later is left out of rounds
            catch_up(its_scheduler, steps)
            assert joined.param_groups[0]["lr"] == stepped.param_groups[0]["lr"]
    assert its_scheduler.get_last_lr() == scheduler.get_last_lr()


class Uncounted(LRScheduler):
    """A scheduler of one's own that says nothing of its steps."""

    def __init__(self) -> None:
        pass

    def step(self) -> None:  # type: ignore[override]
        pass


def test_a_scheduler_that_does_not_count_its_steps_is_refused() -> None:
    with pytest.raises(ParametersError, match="of type Uncounted, which does not count its steps; allowed: one with"):
        catch_up(Uncounted(), 0)


class DeepSpeedEngine(torch.nn.Module):
    """What accelerate.prepare returns where DeepSpeed is set."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module


def test_what_cannot_be_trained_is_refused_with_what_is_allowed(tmp_path: Path) -> None:
    rendezvous = Run.alone(tmp_path).open()
    model, algorithm = torch.nn.Linear(2, 2), Algorithm()
    inner = torch.optim.SGD(model.parameters(), lr=1)
    wrong: list[tuple[tuple[Any, ...], str]] = [
        ((model, inner, rendezvous, algorithm), "rendezvous is of type Linear"),
        ((rendezvous, [model], inner, algorithm), "model is of type list"),
        ((rendezvous, model, algorithm, algorithm), "inner_optimizer is of type Algorithm"),
        ((rendezvous, model, [inner, model], algorithm), "inner_optimizer is of type Linear"),
        ((rendezvous, model, [], algorithm), "inner_optimizer is empty"),
        ((rendezvous, model, [inner, inner], algorithm), "a parameter that two of its optimizers train"),
        ((rendezvous, model, inner, inner), "algorithm is of type SGD"),
        ((rendezvous, torch.nn.Linear(2, 2).requires_grad_(False), inner, algorithm), "no parameter that requires"),
        ((rendezvous, DeepSpeedEngine(model), inner, algorithm), "the model is a DeepSpeedEngine"),
    ]
    for arguments, reason in wrong:
        with pytest.raises(ParametersError, match=reason):
            DiLoCo(*arguments)


def test_several_inner_optimizers_are_restored_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def train(steps: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 4))
        inner = [
            torch.optim.AdamW((model[0].bias, model[1].bias), lr=1e-2),
            torch.optim.Muon([{"params": [layer.weight]} for layer in model], lr=1e-2),
        ]
        run = Run.alone(tmp_path / name)
        outer = DiLoCo(run.open(), model, inner, Algorithm(), checkpoint_dir=tmp_path / f"{name}-own")
        while outer.round < steps:
            model(torch.full((2, 4), float(outer.round))).square().sum().backward()
            for optimizer in inner:
                optimizer.step()
                optimizer.zero_grad()
            outer.step()
        momenta = [value for optimizer in inner for state in optimizer.state.values() for value in state.values()]
        return [*map(torch.Tensor.detach, model.parameters()), *momenta]

    name = "rerun"
    train(2)
    rerun = train(4)
    name = "undisturbed"
    for found, expected in zip(rerun, train(4), strict=True):
        assert torch.equal(found, expected)


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


def test_a_batch_of_nan_takes_the_inner_optimizer_back_and_leaves_its_learning_rate(tmp_path: Path) -> None:
    model = torch.nn.Linear(4, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = DiLoCo(Run.alone(tmp_path / "run").open(), model, optimizer, Algorithm(), checkpoint_dir=tmp_path / "own")
    for batch in (1.0, torch.nan):
        optimizer.zero_grad()
        model(torch.full((2, 4), batch)).sum().backward()
        optimizer.step()
        if batch == 1.0:
            outer.step()
    optimizer.param_groups[0]["lr"] = 1e-3
    outer._heal()
    moments = [value for state in optimizer.state.values() for value in state.values()]
    assert all(torch.isfinite(value).all() for value in moments)
    assert (moments[0].item(), optimizer.param_groups[0]["lr"]) == (1, 1e-3)


# --- Models whose tensors change after DiLoCo was created: followed, or refused with the tensor's name ----------------


@contextmanager
def connected(folder: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=(folder / "store").as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    with connected(tmp_path):
        yield


def trained(model: torch.nn.Module, root: Path) -> tuple[DiLoCo, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DiLoCo(Run.alone(root).open(), model, optimizer, Algorithm()), optimizer


def test_a_model_that_is_cast_in_place_goes_on_in_its_new_type(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    outer, _ = trained(model, tmp_path)
    model.to(torch.bfloat16)
    before = model.weight.detach().clone()
    with torch.no_grad():
        model.weight -= 1
    outer.step()
    # The first Nesterov step from rest moves by 0.7 * (1 + 0.9) times the pseudo-gradient.
    moved = (before - model.weight).float()
    assert torch.allclose(moved, torch.full_like(moved, 1.33), atol=0.02)


def _assigned(model: torch.nn.Module) -> None:
    model.load_state_dict({name: tensor.clone() for name, tensor in model.state_dict().items()}, assign=True)


def _exchanged(model: torch.nn.Module) -> None:
    model.weight = torch.nn.Parameter(torch.zeros(5, 3))


def _removed(model: torch.nn.Module) -> None:
    model.weight = None


@pytest.mark.usefixtures("one_process")
def test_a_tensor_that_was_replaced_is_refused_by_its_name(tmp_path: Path) -> None:
    changes: dict[Callable[[torch.nn.Module], object], str] = {
        _assigned: "weight was replaced, and the inner optimizer trains",
        fully_shard: "weight was replaced, and the inner optimizer trains",
        _exchanged: r"weight has the shape \(5, 3\), and had \(2, 3\)",
        _removed: "weight is gone",
    }
    for change, words in changes.items():
        model = torch.nn.Linear(3, 2, bias=False)
        outer, _ = trained(model, tmp_path / change.__name__)
        change(model)
        with pytest.raises(ParametersError, match=words):
            outer.step()


def test_a_tensor_that_cannot_be_mapped_is_refused_by_its_name(tmp_path: Path, one_process: None) -> None:
    model = torch.nn.Linear(3, 2)
    mesh = init_device_mesh("cpu", (1,))
    sums = DTensor.from_local(torch.zeros(2, 3), mesh, [Partial()], run_check=False)
    model.weight = torch.nn.Parameter(sums)
    model.bias = torch.nn.Parameter(DTensor.from_local(torch.zeros(2), mesh, [Replicate()], run_check=False))
    with pytest.raises(ParametersError, match=r"weight is a sum that its processes have not added up"):
        trained(model, tmp_path)


def test_processes_that_torch_does_not_connect_or_muster_has_not_started_are_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ParametersError, match=r"2 processes, and torch\.distributed does not connect them"):
        DiLoCo(Run.alone(tmp_path / "1").open(group=InnerGroup(0, 2)), model, optimizer, Algorithm())
    with connected(tmp_path), pytest.raises(ParametersError, match=r"1 processes .*Set `processes` in the spec"):
        DiLoCo(Run.alone(tmp_path / "2").open(group=InnerGroup(0, 2)), model, optimizer, Algorithm())


# --- The model as a run leaves it: which tensors, in which types, as the safetensors library and PyTorch read it ------


def move(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(1.0)
    for name, buffer in model.named_buffers():
        if name == "norm.num_batches_tracked":
            buffer.fill_(12_345)


def left_by(folder: Path, model: torch.nn.Module, final_model: FinalModel) -> Path:
    """Train one round, in which the model moves, and leave; returns the folder of the run's model."""
    rendezvous = Run.alone(folder / "rendezvous").open(outside=Outside(results=LocalStore(folder)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = DiLoCo(rendezvous, model, optimizer, Algorithm(momentum=0.0, learning_rate=1.0), final_model=final_model)
    with torch.no_grad():
        move(model)
    outer.step()
    outer.finish()
    return folder / "model"


def test_what_is_left_is_the_state_of_the_model_and_loads_into_a_new_one(tmp_path: Path) -> None:
    model = Model(torch.bfloat16)
    folder = left_by(tmp_path, model, FinalModel())
    stored = load_file(folder / "model.safetensors")
    expected = {name: value for name, value in model.state_dict().items() if name != "output.weight"}
    assert stored.keys() == expected.keys()
    for name, value in expected.items():
        assert stored[name].dtype == value.dtype, name
        assert torch.equal(stored[name], value), name
    assert stored["norm.num_batches_tracked"].item() == 12_345
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    # Tied weights are stored once, as Hugging Face does it, and the library ties them again.
    other = Model(torch.bfloat16)
    load_model(other, folder / "model.safetensors")
    assert torch.equal(other.output.weight, model.output.weight)
    assert other.output.weight is other.embedding.weight


def test_wrappers_change_no_name(tmp_path: Path) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(3, 5))
    folder = left_by(tmp_path, torch.compile(inner), FinalModel())
    assert set(load_file(folder / "model.safetensors")) == {"0.weight", "0.bias"}


class Adapted(torch.nn.Module):
    """As PEFT names it."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.Module()
        layer.base_layer = torch.nn.Linear(4, 4)
        layer.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(4, 2, bias=False)})
        layer.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, 4, bias=False)})
        self.base_model = torch.nn.Module()
        self.base_model.model = torch.nn.Module()
        self.base_model.model.layer = layer.requires_grad_(False)
        for adapter in (layer.lora_A, layer.lora_B):
            adapter.requires_grad_(True)


class AdapterConfig:
    """As PEFT's."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "adapter_config.json").write_text("{}")


def test_of_an_adapter_only_what_was_trained_is_left(tmp_path: Path) -> None:
    model = Adapted()
    folder = left_by(tmp_path, model, FinalModel([AdapterConfig()], adapter="default"))
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    stored = load_file(folder / "adapter_model.safetensors")
    layer = model.base_model.model.layer
    assert stored.keys() == {f"base_model.model.layer.lora_{name}.weight" for name in "AB"}
    assert torch.equal(stored["base_model.model.layer.lora_A.weight"], layer.lora_A["default"].weight)


def test_a_tensor_that_cannot_be_stored_is_refused_before_training(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    model.register_buffer("rotation", torch.zeros(2, dtype=torch.complex64))
    reason = r"cannot be stored as safetensors: rotation is torch.complex64 on cpu\."
    with pytest.raises(ParametersError, match=reason):
        left_by(tmp_path, model, FinalModel())
    left_by(tmp_path / "adapter", model, FinalModel(adapter="default"))


def test_a_model_is_no_file_beside_its_weights(tmp_path: Path) -> None:
    wishes: Any = [torch.nn.Linear(2, 1)]
    with pytest.raises(ParametersError, match=r"FinalModel.beside\[0\] is a model, whose weights Muster writes"):
        FinalModel(wishes)
