"""The input for the page of a settled run: its result, the history in the records, and its rounds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import takewhile

from muster.contract.errors import DocumentError
from muster.contract.run.commit import Commit
from muster.contract.run.result import ReplicaResult, Result
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import PARALLEL, in_parallel
from muster.control.runtime.time_budget import TimeBudget
from muster.report.page_contents import PageInput, make_page
from muster.report.page_html import render
from muster.report.page_model import ReplicaView
from muster.report.rounds import RoundTable, chosen

_COMMIT = re.compile(r"\d{8}\.json")
_ROUND_KEYS_MAX = 1_000_000
# A member of a commit has at most 32 metrics with names of 48 characters.
_MEMBER_BYTES, _COMMIT_BYTES = 2_600, 65_536


def drawn_page(run: ActiveRun, result: Result, budget: TimeBudget) -> bytes:
    """The page as HTML; rounds that cannot be read within the budget are left out."""
    return render(make_page(_page_input(run, result, budget)))


def _page_input(run: ActiveRun, result: Result, budget: TimeBudget) -> PageInput:
    return PageInput(
        plan=run.plan,
        state=result.verdict.value,
        reason=result.reason,
        made_at=clock.now(),
        ended_at=result.settled_at,
        replicas=in_parallel(lambda replica: _replica(run, replica), result.replicas),
        rounds=_rounds(run, budget).view(),
        parameters_identical=result.parameters_identical,
    )


def _replica(run: ActiveRun, replica: ReplicaResult) -> ReplicaView:
    """The replica of the result, with the history that its record holds."""
    try:
        record = run.documents.record(replica.rank).record
    except DocumentError:
        record = None
    known = {attempt.attempt: attempt for attempt in record.attempts} if record else {}
    return ReplicaView(
        rank=replica.rank,
        state=replica.outcome.value,
        attempts=tuple(
            # Only the history: settling may have looked at a job whose end the record does not hold.
            attempt.model_copy(update={"history": known[attempt.attempt].history})
            if attempt.attempt in known
            else attempt
            for attempt in replica.attempts
        ),
        round=replica.round,
        metrics=replica.metrics,
        checkpoint_uri=replica.checkpoint_uri,
        artifacts=replica.artifacts,
        problem=replica.problem,
        finished_early=replica.finished_early,
    )


def _rounds(run: ActiveRun, budget: TimeBudget) -> RoundTable:
    table = RoundTable(run.plan.spec.replicas, run.plan.created_at)
    keys = chosen(list(_commit_keys(run, budget)))
    for begin in range(0, len(keys), PARALLEL):
        if budget.is_spent:
            logger.warning("rounds left out of the page", extra={"rounds": len(keys) - begin})
            break
        for body in in_parallel(lambda key: _read(run, key), keys[begin : begin + PARALLEL]):
            if body is not None:
                _add(table, body)
    return table


def _commit_keys(run: ActiveRun, budget: TimeBudget) -> Iterator[str]:
    keys = takewhile(lambda _: not budget.is_spent, run.documents.store.keys(run.plan.shared_layout.commits))
    names = (key for key in keys if _COMMIT.fullmatch(key.removeprefix(run.plan.shared_layout.commits)))
    return (key for _, key in zip(range(_ROUND_KEYS_MAX), names, strict=False))


def _read(run: ActiveRun, key: str) -> bytes | None:
    return run.documents.store.head(key, _COMMIT_BYTES + _MEMBER_BYTES * run.plan.spec.replicas)


def _add(table: RoundTable, body: bytes) -> None:
    try:
        table.add(Commit.from_json(body, "commit"))
    except DocumentError:
        logger.warning("a commit cannot be read and is left out of the page")
