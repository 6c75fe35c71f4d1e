"""What every replica runs: `muster launch run.yaml` calls `train`. Replace the model and the data with your own."""

from pathlib import Path

import lightning.pytorch as lightning
import numpy as np
import torch
from torch.utils.data import DataLoader, TensorDataset

from muster.lightning import Algorithm, Context, DiLoCoCallback


class Regression(lightning.LightningModule):
    """A small network."""

    def __init__(self, width: int, learning_rate: float) -> None:
        super().__init__()
        self.learning_rate = learning_rate
        self.layers = torch.nn.Sequential(torch.nn.Linear(width, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        """The loss of a batch."""
        inputs, targets = batch
        loss = torch.nn.functional.mse_loss(self.layers(inputs).squeeze(1), targets)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """The inner optimizer, which is this replica's own."""
        return torch.optim.AdamW(self.parameters(), lr=self.learning_rate)


def train(context: Context, *, max_steps: int = 1000, steps_per_round: int = 50, learning_rate: float = 1e-2) -> None:
    """Fit a small network. All replicas have the same parameters after every round."""
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(*load(context.input_dir / "train", context.rank, context.world_size))
    width = data.tensors[0].shape[1]
    trainer = lightning.Trainer(
        max_steps=max_steps,
        devices="auto" if torch.cuda.is_available() else context.group.size,
        default_root_dir=context.output_dir,
        enable_checkpointing=False,  # Muster saves what a restarted replica needs
        enable_progress_bar=False,
        logger=False,
        callbacks=[DiLoCoCallback(context, Algorithm(sync_every=steps_per_round))],
    )
    trainer.fit(Regression(width, learning_rate), DataLoader(data, batch_size=32, shuffle=True))


def load(folder: Path, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This replica's part of the data: CSV files, the last column is the target; without a channel, made-up numbers."""
    if folder.is_dir():
        rows = np.concatenate([np.loadtxt(path, np.float32, delimiter=",", ndmin=2) for path in folder.glob("*.csv")])
    else:
        inputs = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
        rows = np.column_stack([inputs, np.sin(inputs).sum(axis=1)])
    own = torch.from_numpy(rows[rank::world_size].copy())
    return own[:, :-1], own[:, -1]
