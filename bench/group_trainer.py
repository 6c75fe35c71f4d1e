"""A trainer that measures the memory of each process of a replica: what the same training needs without DiLoCo, and
what it needs with it."""

from __future__ import annotations

import json
from collections.abc import Callable

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from bench.rounds.memory import peak_mib, reset_peak, resident_mib
from muster.torch import Algorithm, Context, DiLoCo

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {"SGD": torch.optim.SGD, "AdamW": torch.optim.AdamW}


def train(context: Context, *, layers: int, width: int, rounds: int, optimizer: str) -> None:
    """Train a model of `layers` matrices of `width` x `width`, which FSDP2 shards over the processes of the replica.

    Each inner step moves the parameters by gradients that are there all the time. A backward pass would add memory that
    is free again when the exchange needs some: that would hide what the exchange needs, and on a GPU it is not the
    host's memory.
    """
    torch.set_num_threads(1)
    group = context.group
    with torch.device("meta"):
        model = torch.nn.Sequential(*(torch.nn.Linear(width, width, bias=False) for _ in range(layers)))
    if group.size > 1:
        dist.init_process_group("gloo")
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    # Nothing is freed before the measurement: what is free in the process would not count when it is used again.
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        torch.nn.init.constant_(parameter, 1.0)
        parameter.grad = torch.full_like(parameter, 1.0 + context.rank)
    inner = OPTIMIZERS[optimizer](model.parameters(), lr=1e-3)
    inner.step()
    before = resident_mib()
    reset_peak()
    for _ in range(3):
        inner.step()
    without = peak_mib()

    outer = DiLoCo(context.rendezvous, model, inner, Algorithm(sync_every=1), checkpoint_dir=context.checkpoint_dir)
    joined, held = peak_mib(), 0.0
    while outer.round < rounds:
        inner.step()
        outer.step()
        held = resident_mib()
    trained = peak_mib()
    outer.finish()
    found = {
        "process": group.rank,
        "before": before,
        "without": without,
        "joined": joined,
        "held": held,
        "trained": trained,
        "finished": peak_mib(),
    }
    print(f"memory={json.dumps(found, separators=(',', ':'))}", flush=True)
    if group.size > 1:
        dist.destroy_process_group()
