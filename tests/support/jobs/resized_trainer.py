"""A trainer that ends itself in the middle of a phase, and continues with as many processes as its replica has then."""

import os
import signal

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from muster.replica.phases import step_agreement
from muster.torch import Algorithm, Context, DiLoCo


def train(context: Context, *, rounds: int, stops: dict[str, int]) -> None:
    """Train for `rounds` rounds of four steps; in attempt k it is asked to stop after step `stops[k]`.

    All processes see the same data, so the parameters do not depend on how many there are, but for rounding.
    """
    step_agreement.BEAT_SECONDS = 0.0
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(13, 31), torch.nn.Tanh(), torch.nn.Linear(31, 3, bias=False))
    size = context.group.size
    if size > 1:
        dist.init_process_group("gloo")
        for layer in (model[0], model[2]):
            fully_shard(layer)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.9)
    outer = DiLoCo(
        context.rendezvous,
        model,
        optimizer,
        Algorithm(4, codec="int8"),
        trainer_state={"schedule": schedule},
        checkpoint_dir=context.checkpoint_dir,
    )
    step = outer.round * 4 + outer.steps
    while outer.round < rounds and not context.stop.is_set():
        step += 1
        inputs, wanted = torch.randn(2, 16, 13, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), wanted[:, :3]).backward()
        optimizer.step()
        schedule.step()
        if stops.get(str(context.attempt)) == step:
            os.kill(os.getpid(), signal.SIGTERM)
        outer.step(samples=1 / size)
    outer.finish()
    moments = [optimizer.state[parameter]["exp_avg_sq"] for parameter in model.parameters()]
    whole = [moment.full_tensor() if isinstance(moment, DTensor) else moment for moment in moments]
    if context.group.is_first:
        torch.save({"moments": whole, "rate": schedule.get_last_lr(), "step": step}, context.output_dir / "left.pt")
    if size > 1:
        dist.destroy_process_group()
