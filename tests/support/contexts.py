"""What a trainer receives, for replicas over a local directory that are threads, or processes of a test."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from muster.replica.context import Context
from muster.replica.group.member import Member
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous, Trained
from muster.replica.wire.binary_format import Floats
from tests.support.peers import PATIENT_SECONDS, RUN, Run, run_all


def context_of(run: Run, rank: int = 0, attempt: int = 1, member: Member | None = None) -> Context:
    """The context of a replica, or of a `member` of one; its folders are beside the run's directory."""
    folders = run.root.parent / f"{run.root.name}-replica-{rank}"
    for name in ("checkpoints", "output", "model"):
        (folders / name).mkdir(parents=True, exist_ok=True)
    metrics, stop, member = Metrics(), threading.Event(), member or Member()
    round_context = replace(run.context(stop=stop), group=member.group, board=member.board)
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
    processes = [multiprocessing.get_context("fork").Process(target=work, args=(rank,), daemon=True) for rank in others]
    try:
        for process in processes:
            process.start()
        context = context_of(run, 0)
        train(context)
        for process in processes:
            process.join(PATIENT_SECONDS)
        assert [process.exitcode for process in processes] == [0] * len(processes)
    finally:
        for process in processes:
            process.kill()
    folders = [run.root.parent / f"{run.root.name}-replica-{rank}" for rank in others]
    return context, [np.load(folder / "output" / "final.npy") for folder in folders]
