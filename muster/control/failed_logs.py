"""The last log lines of failed attempts in the settlement: they show why, and decide nothing."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.backend import Backend
from muster.contract.run.last_lines import LINES, Unread, kept_lines, to_read
from muster.contract.run.result import ReplicaResult
from muster.control.active_run import ActiveRun
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import logger

_SECONDS = 30.0


def with_last_lines(run: ActiveRun, replicas: Sequence[ReplicaResult], budget: TimeBudget) -> list[ReplicaResult]:
    """The replicas with the last lines of some of their failed attempts; of none that cannot be read in time."""
    allowed = TimeBudget.of(min(_SECONDS, budget.remaining / 4))
    found: dict[tuple[int, int], tuple[str, ...]] = {}
    # Those of other backends are read by the client alone.
    jobs = (one for one in replicas if run.plan.spec.of_rank(one.rank).backend is Backend.TRAINING_JOB)
    for unread in to_read({replica.rank: replica.attempts for replica in jobs}):
        if allowed.is_spent:
            break
        found[unread.rank, unread.attempt] = _read(run, unread)
    return [_with_lines(replica, found) for replica in replicas]


def _read(run: ActiveRun, unread: Unread) -> tuple[str, ...]:
    try:
        written = run.backends.last_lines(unread.job, LINES, unread.where)
    except Exception:
        logger.warning("the log of a job is left out of the result", extra={"job": unread.job}, exc_info=True)
        return ()
    return kept_lines(written, run.plan.spec.of_rank(unread.rank).environment)


def _with_lines(replica: ReplicaResult, found: dict[tuple[int, int], tuple[str, ...]]) -> ReplicaResult:
    if not any((replica.rank, one.attempt) in found for one in replica.attempts):
        return replica
    attempts = (
        one.model_copy(update={"last_lines": found.get((replica.rank, one.attempt), one.last_lines)})
        for one in replica.attempts
    )
    return replica.model_copy(update={"attempts": tuple(attempts)})
