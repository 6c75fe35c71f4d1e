"""Replicas, and the processes of one, that are forked from a test: they have imported what it has."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

import numpy as np
from torch.distributed import TCPStore

from muster.replica.context import Context
from muster.replica.group.board import InnerGroup, LocalBoard
from muster.replica.group.group_process import GroupProcess
from muster.replica.group.instances import ALONE
from muster.replica.group.launched_group import Group
from muster.replica.group.network_board import BoardServer, NetworkBoard
from muster.replica.group.spawning import group_variables, spawn_plainly
from muster.replica.wire.binary_format import Floats
from tests.support.contexts import context_of
from tests.support.peers import PATIENT_SECONDS, Run

T = TypeVar("T")
Train = Callable[[Context], None]


def trained_apart(train: Train, run: Run) -> tuple[Context, list[Floats]]:
    """The context of replica 0, which trains here, and the final parameters of the others, each in a process.

    For what keeps the state of a training in global variables, which threads would share.
    """

    def work(rank: int) -> Context:
        context = context_of(run, rank)
        train(context)
        assert context.rendezvous.departure.training is not None
        np.save(context.output_dir / "final.npy", context.rendezvous.departure.training.state.parameters)
        return context

    others = range(1, run.replicas)
    context = all_succeed([partial(work, rank) for rank in others], lambda: work(0))
    folders = [run.root.parent / f"{run.root.name}-replica-{rank}" for rank in others]
    return context, [np.load(folder / "output" / "final.npy") for folder in folders]


def all_succeed(works: Sequence[Callable[[], object]], here: Callable[[], T] = lambda: None) -> T:  # type: ignore[assignment]
    """Run each of `works` in a process; what `here` returns meanwhile."""
    processes = [multiprocessing.get_context("fork").Process(target=work, daemon=True) for work in works]
    try:
        for process in processes:
            process.start()
        result = here()
        for process in processes:
            process.join(PATIENT_SECONDS)
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
    return result


@contextmanager
def processes_of(run: Run, rank: int, train: Train, size: int = 1) -> Iterator[list[Callable[[], None]]]:
    """What each process of a replica does, on the CPU: PyTorch connects them through a store of this process."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
    board = NetworkBoard("127.0.0.1", server.port)
    members = (
        [GroupProcess(InnerGroup(index, size, index), board) for index in range(size)] if size > 1 else [GroupProcess()]
    )
    try:
        yield [partial(_train, run, rank, member, train, store.port) for member in members]
    finally:
        server.close()


def _train(run: Run, rank: int, member: GroupProcess, train: Train, port: int) -> None:
    """With the variables that Muster's launcher sets, and torchrun's for a store that is there already."""
    group = Group(ALONE, member.group.size, job=f"replica-{rank}", replica=str(rank), spawn=spawn_plainly)
    variables = group_variables(group, ("127.0.0.1", port), member.group.rank)
    os.environ.update(variables, CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    os.environ.update(TORCHELASTIC_USE_AGENT_STORE="True", TORCHELASTIC_RESTART_COUNT="0")
    train(context_of(run, rank, member=member))
