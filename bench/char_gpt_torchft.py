"""The GPT example trained by torchft's DiLoCo over our rendezvous: the same learner, torchft's algorithm."""

from __future__ import annotations

import torch
from torchft.local_sgd import DiLoCo

from examples.char_gpt.dataset import load, shard
from examples.char_gpt.learning import Learner, Settings
from muster.torchft import Context, Manager


def train(
    context: Context,
    *,
    sync_every: int,
    outer_learning_rate: float,
    outer_momentum: float,
    **settings: float,
) -> None:
    """As `examples.char_gpt.trainer:train`, with the same meaning of the arguments."""
    torch.set_num_threads(1)
    chosen = Settings(**settings)  # type: ignore[arg-type]
    text, held_out = load()
    learner = Learner(chosen, shard(text, context.rank, context.world_size), held_out, seed=context.rank)
    outer = torch.optim.SGD(learner.model.parameters(), lr=outer_learning_rate, momentum=outer_momentum, nesterov=True)
    manager = Manager(context.rendezvous, learner.model)
    algorithm = DiLoCo(
        manager,  # type: ignore[arg-type]  # not a subclass of its own manager, which would start servers
        [learner.model],
        learner.optimizers[0],
        outer,
        sync_every=sync_every,
    )
    with algorithm:
        while manager.current_step() < chosen.steps // sync_every and not context.stop.is_set():
            learner.step()
    manager.shutdown()
    context.metrics.log(final=1, heldout=learner.held_out_loss())
