"""A PyTorch trainer's own state: of its random number generators, and of an optimizer of sharded parameters.

What is sharded is stored as what the process holds, and sharded again when it is loaded.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import numpy as np
import torch
from torch.distributed.tensor import DTensor

from muster.replica.frontends.joined_optimizers import InnerOptimizer
from muster.replica.states.plain_state import StateDict


def random_state() -> StateDict:
    """The states of this process's random number generators: Python's, NumPy's, PyTorch's on every device."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def set_random_state(state: StateDict) -> None:
    """Restore the generators' states."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])


def local_state(state: StateDict) -> StateDict:
    """The state with the local shard of each DTensor. A mesh belongs to its processes, and those of a rerun are new."""
    return {name: _local(value) for name, value in state.items()}


def sharded_state(state: StateDict, optimizer: InnerOptimizer) -> StateDict:
    """The reverse of `local_state`: values that are shaped like a sharded parameter's part are sharded like it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = [number for group in state["param_groups"] for number in group["params"]]
    by_number = dict(zip(numbers, parameters, strict=False))
    return {
        **state,
        "state": {
            number: {name: _sharded(value, by_number.get(number)) for name, value in values.items()}
            for number, values in state["state"].items()
        },
    }


def _local(value: object) -> object:
    if isinstance(value, DTensor):
        return value.to_local()
    if isinstance(value, Mapping):
        return {key: _local(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_local(item) for item in value)
    return value


def _sharded(value: object, parameter: torch.Tensor | None) -> object:
    if not (isinstance(value, torch.Tensor) and isinstance(parameter, DTensor)):
        return value
    local = parameter.to_local()
    if value.shape != local.shape or parameter.dim() == 0:
        return value
    return DTensor.from_local(
        value.to(local.device),
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )
