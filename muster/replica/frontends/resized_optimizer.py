"""The state of a PyTorch optimizer after the number of processes that share its parameters has changed."""

from __future__ import annotations

import torch

from muster.replica.frontends.joined_optimizers import InnerOptimizer
from muster.replica.frontends.model_tensors import shard_of
from muster.replica.resizing.shared_parts import shared_blocks, stored_shard
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict


class ResizedOptimizer:
    """Takes the states of the former processes one after the other, and keeps what this process needs of each.

    What is as large as its parameter was sharded as the parameter was; of the rest the first process's counts. Where a
    part's shape does not say how it was cut (two dimensions), the parameter begins with a new state.
    """

    def __init__(self, optimizer: InnerOptimizer) -> None:
        self._parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        self._made: StateDict = {}
        self._lost: set[object] = set()

    def add(self, state: StateDict, rank: int, size: int) -> None:
        """The state of process `rank` of `size`, as `local_state` makes it; in the order of ranks."""
        for name, value in state.items():
            if name != "state":
                self._made.setdefault(name, value)
        if "state" not in state or "param_groups" not in state:
            return
        numbers = [number for group in state["param_groups"] for number in group["params"]]
        by_number = dict(zip(numbers, self._parameters, strict=False))
        made = self._made.setdefault("state", {})
        for number, values in state["state"].items():
            parameter = by_number.get(number)
            if parameter is None or number in self._lost:
                continue
            own = made.setdefault(number, {})
            for name, value in values.items():
                if not _is_shaped(value, parameter):
                    own.setdefault(name, value)
                    continue
                theirs = stored_shard(tuple(parameter.shape), tuple(value.shape), rank, size)
                if theirs is None:
                    self._lost.add(number)
                    break
                mine = shard_of(parameter)
                if name not in own:
                    own[name] = torch.zeros(mine.local_shape, dtype=value.dtype)
                for source, place in shared_blocks(theirs, mine):
                    own[name][place] = value[source]

    def result(self) -> StateDict:
        """The state of this process."""
        for number in self._lost:
            self._made["state"].pop(number, None)
        if self._lost:
            log.warning("event=state-not-resized parameters=%d", len(self._lost))
        return self._made


def _is_shaped(value: object, parameter: torch.Tensor) -> bool:
    """Whether a value has an element for each element of its parameter."""
    return isinstance(value, torch.Tensor) and value.dim() == parameter.dim() and value.dim() > 0
