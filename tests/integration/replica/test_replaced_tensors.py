"""Models whose tensors change after DiLoCo was created: followed, or refused with the tensor's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Partial, Replicate

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.torch_diloco import DiLoCo
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from tests.support.peers import Run

EVERY_STEP = Algorithm()


def alone(root: Path, group: InnerGroup | None = None) -> Rendezvous:
    context = Run(root, replicas=1, min_participants=1).context()
    return Rendezvous.open(replace(context, group=group or InnerGroup()), 0, 1, Metrics())


@pytest.fixture
def one_process(tmp_path: Path) -> Iterator[None]:
    dist.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def trained(model: torch.nn.Module, root: Path) -> tuple[DiLoCo, torch.optim.Optimizer]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return DiLoCo(alone(root), model, optimizer, EVERY_STEP), optimizer


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_assigned, "weight was replaced, and the inner optimizer trains the tensor before it"),
        (fully_shard, "weight was replaced, and the inner optimizer trains the tensor before it"),
        (_exchanged, r"weight has the shape \(5, 3\), and had \(2, 3\)"),
        (_removed, "weight is gone"),
    ],
)
def test_a_tensor_that_was_replaced_is_refused_by_its_name(
    tmp_path: Path, one_process: None, change: Callable[[torch.nn.Module], object], words: str
) -> None:
    model = torch.nn.Linear(3, 2, bias=False)
    outer, _ = trained(model, tmp_path)
    change(model)
    with pytest.raises(ParametersError, match=words):
        outer.step()


def test_a_sharded_model_of_one_process_trains_like_any_other(tmp_path: Path, one_process: None) -> None:
    results = []
    for name, shard in (("plain", lambda model: model), ("sharded", fully_shard)):
        torch.manual_seed(3)
        model = shard(torch.nn.Linear(3, 2))
        outer, optimizer = trained(model, tmp_path / name)
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        outer.step()
        results.append([p.full_tensor() if isinstance(p, DTensor) else p for p in model.parameters()])
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


def test_a_tensor_that_cannot_be_mapped_is_refused_by_its_name(tmp_path: Path, one_process: None) -> None:
    model = torch.nn.Linear(3, 2)
    mesh = init_device_mesh("cpu", (1,))
    sums = DTensor.from_local(torch.zeros(2, 3), mesh, [Partial()], run_check=False)
    model.weight = torch.nn.Parameter(sums)
    model.bias = torch.nn.Parameter(DTensor.from_local(torch.zeros(2), mesh, [Replicate()], run_check=False))
    with pytest.raises(ParametersError, match=r"weight is a sum that its processes have not added up"):
        trained(model, tmp_path)


def test_processes_that_torch_does_not_connect_are_refused(tmp_path: Path) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ParametersError, match=r"2 processes, and torch\.distributed does not connect them"):
        DiLoCo(alone(tmp_path, InnerGroup(0, 2)), model, optimizer, EVERY_STEP)


def test_processes_that_muster_has_not_started_are_refused(tmp_path: Path, one_process: None) -> None:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(ParametersError, match=r"torch.distributed has 1 processes .*Set `processes` in the spec"):
        DiLoCo(alone(tmp_path, InnerGroup(0, 2)), model, optimizer, EVERY_STEP)


def test_the_inner_optimizers_state_of_a_sharded_model_is_restored_sharded(tmp_path: Path, one_process: None) -> None:
    def one_step(rounds: int) -> tuple[DiLoCo, torch.optim.Optimizer, torch.nn.Module]:
        torch.manual_seed(3)
        model = fully_shard(torch.nn.Linear(3, 2))
        optimizer = torch.optim.AdamW(model.parameters())
        outer = DiLoCo(alone(tmp_path), model, optimizer, EVERY_STEP, checkpoint_dir=tmp_path / "checkpoints")
        while outer.round < rounds:
            model(torch.ones(4, 3)).sum().backward()
            optimizer.step()
            outer.step()
        return outer, optimizer, model

    _, before, _ = one_step(1)
    _, after, model = one_step(1)
    for one, other in zip(before.state.values(), after.state.values(), strict=True):
        assert isinstance(other["exp_avg"], DTensor)
        assert torch.equal(one["exp_avg"].full_tensor(), other["exp_avg"].full_tensor())
    model(torch.ones(4, 3)).sum().backward()
    after.step()
