"""What a trainer receives, for replicas over a local directory that are threads, or processes of a test."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.context import Context
from muster.replica.group.board import LocalBoard
from muster.replica.group.member import Member
from muster.replica.group.network_board import BoardServer, NetworkBoard
from muster.replica.group.spawning import Crew, group_variables
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous, Trained
from muster.replica.store.local_store import LocalStore
from muster.replica.wire.binary_format import Floats
from tests.support.peers import PATIENT_SECONDS, RUN, Run, run_all

T = TypeVar("T")


def results_of(run: Run) -> Path:
    """Where the run leaves its model: beside its directory."""
    return run.root.parent / f"{run.root.name}-results"


def context_of(
    run: Run,
    rank: int = 0,
    attempt: int = 1,
    member: Member | None = None,
    *,
    checkpoints: CheckpointTiers | None = None,
) -> Context:
    """The context of a replica, or of a `member` of one; its folders are beside the run's directory."""
    folders = run.root.parent / f"{run.root.name}-replica-{rank}"
    for name in ("checkpoints", "output", "model"):
        (folders / name).mkdir(parents=True, exist_ok=True)
    metrics, stop, member = Metrics(), threading.Event(), member or Member()
    round_context = replace(
        run.context(stop=stop),
        group=member.group,
        board=member.board,
        results=LocalStore(results_of(run)),
        checkpoints=checkpoints,
        local_states=folders / "local",
    )
    return Context(
        run=RUN,
        rank=rank,
        world_size=run.replicas,
        attempt=attempt,
        incarnation=1,
        group=member.group,
        rendezvous=Rendezvous.open(round_context, rank, attempt, metrics),
        metrics=metrics,
        stop=stop,
        input_dir=folders / "input",
        checkpoint_dir=folders / "checkpoints",
        output_dir=folders / "output",
        model_dir=folders / "model",
    )


def trained(train: Callable[[Context], None], contexts: Sequence[Context]) -> list[Trained]:
    """What the replicas have trained after `train` has returned in all of them, each in a thread."""
    errors: list[BaseException] = []

    def work(context: Context) -> None:
        try:
            train(context)
        except BaseException as error:
            errors.append(error)

    run_all([threading.Thread(target=work, args=(context,), daemon=True) for context in contexts])
    assert not errors, errors
    found = [context.rendezvous.training for context in contexts]
    assert None not in found
    return [training for training in found if training is not None]


def trained_apart(train: Callable[[Context], None], run: Run) -> tuple[Context, list[Floats]]:
    """The context of replica 0, which trains here, and the final parameters of the others, each in a forked process.

    For what keeps the state of a training in global variables, which threads would share.
    """

    def work(rank: int) -> None:
        context = context_of(run, rank)
        train(context)
        assert context.rendezvous.training is not None
        np.save(context.output_dir / "final.npy", context.rendezvous.training.state.parameters)

    others = range(1, run.replicas)
    context = all_succeed([partial(work, rank) for rank in others], lambda: _trained_here(train, run))
    folders = [run.root.parent / f"{run.root.name}-replica-{rank}" for rank in others]
    return context, [np.load(folder / "output" / "final.npy") for folder in folders]


def _trained_here(train: Callable[[Context], None], run: Run) -> Context:
    context = context_of(run, 0)
    train(context)
    return context


def all_succeed(works: Sequence[Callable[[], None]], here: Callable[[], T] = lambda: None) -> T:  # type: ignore[assignment]
    """Run each of `works` in a forked process, which has imported what this one has; what `here` returns meanwhile."""
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
def board_of_a_group() -> Iterator[NetworkBoard]:
    """A board for the processes of one replica."""
    server = BoardServer(LocalBoard(), ("127.0.0.1", 0))
    try:
        yield NetworkBoard("127.0.0.1", server.port)
    finally:
        server.close()


def launched(run: Run, rank: int, member: Member, train: Callable[[Context], None], port: int) -> None:
    """A process of replica `rank` on the CPU, with the variables that Muster's launcher sets."""
    group = member.group
    crew = Crew((), group.size, 0, 1, ("127.0.0.1", port), f"replica-{rank}")
    os.environ.update(group_variables(crew, group.rank), CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
    train(context_of(run, rank, member=member))
