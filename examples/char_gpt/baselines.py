"""The baselines: one replica alone, and synchronous data parallel with as many tokens as all replicas together."""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import torch

from examples.char_gpt.dataset import load, shard
from examples.char_gpt.learning import Learner, Settings
from examples.char_gpt.report import Curve


def alone(settings: Settings, replicas: int, every: int, stop: Event) -> Curve:
    """One replica alone: a replica's steps on its own part of the text, without exchange."""
    text, held_out = load()
    return _curve(Learner(settings, shard(text, 0, replicas), held_out, seed=0), every, stop)


def data_parallel(settings: Settings, replicas: int, every: int, stop: Event) -> Curve:
    """Synchronous data parallel: as many steps, each with the gradient of all replicas' batches."""
    text, held_out = load()
    return _curve(
        Learner(replace(settings, batch_size=settings.batch_size * replicas), text, held_out, seed=0), every, stop
    )


def _curve(learner: Learner, every: int, stop: Event) -> Curve:
    """The held-out loss every `every` steps; ends early once `stop` is set."""
    torch.set_num_threads(1)
    curve = [(0, learner.held_out_loss())]
    for step in range(1, learner.settings.steps + 1):
        if stop.is_set():
            break
        learner.step()
        if step % every == 0 or step == learner.settings.steps:
            curve.append((step, learner.held_out_loss()))
    return curve
