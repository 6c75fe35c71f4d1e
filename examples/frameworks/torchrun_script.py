"""A script that was written for torchrun, with the seven lines changed or added that let replicas train together.

They are marked. The trainer is `examples.frameworks.torchrun_script:train`: Muster starts the processes of each
replica, as torchrun does.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from examples.char_gpt.model import GPT
from examples.frameworks.sequences import LENGTH, sequences
from muster.torch import Algorithm, Context, DiLoCo  # Muster: added

STEPS, SYNC_EVERY = 20, 5


def train(context: Context) -> None:  # Muster: was `def main() -> None:`
    """Train a small GPT with data parallelism among the processes of a replica."""
    on_gpu = torch.cuda.is_available()
    dist.init_process_group("nccl" if on_gpu else "gloo")
    device = torch.device("cuda", dist.get_node_local_rank()) if on_gpu else torch.device("cpu")
    model = DistributedDataParallel(GPT(width=32, layers=2, heads=2, length=LENGTH, seed=0).to(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    outer = DiLoCo(
        context.rendezvous, model, optimizer, Algorithm(SYNC_EVERY), checkpoint_dir=context.checkpoint_dir
    )  # Muster: added
    data = sequences(1024, seed=context.rank)  # Muster: was `seed=0`; each replica has data of its own
    torch.manual_seed(dist.get_rank())
    while outer.round < STEPS // SYNC_EVERY and not context.stop.is_set():  # Muster: was `for step in range(STEPS):`
        batch = data[torch.randint(len(data), (8,))].to(device)
        scores = model(batch[:, :-1])
        loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        outer.step(samples=batch.numel())  # Muster: added
    outer.finish()  # Muster: added
    dist.destroy_process_group()
