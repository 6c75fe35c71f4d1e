"""Lightning's `Trainer` with Muster's callback: `examples.frameworks.lightning_module:train`."""

from __future__ import annotations

from typing import Any

import lightning.pytorch as lightning
import torch
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from examples.frameworks.sequences import VOCABULARY, sequences
from muster.lightning import Algorithm, Context, DiLoCoCallback


class NextToken(lightning.LightningModule):
    """Predicts a token from the one before it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Embedding(VOCABULARY, width), torch.nn.Linear(width, width), torch.nn.ReLU(),
            torch.nn.Linear(width, VOCABULARY),
        )  # fmt: skip

    def training_step(self, batch: Any, index: int) -> torch.Tensor:
        """The loss of a batch of sequences."""
        (tokens,) = batch
        scores = self.layers(tokens[:, :-1])
        loss = functional.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> Any:
        """AdamW with a linear decay by step."""
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=200)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


def train(context: Context, *, max_steps: int = 60, sync_every: int = 10) -> None:
    """Train on this replica's part of the data.

    Args:
        context: given by Muster.
        max_steps: optimizer steps of each replica.
        sync_every: optimizer steps between two exchanges.
    """
    lightning.seed_everything(0, verbose=False)
    generator = torch.Generator().manual_seed(context.rank)
    data = DataLoader(TensorDataset(sequences(256, seed=context.rank)), 8, shuffle=True, generator=generator)
    trainer = lightning.Trainer(
        max_steps=max_steps,
        accumulate_grad_batches=2,
        devices="auto" if torch.cuda.is_available() else context.group.size,
        default_root_dir=context.output_dir,
        enable_checkpointing=False,  # Muster saves what a rerun needs
        enable_progress_bar=False,
        logger=False,
        callbacks=[DiLoCoCallback(context, Algorithm(sync_every=sync_every, momentum=0.5))],
    )
    trainer.fit(NextToken(), data)
