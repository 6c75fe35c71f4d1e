"""What looks at a job on a cluster add to the record of its attempt. Pure.

No event carries the history of such a job, as SageMaker's events do: it consists of what each look has found.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.run.attempt import MESSAGE_MAX, Transition
from muster.contract.text import shortened
from muster.options.hyperpod.contract.job_state import PENDING, RESTARTING, TRAINING, JobState

if TYPE_CHECKING:
    from collections.abc import Iterator

    from muster.contract.run.attempt import Attempt
    from muster.contract.timestamps import Timestamp

# As for training jobs: repeated restarts must not let the record grow without limit.
HISTORY_MAX = 200


def with_state(attempt: Attempt, state: JobState, now: Timestamp) -> Attempt:
    """`attempt` with what a look at its job has found at `now`; the same state twice adds nothing."""
    cluster = attempt.cluster
    if cluster is None:
        return attempt
    seen = cluster.model_copy(
        update={
            "restarts": max(cluster.restarts, state.restarts),
            "instances": cluster.instances if state.instances is None else state.instances,
        }
    )
    history = attempt.history
    for step in _steps(attempt, state, now):
        # Clocks differ: the history is in the order of the looks.
        at = max(step.at, history[-1].at) if history else step.at
        history = (*history, step.model_copy(update={"at": at, "message": shortened(step.message, MESSAGE_MAX)}))
    return attempt.model_copy(update={"cluster": seen, "history": history[-HISTORY_MAX:]})


def _steps(attempt: Attempt, state: JobState, now: Timestamp) -> Iterator[Transition]:
    """The steps since the last look."""
    before = attempt.history[-1].secondary if attempt.history else ""
    known = attempt.cluster.restarts if attempt.cluster else 0
    has_trained = any(step.secondary == TRAINING for step in attempt.history)
    if state.status.is_terminal and state.started_at is not None and not has_trained:
        # No look has come between its start and its end.
        before = TRAINING
        yield Transition(at=state.started_at, secondary=TRAINING, instances=state.instances)
    if state.restarts > known and RESTARTING not in {before, state.secondary}:
        count = state.restarts - known
        times = f", {count} times" if count > 1 else ""
        words = state.message or f"the operator has started the pods again{times}"
        yield Transition(at=state.changed_at or now, secondary=RESTARTING, message=words)
        before = RESTARTING
    scaled = _scaled(attempt, state)
    if state.secondary != before:
        words = scaled or state.message
        training = state.instances if state.secondary == TRAINING else None
        yield Transition(at=state.changed_at or now, secondary=state.secondary, message=words, instances=training)
    elif state.secondary == PENDING and state.message and state.message != attempt.history[-1].message:
        # Why it waits, such as an image that cannot be pulled.
        yield Transition(at=now, secondary=PENDING, message=state.message)
    elif scaled:
        yield Transition(at=now, secondary=state.secondary, message=scaled, instances=state.instances)


def _scaled(attempt: Attempt, state: JobState) -> str:
    """Words about a change of the number of instances that train; empty where it has not changed."""
    counts = [step.instances for step in attempt.history if step.instances is not None]
    if state.secondary != TRAINING or not counts or state.instances in {None, counts[-1]}:
        return ""
    return f"scaled from {counts[-1]} to {state.instances} instances"
