"""A PyTorch model's tensors as the run knows them: by names that no wrapper changes, and as what each process holds."""

from __future__ import annotations

import torch
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.tensor import DTensor, Partial, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.nn.parallel import DistributedDataParallel

from muster.replica.parts.local_shard import LocalShard

# Parts of names that torch.compile and activation checkpointing add.
_ADDED = {"_orig_mod", "_checkpoint_wrapped_module"}


def unwrapped(model: torch.nn.Module) -> torch.nn.Module:
    """The user's own module, inside of DistributedDataParallel."""
    return model.module if isinstance(model, DistributedDataParallel) else model


def parameters_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's parameters as they are now, by name: not those of an earlier look, which may have been replaced."""
    model = unwrapped(model)
    for module in model.modules():
        if isinstance(module, FSDPModule):
            # Between forward and backward it may hold gathered parameters, which are copies.
            module.reshard()
    return {_name(name): tensor for name, tensor in model.named_parameters()}


def buffers_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """The model's buffers as they are now, by name."""
    return {_name(name): tensor for name, tensor in unwrapped(model).named_buffers()}


def saved_names(model: torch.nn.Module) -> set[str]:
    """The names of parameters and persistent buffers."""
    return {_name(name) for name in unwrapped(model).state_dict(keep_vars=True)}


def statistics_of(model: torch.nn.Module) -> list[str]:
    """The names of persistent buffers of a floating type whose values are finite (a mask of -inf is not one)."""
    saved = saved_names(model)
    return [name for name, buffer in buffers_of(model).items() if name in saved and _is_statistic(buffer)]


def local_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """What this process holds of `tensor`, in the same memory."""
    held = tensor.detach()
    return held.to_local() if isinstance(held, DTensor) else held


def problem_of(name: str, tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be trained; None if it can."""
    if not tensor.is_floating_point() or tensor.is_meta:
        return f"{name} is {tensor.dtype} on {tensor.device}; allowed: a floating type on a device of this process"
    if hasattr(tensor, "_local_shard") or type(tensor).__name__ == "FlatParameter":
        return f"{name} is a flat parameter of {FullyShardedDataParallel.__name__}; allowed: fully_shard (FSDP2)"
    if isinstance(tensor, DTensor):
        for placement in tensor.placements:
            if isinstance(placement, Partial):
                return f"{name} is a sum that its processes have not added up ({placement}); allowed: Shard, Replicate"
            if not (placement.is_replicate() or isinstance(placement, Shard | _StridedShard)):
                return f"{name} is placed as {placement}; allowed: Shard, Replicate"
    return None


def problem_of_model(model: torch.nn.Module) -> str | None:
    """Why no parameter of a model can be exchanged; None if they can. DeepSpeed is recognised by name: not imported."""
    if any(kind.__name__ == "DeepSpeedEngine" for kind in type(model).__mro__):
        return "the model is a DeepSpeedEngine, which trains copies of its parameters; allowed: fully_shard (FSDP2)"
    return None


def shard_of(tensor: torch.Tensor) -> LocalShard:
    """What this process holds of `tensor`: all of a plain tensor, of a DTensor what its placements say."""
    shard = LocalShard.whole(tuple(tensor.shape))
    if not isinstance(tensor, DTensor):
        return shard
    mesh, coordinate = tensor.device_mesh, tensor.device_mesh.get_coordinate()
    if coordinate is None:
        return LocalShard(shard.shape, tuple(() for _ in shard.shape))
    for dimension, placement in enumerate(tensor.placements):
        if isinstance(placement, Shard | _StridedShard):
            factor = int(placement.split_factor) if isinstance(placement, _StridedShard) else 1
            along = placement.dim % max(1, tensor.dim())
            shard = shard.split(along, mesh.size(dimension), coordinate[dimension], factor)
    return shard


def _name(name: str) -> str:
    return ".".join(part for part in name.split(".") if part not in _ADDED)


def _is_statistic(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() and not buffer.is_meta and bool(torch.isfinite(buffer).all())
