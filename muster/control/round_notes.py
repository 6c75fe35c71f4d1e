"""What the result of a run says of its rounds: the last commit, early finishes, and the findings of the watch.

Replicas wrote all of it. It adds words to the result, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice

from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit, Finish, commit_bytes_max, last_round, parse_commit
from muster.contract.run.finding import (
    FINDING_BYTES_MAX,
    FINDINGS_READ_MAX,
    Finding,
    FindingDocument,
    findings_of,
    is_finding,
)
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Verdict
from muster.control.documents import PlannedRun
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import in_parallel

_NAMED_MAX = 3  # in the run's reason; the replicas themselves say the rest


def newest_commit(run: PlannedRun) -> Commit | None:
    """The commit of the run's last round; None where there is none, or it cannot be read."""
    return last_commit(run, committed_rounds(run))


def committed_rounds(run: PlannedRun) -> int:
    """The number of the run's last round, 0 if there is none."""
    return _rounds_at(run, run.plan.shared_layout)


def with_own_rounds(run: PlannedRun, replicas: Sequence[ReplicaResult]) -> list[ReplicaResult]:
    """The replicas of a sweep, each with the number of its own last round."""

    def with_own(replica: ReplicaResult) -> ReplicaResult:
        rounds = _rounds_at(run, run.plan.rounds_layout(replica.rank))
        return replica.model_copy(update={"committed_rounds": rounds})

    return in_parallel(with_own, replicas)


def _rounds_at(run: PlannedRun, layout: RunLayout) -> int:
    return last_round(lambda number: run.documents.store.exists(layout.commit(number)))


def last_commit(run: PlannedRun, rounds: int) -> Commit | None:
    """The commit of the run's last round, `rounds`; None where there is none, or it cannot be read."""
    if not rounds:
        return None
    key = run.plan.shared_layout.commit(rounds)
    store = run.documents.store
    try:
        body = store.read_bounded(key, commit_bytes_max(run.plan.spec.replicas))
        return parse_commit(body or b"", store.uri(key))
    except DocumentError as error:
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
    """The reason of a verdict, who finished before the last round (`rounds`), and who did not return. Pure."""
    early = {item.rank: item.finished_early for item in replicas if item.finished_early is not None}
    exited = {item.rank: f"ended: {item.ended}" for item in replicas if item.ended and item.rank not in early}
    last = [f"the last round was {rounds}"] if early else []
    return "; ".join([reason, *last, *_named(early, "finished early"), *_named(exited, "ended so")])


def _named(words: Mapping[int, str], what: str) -> list[str]:
    named = [f"replica {rank} {word}" for rank, word in list(words.items())[:_NAMED_MAX]]
    return named + ([f"and {len(words) - _NAMED_MAX} more {what}"] if len(words) > _NAMED_MAX else [])


def with_goal_note(reason: str, verdict: Verdict, last: Commit | None) -> str:
    """The reason of a verdict. Of a success also that trainers expect rounds after `last`, the last one. Pure.

    A trainer may return early, because its loss no longer falls: that is no failure.
    """
    expected = None if last is None else last.expected_rounds
    if verdict is not Verdict.SUCCEEDED or last is None or expected is None or last.round >= expected:
        return reason
    return f"{reason}; the training ended with round {last.round:,} of the {expected:,} that its trainers expect"


def find_findings(run: PlannedRun) -> tuple[Finding, ...]:
    """The findings of this run, by round; those of many that come first in the bucket. Empty if they cannot be read."""
    try:
        return _read_findings(run)
    except Exception:
        logger.exception("the findings are left out of the result")
        return ()


def _read_findings(run: PlannedRun) -> tuple[Finding, ...]:
    plan = run.plan
    if not plan.spec.trains_apart:
        return _findings_at(run, plan.shared_layout, plan.spec.replicas)
    by_rank = in_parallel(lambda rank: _findings_at(run, plan.rounds_layout(rank), 1), range(plan.spec.replicas))
    found = [one.model_copy(update={"rank": rank}) for rank, some in enumerate(by_rank) for one in some]
    return tuple(sorted(found, key=lambda finding: finding.round)[:FINDINGS_READ_MAX])


def _findings_at(run: PlannedRun, layout: RunLayout, replicas: int) -> tuple[Finding, ...]:
    """Those that so many replicas, which train together, have written at `layout`."""
    store = run.documents.store
    listed = islice(store.keys(f"{layout.commits}{findings_of(run.plan.run)}"), FINDINGS_READ_MAX)
    keys = [key for key in listed if is_finding(key.removeprefix(layout.commits))]
    found: list[Finding] = []
    for key in keys:
        try:
            body = store.read_bounded(key, FINDING_BYTES_MAX) or b""
            document = FindingDocument.from_json(body, store.uri(key))
        except DocumentError as error:
            logger.warning("a finding is left out of the result", extra={"error": str(error)})
            continue
        if document.run == run.plan.run and document.finding.rank < replicas:
            found.append(document.finding)
    return tuple(sorted(found, key=lambda finding: finding.round))
