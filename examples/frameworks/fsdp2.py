"""A training loop in the style of torchtitan, with FSDP2 inside of each replica: `examples.frameworks.fsdp2:train`.

No process holds the whole model: its layers are sharded, and each process exchanges its own part.
"""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from examples.char_gpt.model import GPT
from examples.frameworks.sequences import LENGTH, sequences
from muster.torch import Algorithm, Context, DiLoCo


def train(
    context: Context, *, steps: int = 20, sync_every: int = 5, accumulate: int = 2, width: int = 32, layers: int = 2
) -> None:
    """Train a GPT whose layers are sharded over the processes of a replica.

    Args:
        context: given by Muster.
        steps: optimizer steps of each replica.
        sync_every: optimizer steps between two exchanges.
        accumulate: batches of an optimizer step.
        width, layers: the size of the model.
    """
    device_type = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device_type, context.group.local_rank if device_type == "cuda" else 0)
    if device_type == "cuda":
        torch.cuda.set_device(device)
    mesh = init_device_mesh(device_type, (context.group.size,), mesh_dim_names=("shard",))

    model = GPT(width=width, layers=layers, heads=2, length=LENGTH, seed=0).to(device)
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if device_type == "cuda" else MixedPrecisionPolicy()
    for block in model.blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    sharded = fully_shard(model, mesh=mesh, mp_policy=policy)

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)  # after sharding: it trains the shards
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min((step + 1) / 5, 1 - step / steps / 2))
    outer = DiLoCo(
        context.rendezvous,
        model,
        optimizer,
        Algorithm(sync_every),
        trainer_state={"schedule": schedule},
        checkpoint_dir=context.checkpoint_dir,
    )
    data = sequences(1024, seed=context.rank)  # each replica has data of its own
    torch.manual_seed(context.group.rank)
    began, tokens = time.monotonic(), 0
    while outer.round < steps // sync_every and not context.stop.is_set():
        optimizer.zero_grad()
        seen, losses = 0, []
        for number in range(accumulate):
            sharded.set_requires_gradient_sync(number == accumulate - 1)
            batch = data[torch.randint(len(data), (8,))].to(device)
            loss = model.loss(batch[:, :-1], batch[:, 1:]) / accumulate
            loss.backward()  # type: ignore[no-untyped-call]
            losses.append(loss.detach())
            seen += batch.numel()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        tokens += seen * context.group.size
        if outer.step(samples=seen) is not None:
            mean = torch.stack(losses).sum()
            dist.all_reduce(mean, dist.ReduceOp.SUM)
            total_norm = norm.full_tensor()  # type: ignore[attr-defined] # a DTensor, like the gradients
            if context.group.is_first:
                rate = tokens / (time.monotonic() - began)
                loss_of_all = mean.item() / context.group.size
                context.metrics.log(
                    loss=loss_of_all, grad_norm=total_norm.item(), tokens=tokens, tokens_per_second=rate
                )
    outer.finish()
    dist.destroy_process_group()
