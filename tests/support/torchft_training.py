"""A small model that torchft's algorithms train over the rendezvous, with data that follow from rank and round."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torchft import local_sgd

from muster.replica.rendezvous import Rendezvous
from muster.torchft import Manager

SYNC_EVERY = 4
SEEDING = threading.Lock()  # the generator is one for all threads


def model_of() -> Any:
    """The model at the start: 57 parameters in two layers."""
    with SEEDING:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def inner_steps(model: Any, optimizer: Any, rank: int, round_: int, after: Callable[[], object] = lambda: None) -> None:
    """SYNC_EVERY steps; `after` is called after each."""
    generator = torch.Generator().manual_seed(1000 * round_ + rank)
    for _ in range(SYNC_EVERY):
        optimizer.zero_grad()
        batch = torch.randn(8, 5, generator=generator)
        model(batch.to(model[0].weight.dtype)).square().mean().backward()
        optimizer.step()
        after()


def outer_of(model: Any) -> Any:
    """torchft's usual outer optimizer."""
    return torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def state_of(model: Any) -> bytes:
    """The model's parameters."""
    return b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())


def train_with_torchft(
    rendezvous: Rendezvous,
    rounds: int,
    hook: Callable[[int], None] = lambda _: None,
    *,
    after: Callable[[int], None] = lambda _: None,
    settings: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """The model after so many rounds of torchft's DiLoCo.

    Args:
        hook: called with each round before its inner steps, and with the one after the last before the end.
        after: called with the round after each inner step.
        settings: the manager's options.
        options: DiLoCo's.
    """
    model = model_of()
    manager = Manager(rendezvous, model, **(settings or {}))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with local_sgd.DiLoCo(manager, [model], inner, outer_of(model), sync_every=SYNC_EVERY, **options):
        while manager.current_step() < rounds:
            round_ = manager.current_step() + 1
            hook(round_)
            inner_steps(model, inner, rendezvous.rank, round_, partial(after, round_))
        hook(rounds + 1)
    manager.shutdown()
    return model
