"""What a trainer receives, for replicas over a local directory that are threads of a test."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.context import Context
from muster.replica.group.group_process import GroupProcess
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.rounds.replicated_state import Trained
from muster.replica.rounds.round_context import Stops
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.local_store import LocalStore
from tests.support.peers import RUN, Run, run_all


def results_of(run: Run) -> Path:
    """Where the run leaves its model: beside its directory."""
    return run.root.parent / f"{run.root.name}-results"


def context_of(
    run: Run,
    rank: int = 0,
    attempt: int = 1,
    member: GroupProcess | None = None,
    *,
    checkpoints: CheckpointTiers | None = None,
) -> Context:
    """The context of a replica, or of a `member` of one; its folders are beside the run's directory."""
    folders = run.root.parent / f"{run.root.name}-replica-{rank}"
    for name in ("checkpoints", "output", "model"):
        (folders / name).mkdir(parents=True, exist_ok=True)
    metrics, stop, member = Metrics(), threading.Event(), member or GroupProcess()
    round_context = replace(
        run.context(stops=Stops(stop)),
        group=member.group,
        board=member.board,
    )
    outside = Outside(results=LocalStore(results_of(run)), checkpoints=checkpoints, local_states=folders / "local")
    return Context(
        run=RUN,
        rank=rank,
        world_size=run.replicas,
        attempt=attempt,
        incarnation=1,
        group=member.group,
        rendezvous=Rendezvous.open(round_context, rank, attempt, metrics, outside),
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
    found = [context.rendezvous.departure.training for context in contexts]
    assert None not in found
    return [training for training in found if training is not None]
