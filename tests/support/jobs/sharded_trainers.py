"""A trainer of models that the processes of a replica share: an element moves as its place says, on any process."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

from muster.torch import Algorithm, Context, DiLoCo


def _model() -> torch.nn.Module:
    torch.manual_seed(7)
    model = torch.nn.Sequential(
        torch.nn.Linear(37, 900),
        torch.nn.BatchNorm1d(900),
        torch.nn.Linear(900, 301, bias=False),
        torch.nn.Linear(301, 5),
    )
    model.scale = torch.nn.Parameter(torch.ones(()))
    return model


def _fsdp(model: torch.nn.Module) -> torch.nn.Module:
    for layer in (model[0], model[2], model[3]):
        fully_shard(layer)
    return model


def _hsdp(model: torch.nn.Module) -> torch.nn.Module:
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (2, size // 2), mesh_dim_names=("copies", "shards"))
    for layer in (model[0], model[2], model[3]):
        fully_shard(layer, mesh=mesh)
    return model


def _tensor_parallel(model: torch.nn.Module) -> torch.nn.Module:
    size = dist.get_world_size()
    mesh = init_device_mesh("cpu", (size // 2, 2), mesh_dim_names=("shards", "tensor"))
    parallelize_module(model, mesh["tensor"], {"0": ColwiseParallel(), "2": ColwiseParallel(), "3": RowwiseParallel()})
    if size > 2:
        for layer in (model[0], model[2], model[3]):
            fully_shard(layer, mesh=mesh["shards"])
    return model


def _columns(model: torch.nn.Module) -> torch.nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[0], model[2]):
        layer.weight = torch.nn.Parameter(distribute_tensor(layer.weight.detach(), mesh, [Shard(1)]))
    return model


LAYOUTS: dict[str, Callable[[torch.nn.Module], torch.nn.Module]] = {
    "copied": DistributedDataParallel,
    "fsdp": _fsdp,
    "hsdp": _hsdp,
    "tensor": _tensor_parallel,
    "columns": _columns,
}


@dataclass(frozen=True)
class Held:
    """What this process holds of a tensor, and which elements of the whole tensor these are."""

    values: torch.Tensor
    places: torch.Tensor
    count: int


def _numbered(model: torch.nn.Module) -> torch.nn.Module:
    """The model with the number of each element as its value: PyTorch's own sharding then says who holds what."""
    with torch.no_grad():
        for tensor in _floating(model):
            tensor.copy_(torch.arange(tensor.numel()).view(tensor.shape))
    return model


def _floating(model: torch.nn.Module) -> list[torch.Tensor]:
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    return [tensor for tensor in (*inner.parameters(), *inner.buffers()) if tensor.is_floating_point()]


def _held(model: torch.nn.Module) -> list[Held]:
    held = []
    for tensor in _floating(model):
        values = tensor.detach()
        local = values.to_local() if isinstance(values, DTensor) else values
        held.append(Held(local, local.long(), tensor.numel()))
    return held


def _move(held: list[Held], rank: int, step: int) -> None:
    """Change every element by a number that follows from the replica, the step, the tensor and its place alone."""
    with torch.no_grad():
        for number, tensor in enumerate(held):
            changes = np.random.default_rng((rank, step, number)).standard_normal(tensor.count).astype(np.float32)
            tensor.values.sub_(torch.from_numpy(changes)[tensor.places])


def train(context: Context, *, layouts: dict[str, str], rounds: int, algorithm: dict[str, Any]) -> None:
    """Train for `rounds` rounds; a replica of several processes shards its model as `layouts` says for its rank."""
    model = _numbered(_model())
    if context.group.size > 1:
        dist.init_process_group("gloo")
        model = LAYOUTS[layouts[str(context.rank)]](model)
    held = _held(model)
    _move(held, 0, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    settings = Algorithm(**algorithm)
    outer = DiLoCo(context.rendezvous, model, optimizer, settings, checkpoint_dir=context.checkpoint_dir)
    step = outer.round * settings.interval
    while outer.round < rounds and not context.stop.is_set():
        step += 1
        _move(held, context.rank, step)
        outer.step(samples=(context.rank + 1) / context.group.size)
    outer.finish()
    if context.group.size > 1:
        dist.destroy_process_group()
