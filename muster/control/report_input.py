"""What the page of a settled run shows: its result, what the records remember of the way there, and its rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit
from muster.contract.run.record import NOT_CREATED, Attempt
from muster.contract.run.result import AttemptResult, ReplicaResult, Result
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import PARALLEL, in_parallel
from muster.control.runtime.time_budget import Deadline
from muster.report.make import Sight, make_page
from muster.report.page_model import AttemptView, ReplicaView
from muster.report.render import render
from muster.report.rounds import RoundTable, chosen

_COMMIT = re.compile(r"\d{8}\.json")
_ROUND_KEYS_MAX = 1_000_000
# A member of a commit has at most 32 metrics with names of 48 characters.
_MEMBER_BYTES, _COMMIT_BYTES = 2_600, 65_536


def drawn_page(run: ActiveRun, result: Result, deadline: Deadline) -> bytes:
    """The page; rounds that are not read at the `deadline` are left out."""
    return render(make_page(_sight(run, result, deadline)))


def _sight(run: ActiveRun, result: Result, deadline: Deadline) -> Sight:
    return Sight(
        plan=run.plan,
        state=result.verdict.value,
        reason=result.reason,
        made_at=clock.now(),
        ended_at=result.settled_at,
        replicas=in_parallel(lambda replica: _replica(run, replica), result.replicas),
        rounds=_rounds(run, deadline).view(),
        parameters_identical=result.parameters_identical,
    )


def _replica(run: ActiveRun, replica: ReplicaResult) -> ReplicaView:
    """The replica of the settlement, with what its record remembers of the way there."""
    try:
        record = run.documents.record(replica.rank).record
    except DocumentError:
        record = None
    known = {attempt.attempt: attempt for attempt in record.attempts} if record else {}
    return ReplicaView(
        rank=replica.rank,
        state=replica.outcome.value,
        attempts=tuple(_attempt(attempt, known.get(attempt.attempt)) for attempt in replica.attempts),
        round=replica.round,
        metrics=replica.metrics,
        checkpoint_uri=replica.checkpoint_uri,
        artifacts=replica.artifacts,
        problem=replica.problem,
    )


def _attempt(attempt: AttemptResult, known: Attempt | None) -> AttemptView:
    return AttemptView(
        attempt=attempt.attempt,
        job=attempt.job if attempt.secondary != NOT_CREATED else None,
        launched_at=attempt.launched_at,
        ended_at=attempt.ended_at,
        status=attempt.status,
        secondary=attempt.secondary,
        failure_class=attempt.failure_class,
        reason=attempt.reason,
        history=known.history if known else (),
    )


def _rounds(run: ActiveRun, deadline: Deadline) -> RoundTable:
    table = RoundTable(run.plan.spec.replicas, run.plan.created_at)
    keys = chosen(list(_commit_keys(run, deadline)))
    for begin in range(0, len(keys), PARALLEL):
        if deadline.passed:
            logger.warning("rounds left out of the page", extra={"rounds": len(keys) - begin})
            break
        for body in in_parallel(lambda key: _read(run, key), keys[begin : begin + PARALLEL]):
            if body is not None:
                _add(table, body)
    return table


def _commit_keys(run: ActiveRun, deadline: Deadline) -> Iterator[str]:
    keys = takewhile(lambda _: not deadline.passed, run.documents.store.keys(run.plan.meeting.commits))
    names = (key for key in keys if _COMMIT.fullmatch(key.removeprefix(run.plan.meeting.commits)))
    return (key for _, key in zip(range(_ROUND_KEYS_MAX), names, strict=False))


def _read(run: ActiveRun, key: str) -> bytes | None:
    return run.documents.store.head(key, _COMMIT_BYTES + _MEMBER_BYTES * run.plan.spec.replicas)


def _add(table: RoundTable, body: bytes) -> None:
    try:
        table.add(Commit.from_json(body, "commit"))
    except DocumentError:
        logger.warning("a commit cannot be read: the page goes without it")
