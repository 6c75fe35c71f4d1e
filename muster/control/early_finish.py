"""Early finishes in the settlement: replicas whose trainers returned while others trained on.

The replicas themselves have agreed on them: the last commit of the run lists them.
"""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit, Finish, commit_bytes_max, parse_commit
from muster.contract.run.result import ReplicaOutcome, ReplicaResult
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger

_NAMED_MAX = 3  # in the run's reason; the replicas themselves say the rest


def last_commit(run: ActiveRun, rounds: int) -> Commit | None:
    """The commit of the run's last round, `rounds`; None where there is none, or it cannot be read."""
    if not rounds:
        return None
    key = run.plan.shared_layout.commit(rounds)
    store = run.documents.store
    try:
        body = store.read_bounded(key, commit_bytes_max(run.plan.spec.replicas))
        return parse_commit(body or b"", store.uri(key))
    except DocumentError as error:
        # Replicas wrote it. It only adds words to the result.
        logger.warning("early finishes and the pace are left out of the result", extra={"error": str(error)})
        return None


def with_early_finishes(replicas: Sequence[ReplicaResult], finished: Sequence[Finish]) -> list[ReplicaResult]:
    """The replicas; those that succeeded and are among `finished` say so. Pure."""
    words = {finish.rank: finish.words for finish in finished}
    return [
        replica.model_copy(update={"finished_early": words[replica.rank]})
        if replica.rank in words and replica.outcome is ReplicaOutcome.SUCCEEDED
        else replica
        for replica in replicas
    ]


def with_early_finish_note(reason: str, replicas: Sequence[ReplicaResult], rounds: int) -> str:
    """The reason of a verdict, and who finished before the last round: `rounds` is its number. Pure."""
    early = [replica for replica in replicas if replica.finished_early is not None]
    if not early:
        return reason
    named = [f"replica {replica.rank} {replica.finished_early}" for replica in early[:_NAMED_MAX]]
    more = [f"and {len(early) - _NAMED_MAX} more finished early"] if len(early) > _NAMED_MAX else []
    return "; ".join([reason, f"the last round was {rounds}", *named, *more])
