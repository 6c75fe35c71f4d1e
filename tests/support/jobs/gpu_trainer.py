"""A trainer of a model on a GPU: two processes share it (gloo: both may have one GPU), or FSDP2 shards it (NCCL)."""

import hashlib
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from muster.torch import Algorithm, Context, DiLoCo


def train(context: Context, *, rounds: int, algorithm: dict[str, Any]) -> None:
    """Train for `rounds` rounds, and print a checksum of the model on the GPU."""
    device = torch.device("cuda", 0)
    torch.manual_seed(7)
    model: torch.nn.Module = torch.nn.Sequential(
        torch.nn.Linear(37, 900), torch.nn.ReLU(), torch.nn.Linear(900, 5, bias=False)
    ).to(device)
    if context.group.size > 1:
        dist.init_process_group("gloo")
        model = DistributedDataParallel(model)
    else:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        fully_shard(model)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
    outer = DiLoCo(context.rendezvous, model, inner, Algorithm(**algorithm), checkpoint_dir=context.checkpoint_dir)
    data = torch.Generator(device).manual_seed(10 * context.rank + context.group.rank)
    while outer.round < rounds:
        inputs = torch.randn(16, 37, device=device, generator=data)
        model(inputs).square().mean().backward()
        inner.step()
        inner.zero_grad()
        outer.step()
    outer.finish()
    # What `finish` has left: the run's parameters, on all replicas the same.
    held = [p.detach() for p in model.parameters()]
    whole = [(p.full_tensor() if isinstance(p, DTensor) else p).cpu().numpy().tobytes() for p in held]
    print(f"parameters={hashlib.sha256(b''.join(whole)).hexdigest()}", flush=True)
    dist.destroy_process_group()
