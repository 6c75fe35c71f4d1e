"""Shared by replicas, baselines and the benchmark: the settings, one inner step, the held-out loss.

The processes of a replica learn together (FSDP2): each holds a part of every parameter and takes its rows of each
batch, so that a step is that of one process with the whole batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from examples.char_gpt.dataset import Windows
from examples.char_gpt.model import GPT
from muster.replica.group.board import InnerGroup

HELD_OUT_WINDOWS = 128
SYNC_EVERY = 50  # inner steps between two exchanges, if the spec names no other number


@dataclass(frozen=True)
class Settings:
    """Settings of the model and of one replica's inner steps."""

    width: int = 64
    layers: int = 2
    heads: int = 4
    length: int = 64
    batch_size: int = 8
    optimizer: str = "adamw"
    learning_rate: float = 4e-3
    warmup_steps: int = 20
    steps: int = 1_600
    seed: int = 0

    def model(self) -> GPT:
        """The model before its first step."""
        return GPT(width=self.width, layers=self.layers, heads=self.heads, length=self.length, seed=self.seed)


class Learner:
    """A model with its inner optimizer, schedule and data."""

    def __init__(
        self, settings: Settings, text: torch.Tensor, held_out: torch.Tensor, seed: int, group: InnerGroup | None = None
    ) -> None:
        """`seed` determines the order of the text's windows; `group` is this process's place among those that learn
        together, by default alone."""
        self.settings = settings
        self._group = group or InnerGroup()
        self.model = settings.model()
        if self._group.size > 1:
            # As one unit, because it is small; of a large model each layer is one, as in examples/frameworks/fsdp2.py.
            fully_shard(self.model)
        # After sharding: it trains the shards.
        self.optimizers = optimizers(self.model, settings)
        self.schedules = [torch.optim.lr_scheduler.LambdaLR(each, self._rate) for each in self.optimizers]
        self.data = Windows(text, settings.length, seed)
        self._held_out = own_rows(Windows(held_out, settings.length, seed=0).batch(HELD_OUT_WINDOWS), self._group)

    def step(self) -> float:
        """One step; the loss before it, of this process's rows."""
        for optimizer in self.optimizers:
            optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(*own_rows(self.data.batch(self.settings.batch_size), self._group))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimizer, schedule in zip(self.optimizers, self.schedules, strict=True):
            optimizer.step()
            schedule.step()
        return loss.item()

    @property
    def characters(self) -> int:
        """The characters that this process sees in a step."""
        return self.settings.batch_size // self._group.size * self.settings.length

    def held_out_loss(self) -> float:
        """Nats per character on text that no replica trains on."""
        with torch.no_grad():
            return self.mean(self.model.loss(*self._held_out).item())

    def mean(self, loss: float) -> float:
        """The mean of a loss over the processes that learn together."""
        if self._group.size == 1:
            return loss
        total = torch.tensor(loss, dtype=torch.float64)
        dist.all_reduce(total)
        return total.item() / self._group.size

    def _rate(self, step: int) -> float:
        """Linear warm-up, then linear decay to a tenth at the last step."""
        left = 1 - 0.9 * step / self.settings.steps
        return min((step + 1) / self.settings.warmup_steps, left)


def optimizers(model: GPT, settings: Settings) -> list[torch.optim.Optimizer]:
    """AdamW; or Muon for the matrices of the blocks, and AdamW for embeddings, norms and biases."""
    matrices = [each for each in model.blocks.parameters() if each.dim() == 2] if settings.optimizer == "muon" else []
    own = set(matrices)
    others = [each for each in model.parameters() if each not in own]
    adamw = torch.optim.AdamW(others, lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.1, fused=True)
    if not matrices:
        return [adamw]
    # Its steps are as large as AdamW's, so that one learning rate suits both (arXiv 2502.16982).
    return [adamw, torch.optim.Muon(matrices, lr=settings.learning_rate, adjust_lr_fn="match_rms_adamw")]


def own_rows(batch: tuple[torch.Tensor, torch.Tensor], group: InnerGroup) -> tuple[torch.Tensor, torch.Tensor]:
    """The rows of a batch that a process takes: as many as every other one.

    Raises:
        ValueError: they cannot be divided.
    """
    rows, left = divmod(len(batch[0]), group.size)
    if left:
        message = f"{len(batch[0])} rows of a batch cannot be divided among {group.size} processes."
        raise ValueError(message)
    own = slice(rows * group.rank, rows * (group.rank + 1))
    return batch[0][own], batch[1][own]
