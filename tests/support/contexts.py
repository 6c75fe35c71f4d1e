"""What a trainer receives, for replicas that are threads over a local directory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from muster.replica.context import Context
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous, Trained
from tests.support.peers import RUN, Run, run_all


def context_of(run: Run, rank: int = 0, attempt: int = 1, metrics: Metrics | None = None) -> Context:
    """The context of one replica; its folders are below the run's directory, beside the rendezvous."""
    folders = run.root.parent / f"{run.root.name}-replica-{rank}"
    for name in ("checkpoints", "output", "model"):
        (folders / name).mkdir(parents=True, exist_ok=True)
    metrics, stop = metrics or Metrics(), threading.Event()
    round_context = run.context(stop=stop)
    return Context(
        run=RUN,
        rank=rank,
        world_size=run.replicas,
        attempt=attempt,
        incarnation=1,
        group=InnerGroup(),
        rendezvous=Rendezvous.open(round_context, rank, attempt, metrics),
        metrics=metrics,
        stop=stop,
        input_dir=Path(folders / "input"),
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
