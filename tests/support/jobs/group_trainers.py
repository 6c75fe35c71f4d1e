"""Trainers for replicas of several processes."""

import json
import os
import sys

import numpy as np

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def _contribute(context: Context) -> None:
    """One round, by the first process."""
    if context.group.is_first:
        outer = DiLoCo(context.rendezvous, {"weights": np.zeros(3, np.float32)})
        outer.step()


def _begun(context: Context) -> None:
    (context.checkpoint_dir / f"{context.group.rank}-pid").write_text(str(os.getpid()))


def tell(context: Context) -> None:
    """Each process trains, and prints who it is on standard output and error."""
    _contribute(context)
    found = {
        **{name: os.environ[name] for name in VARIABLES},
        "group": [context.group.rank, context.group.size, context.group.local_rank],
        "replica": [context.rank, context.world_size],
        "seat": [context.rendezvous.seat.claim.epoch, context.incarnation],
        "agent": os.environ.get("TORCHELASTIC_RUN_ID"),
    }
    print(json.dumps(found), flush=True)
    sys.stderr.write("to standard error, without an end of line")


def add_up(context: Context) -> None:
    """All processes add up their ranks with PyTorch, and print who they are."""
    import torch  # noqa: PLC0415 - not every test has it
    import torch.distributed as dist  # noqa: PLC0415

    dist.init_process_group("gloo")
    total = torch.tensor([float(context.group.rank + 1)])
    dist.all_reduce(total)
    print(f"sum={total.item():g}", flush=True)
    dist.destroy_process_group()
    tell(context)


def fail_in(context: Context, *, process: int) -> None:
    """One process fails; the others train until they are stopped."""
    _begun(context)
    if context.group.rank == process:
        message = f"no data for process {process}"
        raise LookupError(message)
    context.stop.wait()


def train_until_stop(context: Context) -> None:
    """Train until SIGTERM."""
    _begun(context)
    context.stop.wait()


def train_rounds(context: Context, *, rounds: int) -> None:
    """The first process trains, the others work as long as it does; the first attempt stays in the second round."""
    board, group = context.rendezvous.context.board, context.group
    if not group.is_first:
        if context.attempt == 1:
            board.get("second round")
            print(f"process {group.rank} of {group.size} is in the second round", flush=True)
        board.get("trained")
        return
    parameters = np.zeros(3, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters}, checkpoint_dir=context.checkpoint_dir)
    while outer.round < rounds and not context.stop.is_set():
        if context.attempt == 1 and outer.round == 1:
            board.put("second round", True)
            print(f"process {group.rank} of {group.size} is in the second round", flush=True)
            context.stop.wait()
        parameters -= 0.1 * (context.rank + 1)
        outer.step()
    board.put("trained", True)
