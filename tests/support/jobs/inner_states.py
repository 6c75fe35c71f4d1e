"""A trainer whose processes share a model (FSDP2), and say after each inner step how far they are."""

from __future__ import annotations

import hashlib
import math
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from muster.torch import Algorithm, Context, DiLoCo

STEPS = 25  # of a phase


class Position:
    """The position in the data."""

    def __init__(self) -> None:
        self.value = 0

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def train(context: Context, *, steps: int, hold_at: int | None = None) -> None:
    """Every inner step depends on all before it, and on random numbers.

    After the step `hold_at` the processes wait to be killed.
    """
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(2)))
    for layer in model:
        fully_shard(layer)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    position = Position()
    outer = DiLoCo(
        context.rendezvous,
        model,
        optimizer,
        Algorithm(sync_every=STEPS),
        trainer_state={"position": position},
        checkpoint_dir=context.checkpoint_dir,
    )
    print(f"begins_at={position.value}", flush=True)
    while position.value < steps:
        noise = torch.rand(()).item()
        for parameter in model.parameters():
            parameter.grad = parameter.detach() * noise + math.sin(position.value)
        optimizer.step()
        position.value += 1
        outer.step()
        print(f"done={position.value}", flush=True)
        while position.value == hold_at:
            time.sleep(0.1)
    outer.end_round()
    outer.finish()
    whole = [parameter.full_tensor().detach().numpy().tobytes() for parameter in model.parameters()]  # type: ignore[attr-defined]
    print(f"digest={hashlib.sha256(b''.join(whole)).hexdigest()[:16]}", flush=True)
    dist.destroy_process_group()
