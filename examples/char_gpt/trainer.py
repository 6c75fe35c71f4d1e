"""The trainer of every replica: `examples.char_gpt.trainer:train`."""

from __future__ import annotations

import torch
import torch.distributed as dist

from examples.char_gpt.dataset import load, shard
from examples.char_gpt.learning import SYNC_EVERY, Learner, Settings
from muster.torch import Algorithm, Context, DiLoCo, FinalModel


def train(
    context: Context,
    *,
    sync_every: int = SYNC_EVERY,
    outer_learning_rate: float = 0.7,
    outer_momentum: float = 0.9,
    fragments: int = 1,
    delay: int = 0,
    alpha: float = 0.0,
    eager: bool = False,
    threads: int = 1,
    codec: str = "fp32",
    average: str = "mean",
    **settings: float | str,
) -> None:
    """Train on this replica's part of the text with DiLoCo, and report the global model's held-out loss each round.

    The processes of a replica share its model and its batches (FSDP2).

    Args:
        context: given by Muster.
        sync_every, fragments, delay, alpha, eager, codec, average: as in `muster.torch.Algorithm`.
        threads: PyTorch's; replicas that share a machine share its cores.
        settings: see `Settings`.
    """
    torch.set_num_threads(threads)
    group = context.group
    if group.size > 1:
        dist.init_process_group("gloo")
    chosen = Settings(**settings)  # type: ignore[arg-type]
    text, held_out = load()
    learner = Learner(chosen, shard(text, context.rank, context.world_size), held_out, context.rank, group)
    algorithm = Algorithm(
        sync_every=sync_every,
        learning_rate=outer_learning_rate,
        momentum=outer_momentum,
        fragments=fragments,
        delay=delay,
        alpha=alpha,
        eager=eager,
        codec=codec,
        average=average,
    )
    outer = DiLoCo(
        context.rendezvous,
        learner.model,
        learner.optimizers,
        algorithm,
        trainer_state={"data": learner.data}
        | {f"schedule-{place}": each for place, each in enumerate(learner.schedules)},
        checkpoint_dir=context.checkpoint_dir,
        final_model=FinalModel(evaluate=lambda: {"heldout": learner.held_out_loss()}),
    )
    rounds = chosen.steps * fragments // sync_every
    context.expect(rounds=rounds, unit="characters")
    _report(context, round=outer.round, heldout=learner.held_out_loss())
    losses = []
    while outer.round < rounds and not context.stop.is_set():
        losses.append(learner.step())
        if outer.step(samples=learner.characters) is not None:
            _report(
                context,
                round=outer.round,
                loss=learner.mean(sum(losses) / len(losses)),
                heldout=learner.held_out_loss(),
                position=learner.data.position,
            )
            losses.clear()
    outer.finish()
    _report(context, round=outer.round, heldout=learner.held_out_loss(), final=1)
    if group.size > 1:
        dist.destroy_process_group()


def _report(context: Context, **metrics: float) -> None:
    """The first process reports for its replica."""
    if context.group.is_first:
        context.metrics.log(**metrics)
