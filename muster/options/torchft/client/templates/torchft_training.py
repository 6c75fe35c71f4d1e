"""What every replica runs: `muster launch run.yaml` calls `train`. Replace the model and the data with your own."""

from pathlib import Path

import numpy as np
import torch
from torchft.local_sgd import DiLoCo

from muster.torchft import Context, Manager


def train(context: Context, *, rounds: int = 20, steps_per_round: int = 50, learning_rate: float = 1e-2) -> None:
    """Fit a small network with torchft's DiLoCo, over the run's rendezvous."""
    device = torch.device("cuda") if torch.cuda.is_available() else torch.device("cpu")
    inputs, targets = (part.to(device) for part in load(context.input_dir / "train", context.rank, context.world_size))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(
        device
    )
    inner = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    outer = torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)
    manager = Manager(context.rendezvous, model, checkpoint_dir=context.checkpoint_dir)
    context.expect(rounds=rounds)
    with DiLoCo(manager, [model], inner, outer, sync_every=steps_per_round):
        while manager.round < rounds and not context.stop.is_set():
            before = manager.round
            batch = torch.randint(len(inputs), (32,), device=device)
            loss = torch.nn.functional.mse_loss(model(inputs[batch]).squeeze(1), targets[batch])
            inner.zero_grad()
            loss.backward()
            manager.add_samples(len(batch))
            inner.step()
            if manager.round > before:
                context.metrics.log(round=manager.round, loss=loss.item())
    manager.shutdown()


def load(folder: Path, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This replica's part of the data: CSV files, the last column is the target; without a channel, made-up numbers."""
    if folder.is_dir():
        rows = np.concatenate([np.loadtxt(path, np.float32, delimiter=",", ndmin=2) for path in folder.glob("*.csv")])
    else:
        inputs = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
        rows = np.column_stack([inputs, np.sin(inputs).sum(axis=1)])
    own = torch.from_numpy(rows[rank::world_size].copy())
    return own[:, :-1], own[:, -1]
