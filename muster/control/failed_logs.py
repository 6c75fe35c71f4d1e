"""The last log lines of failed attempts in the settlement: they show why, and decide nothing."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.run.attempt import Attempt
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
    for unread in to_read({replica.rank: replica.attempts for replica in replicas}):
        if allowed.is_spent:
            break
        found[unread.rank, unread.attempt] = _read(run, unread, _of(unread, replicas))
    return [_with_lines(replica, found) for replica in replicas]


def _of(unread: Unread, replicas: Sequence[ReplicaResult]) -> Attempt:
    attempts = (one for replica in replicas if replica.rank == unread.rank for one in replica.attempts)
    return next(one for one in attempts if one.attempt == unread.attempt)


def _read(run: ActiveRun, unread: Unread, attempt: Attempt) -> tuple[str, ...]:
    spec = run.plan.spec.of_rank(unread.rank)
    try:
        written = run.backends.last_lines(spec, attempt, LINES)
    except Exception:
        logger.warning("the log of a job is left out of the result", extra={"job": unread.job}, exc_info=True)
        return ()
    return kept_lines(written, spec.environment)


def _with_lines(replica: ReplicaResult, found: dict[tuple[int, int], tuple[str, ...]]) -> ReplicaResult:
    if not any((replica.rank, one.attempt) in found for one in replica.attempts):
        return replica
    attempts = (
        one.model_copy(update={"last_lines": found.get((replica.rank, one.attempt), one.last_lines)})
        for one in replica.attempts
    )
    return replica.model_copy(update={"attempts": tuple(attempts)})
