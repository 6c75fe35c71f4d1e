"""Several optimizers of one model as one, such as Muon for its matrices and AdamW for the rest."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch

from muster.replica.replica_errors import ParametersError
from muster.replica.states.plain_state import StateDict


class InnerOptimizer(Protocol):
    """What is asked of a replica's inner optimizer: its parameters and its state, as PyTorch's have them."""

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Its parameters and their settings."""

    def state_dict(self) -> StateDict:
        """Its state by the numbers of its parameters, and its groups."""

    def load_state_dict(self, state_dict: StateDict) -> None:
        """Restore a state."""


class JoinedOptimizers:
    """One state of all: parameters are numbered in the order of the optimizers."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._optimizers = optimizers
        self._firsts, number = [], 0  # the number of each one's first parameter
        for optimizer in optimizers:
            self._firsts.append(number)
            number += sum(len(group["params"]) for group in optimizer.param_groups)

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all."""
        return [group for optimizer in self._optimizers for group in optimizer.param_groups]

    def state_dict(self) -> StateDict:
        """As one optimizer's."""
        state: dict[int, Any] = {}
        groups: list[StateDict] = []
        for first, optimizer in zip(self._firsts, self._optimizers, strict=True):
            own = optimizer.state_dict()
            state |= {first + number: values for number, values in own["state"].items()}
            groups += [_numbered(group, first) for group in own["param_groups"]]
        return {"state": state, "param_groups": groups}

    def load_state_dict(self, state_dict: StateDict) -> None:
        """The reverse of `state_dict`."""
        groups = iter(state_dict["param_groups"])
        for first, optimizer in zip(self._firsts, self._optimizers, strict=True):
            own = [_numbered(next(groups), -first) for _ in optimizer.param_groups]
            numbers = {number for group in own for number in group["params"]}
            state = {number - first: values for number, values in state_dict["state"].items()}
            optimizer.load_state_dict(
                {"state": {number: state[number] for number in numbers & state.keys()}, "param_groups": own}
            )


def joined(optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer]) -> InnerOptimizer:
    """A replica's inner optimizer, which may be several.

    Raises:
        ParametersError: something else, or a parameter that two of them train.
    """
    several = list(optimizer) if isinstance(optimizer, Sequence) else [optimizer]
    strange = [each for each in several if not isinstance(each, torch.optim.Optimizer)]
    if strange or not several:
        found = f"of type {type(strange[0]).__name__}" if strange else "empty"
        message = f"inner_optimizer is {found}; allowed: a torch.optim.Optimizer, or a list of them."
        raise ParametersError(message)
    if len(several) == 1:
        return several[0]
    made = JoinedOptimizers(several)
    trained = [id(tensor) for group in made.param_groups for tensor in group["params"]]
    if len(set(trained)) < len(trained):
        message = "inner_optimizer has a parameter that two of its optimizers train; allowed: each by one of them."
        raise ParametersError(message)
    return made


def _numbered(group: StateDict, first: int) -> StateDict:
    return {**group, "params": [first + number for number in group["params"]]}
