"""Trainers that replica processes run in tests."""

import sys

import numpy as np

from muster.replica.context import Context
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.replica_errors import StoppedError
from tests.support.peers import gradient_of

COUNT = 300


def train(context: Context, *, rounds: int) -> None:
    """Gradients that depend on rank and round alone."""
    parameters = np.zeros(COUNT, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters})
    while outer.round < rounds and not context.stop.is_set():
        parameters -= gradient_of(context.rank, outer.round + 1, COUNT)
        outer.step(context.rank + 1)
        context.metrics.log(round=outer.round, loss=1 / outer.round)


def train_unequally(context: Context, *, rounds: list[int]) -> None:
    """As many rounds as its rank has data for, whatever `context.stop` says; the shortest ends with sys.exit(0)."""
    parameters = np.zeros(COUNT, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters})
    while outer.round < rounds[context.rank]:
        parameters -= gradient_of(context.rank, outer.round + 1, COUNT)
        outer.step(context.rank + 1)
        context.metrics.log(asked_to_return=context.stop.is_set())
    if rounds[context.rank] == min(rounds):
        sys.exit(0)


def fail_after(context: Context, *, rounds: int) -> None:
    """Train, and fail then."""
    train(context, rounds=rounds)
    fail(context)


def wait_to_be_stopped(context: Context, *, rounds: int) -> None:
    """Train one round, then wait."""
    parameters = np.zeros(COUNT, np.float32)
    outer = DiLoCo(context.rendezvous, {"weights": parameters})
    for _ in range(rounds):
        outer.step()
    context.metrics.log(waiting=1)
    context.stop.wait(60)


def say_where(context: Context) -> None:
    """Prints the context's fields."""
    DiLoCo(context.rendezvous, np.zeros(3, np.float32))
    print(context.rank, context.world_size, context.attempt, context.incarnation, context.run)
    assert context.rank == context.rendezvous.rank
    for folder in (context.checkpoint_dir, context.output_dir, context.model_dir):
        (folder / "touched").touch()


def fail(context: Context) -> None:
    """A user's mistake."""
    message = "the learning rate\nis negative"
    raise ValueError(message)


def exhaust(context: Context, *, kind: str) -> None:
    """Run out of memory, in each way in which a trainer can see it."""
    # As PyTorch names it.
    of_torch = type("OutOfMemoryError", (RuntimeError,), {"__module__": "torch"})
    if kind == "wrapped":
        try:
            raise MemoryError
        except MemoryError as error:
            message = "in the forward pass"
            raise RuntimeError(message) from error
    message = "3 TiB"
    raise (of_torch if kind == "torch" else MemoryError)(message)


def exit_with_three(context: Context) -> None:
    """A user's program that ends itself."""
    raise SystemExit(3)


def do_nothing(context: Context) -> None:
    """A trainer that never joins."""


def swallow_nothing_but_stop(context: Context) -> None:
    """A trainer that ends because a wait is stopped."""
    outer = DiLoCo(context.rendezvous, np.zeros(3, np.float32))
    try:
        outer.step()
    except StoppedError:
        print("stopped in a wait", flush=True)
        raise
