"""A loop with Hugging Face's Accelerate: `examples.frameworks.accelerate_loop:train`.

Accelerate needs no callback: pass what `prepare` returns to DiLoCo, and call `step` where the optimizer has stepped.
"""

from __future__ import annotations

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from examples.char_gpt.model import GPT
from examples.frameworks.sequences import LENGTH, sequences
from muster.torch import Algorithm, Context, DiLoCo


def train(context: Context, *, rounds: int = 8, sync_every: int = 5) -> None:
    """Train a small GPT.

    Args:
        context: given by Muster.
        rounds: exchanges with the other replicas.
        sync_every: optimizer steps between two exchanges.
    """
    accelerator = Accelerator(gradient_accumulation_steps=2)
    model = GPT(width=32, layers=2, heads=2, length=LENGTH, seed=0)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    loader = DataLoader(TensorDataset(sequences(512, seed=context.rank)), batch_size=8, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    outer = DiLoCo(
        context.rendezvous, model, optimizer, Algorithm(sync_every), checkpoint_dir=context.checkpoint_dir
    )  # after prepare: it may wrap or shard the model
    samples = 0
    while outer.round < rounds and not context.stop.is_set():
        for (tokens,) in loader:
            with accelerator.accumulate(model):
                scores = model(tokens[:, :-1])
                loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            samples += tokens.numel()
            if not accelerator.sync_gradients:
                continue  # the optimizer has not stepped
            if outer.step(samples) is not None and context.group.is_first:
                context.metrics.log(loss=loss.item())
            samples = 0
            if outer.round >= rounds or context.stop.is_set():
                break
    outer.finish()
