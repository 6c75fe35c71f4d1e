"""Models whose tensors change after DiLoCo was created: followed, or refused with the tensor's name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
        DiLoCo(alone(tmp_path / "1", InnerGroup(0, 2)), model, optimizer, EVERY_STEP)
    with connected(tmp_path), pytest.raises(ParametersError, match=r"1 processes .*Set `processes` in the spec"):
        DiLoCo(alone(tmp_path / "2", InnerGroup(0, 2)), model, optimizer, EVERY_STEP)
