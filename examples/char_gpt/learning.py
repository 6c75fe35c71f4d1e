"""Shared by replicas, baselines and the benchmark: the settings, one inner step, the held-out loss."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from examples.char_gpt.dataset import Windows
from examples.char_gpt.model import GPT

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
    learning_rate: float = 4e-3
    warmup_steps: int = 20
    steps: int = 1_600
    seed: int = 0

    def model(self) -> GPT:
        """The model before its first step."""
        return GPT(width=self.width, layers=self.layers, heads=self.heads, length=self.length, seed=self.seed)


class Learner:
    """A model with its inner optimizer, schedule and data."""

    def __init__(self, settings: Settings, text: torch.Tensor, held_out: torch.Tensor, seed: int) -> None:
        """`seed` determines the order of the text's windows."""
        self.settings = settings
        self.model = settings.model()
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=settings.learning_rate, betas=(0.9, 0.99), weight_decay=0.1
        )
        self.schedule = torch.optim.lr_scheduler.LambdaLR(self.optimizer, self._rate)
        self.data = Windows(text, settings.length, seed)
        inputs, targets = Windows(held_out, settings.length, seed=0).batch(HELD_OUT_WINDOWS)
        self._held_out = inputs, targets

    def step(self) -> float:
        """One step of AdamW; the loss before it."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(*self.data.batch(self.settings.batch_size))
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()

    def held_out_loss(self) -> float:
        """Nats per character on text that no replica trains on."""
        with torch.no_grad():
            return self.model.loss(*self._held_out).item()

    def _rate(self, step: int) -> float:
        """Linear warm-up, then linear decay to a tenth at the last step."""
        left = 1 - 0.9 * step / self.settings.steps
        return min((step + 1) / self.settings.warmup_steps, left)
