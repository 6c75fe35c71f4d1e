"""What every replica runs: `muster launch run.yaml` calls `train`. Replace the model and the data with your own."""

from pathlib import Path

import numpy as np
import torch

from muster.torch import Algorithm, Context, DiLoCo


def train(context: Context, *, rounds: int = 20, steps_per_round: int = 50, learning_rate: float = 1e-2) -> None:
    """Fit a small network. All replicas have the same parameters after every round."""
    device = torch.device("cuda", context.group.local_rank) if torch.cuda.is_available() else torch.device("cpu")
    if context.group.size > 1:  # several GPUs: the processes of this replica train one copy of the model
        torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    inputs, targets = (part.to(device) for part in load(context.input_dir / "train", context.rank, context.world_size))
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(inputs.shape[1], 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)).to(
        device
    )
    if context.group.size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    outer = DiLoCo(
        context.rendezvous,
        model,
        optimizer,
        Algorithm(sync_every=steps_per_round),
        checkpoint_dir=context.checkpoint_dir,
    )
    context.expect(rounds=rounds)
    while outer.round < rounds and not context.stop.is_set():
        batch = torch.randint(len(inputs), (32,), device=device)
        loss = torch.nn.functional.mse_loss(model(inputs[batch]).squeeze(1), targets[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if outer.step(samples=len(batch)) is not None:  # this step has ended a round
            context.metrics.log(round=outer.round, loss=loss.item())
    outer.finish()


def load(folder: Path, rank: int, world_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This replica's part of the data: CSV files, the last column is the target; without a channel, made-up numbers."""
    if folder.is_dir():
        rows = np.concatenate([np.loadtxt(path, np.float32, delimiter=",", ndmin=2) for path in folder.glob("*.csv")])
    else:
        inputs = np.random.default_rng(0).normal(size=(1024, 8)).astype(np.float32)
        rows = np.column_stack([inputs, np.sin(inputs).sum(axis=1)])
    own = torch.from_numpy(rows[rank::world_size].copy())
    return own[:, :-1], own[:, -1]
