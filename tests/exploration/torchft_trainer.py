"""torchft's own DiLoCo over the manager, as a process of the exploration: PyTorch and its hooks included."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torchft import local_sgd

from muster.options.torchft.replica.torchft_manager import Manager
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.round_context import RoundContext
from muster.replica.statistics.metrics import Metrics
from muster.replica.wire.binary_format import Floats
from tests.exploration.world import Process

torch.set_num_threads(1)


class Silent(Metrics):
    """Prints nothing: the utilisation of virtual time means nothing."""

    def log(self, **_: float) -> None:
        return

    def show(self, numbers: Mapping[str, float]) -> None:
        return


def train_torchft(process: Process, context: RoundContext) -> None:
    """One inner step per round, whose gradient is the world's."""
    world = process.world
    world.seen["torchft: began"] += 1
    rendezvous = Rendezvous.open(context, process.rank, process.attempt, Silent())
    model = torch.nn.Linear(world.setting.count, 1, bias=False)
    torch.nn.init.constant_(model.weight, process.rank)
    _witness(process, rendezvous)
    manager: Any = Manager(rendezvous, model)  # the part of torchft's that its algorithms use
    if manager.round:
        world.seen["torchft: joined after the first round"] += 1
    inner = torch.optim.SGD(model.parameters(), lr=1.0)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    with local_sgd.DiLoCo(manager, [model], inner, outer, sync_every=1):
        # Also a state to which torchft has just applied the rounds after it.
        world.saw(manager.round, _values(model))
        while (done := manager.round) < world.setting.rounds:
            process.round = done
            manager.add_samples(process.rank + 1)
            model.weight.grad = torch.from_numpy(world.work(process.rank, done + 1).copy()).reshape(1, -1)
            inner.step()
            if manager.round != done + 1:
                process.left_out += 1
                world.seen["torchft: left out"] += 1
            world.saw(manager.round, _values(model))
    process.round = manager.round
    manager.shutdown()


def _witness(process: Process, rendezvous: Rendezvous) -> None:
    """Report every mean to the world."""
    exchange = rendezvous.rounds.exchange

    def witnessed(round_: int, update: LocalUpdate) -> Exchange:
        found = exchange(round_, update)
        if not found.commit.void:
            process.world.saw_mean(found.commit.round, found.mean)
        return found

    rendezvous.rounds.exchange = witnessed  # type: ignore[method-assign]


def _values(model: torch.nn.Module) -> Floats:
    return np.concatenate([tensor.numpy().reshape(-1) for tensor in model.state_dict().values()])
