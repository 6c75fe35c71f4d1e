"""The input for the page of a settled run: its result, the history in the records, and its rounds."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, takewhile
from typing import NamedTuple

from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.run.commit import COMMITS_LISTED_MAX, commit_bytes_max, commit_round, parse_commit
from muster.contract.run.record import Decision, Next
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result
from muster.contract.run.seat_states import SeatRecord, SeatsView, seat_document
from muster.contract.spec.elastic import SeatLimits
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import PARALLEL, in_parallel
from muster.report.page_contents import make_page
from muster.report.page_html import render
from muster.report.page_model import PageInput, ReplicaView, RoundsView
from muster.report.rounds import RoundTable, chosen, rounds_max
from muster.report.sweep import SweepRounds, own_rounds_max


def drawn_page(run: ActiveRun, result: Result, budget: TimeBudget) -> bytes:
    """The page as HTML; rounds that cannot be read within the budget are left out."""
    return render(make_page(_page_input(run, result, budget)))


def _page_input(run: ActiveRun, result: Result, budget: TimeBudget) -> PageInput:
    shown = [one for one in result.replicas if one.attempts or one.outcome is not ReplicaOutcome.PARKED]
    return PageInput(
        plan=run.plan,
        state=result.verdict.value,
        reason=result.reason,
        made_at=clock.now(),
        ended_at=result.settled_at,
        replicas=in_parallel(lambda replica: _replica(run, replica), shown),
        rounds=_rounds(run, result, budget),
        parameters_identical=result.parameters_identical,
        model=result.model,
        model_problem=result.model_problem,
        findings=result.findings,
        seats=_seats(run, result),
    )


def _seats(run: ActiveRun, result: Result) -> SeatsView | None:
    """The seats of an elastic run at its end."""
    elastic, stored = run.plan.spec.elastic, seat_document() if run.plan.spec.elastic is not None else None
    if elastic is None or stored is None:
        return None
    records = {one.rank: SeatRecord(one.attempts, _decision(one)) for one in result.replicas if one.attempts}
    limits = SeatLimits(elastic.min, elastic.start, run.plan.spec.replicas)
    found = run.documents.store.get(stored.key(run.plan.run))
    return stored.view(None if found is None else found.body, run.plan.run, limits, records, True)


def _decision(replica: ReplicaResult) -> Decision | None:
    """Of a seat that was parked at the end."""
    if replica.outcome is not ReplicaOutcome.PARKED:
        return None
    return Decision(next=Next.RERUN, attempt=replica.attempts[-1].attempt + 1, parked=True)


def _replica(run: ActiveRun, replica: ReplicaResult) -> ReplicaView:
    """The replica of the result, with the history that its record holds. It is read once by the call that settles."""
    try:
        record = run.settled.get(replica.rank) or run.documents.record(replica.rank).record
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


def _rounds(run: ActiveRun, result: Result, budget: TimeBudget) -> RoundsView:
    replicas, unread = run.plan.spec.replicas, 0
    apart = run.plan.spec.trains_apart
    table = SweepRounds(replicas, run.plan.created_at) if apart else RoundTable(replicas, run.plan.created_at)
    keys = _own_keys(run, budget) if apart else _shared_keys(run, budget)
    for begin in range(0, len(keys), PARALLEL):
        if budget.is_spent:
            logger.warning("rounds left out of the page", extra={"rounds": len(keys) - begin})
            break
        for key, read in in_parallel(lambda key: (key, _read(run, key.key)), keys[begin : begin + PARALLEL]):
            # One after the other: of each commit as objects no more than one is in memory.
            unread += not _added(table, run.documents.store.uri(key.key), read, key.rank)
    table.add_last((replica.rank, replica.round, replica.metrics) for replica in result.replicas)
    return table.view(unread)


class _Key(NamedTuple):
    """A commit; in a sweep of one replica."""

    key: str
    rank: int | None = None


def _shared_keys(run: ActiveRun, budget: TimeBudget) -> list[_Key]:
    keys = chosen(list(_commit_keys(run, run.plan.shared_layout, budget)), rounds_max(run.plan.spec.replicas))
    return [_Key(key) for key in keys]


def _own_keys(run: ActiveRun, budget: TimeBudget) -> list[_Key]:
    """Those of each replica of a sweep, by rank."""
    most = own_rounds_max(run.plan.spec.replicas)

    def of_rank(rank: int) -> list[_Key]:
        keys = chosen(list(_commit_keys(run, run.plan.rounds_layout(rank), budget)), most)
        return [_Key(key, rank) for key in keys]

    return [key for keys in in_parallel(of_rank, range(run.plan.spec.replicas)) for key in keys]


def _commit_keys(run: ActiveRun, layout: RunLayout, budget: TimeBudget) -> Iterator[str]:
    prefix = layout.commits
    keys = takewhile(lambda _: not budget.is_spent, run.documents.store.keys(prefix))
    return (key for key in islice(keys, COMMITS_LISTED_MAX) if commit_round(key.removeprefix(prefix)) is not None)


def _read(run: ActiveRun, key: str) -> bytes | DocumentError:
    try:
        return run.documents.store.read_bounded(key, commit_bytes_max(run.plan.spec.replicas)) or b""
    except DocumentError as error:
        return error


def _added(table: RoundTable | SweepRounds, uri: str, read: bytes | DocumentError, rank: int | None) -> bool:
    """Add a commit to the table, of a sweep that of `rank`; False for one that cannot be read."""
    try:
        if isinstance(read, DocumentError):
            raise read
        commit = parse_commit(read, uri)
        table.add(commit if rank is None else commit.of_rank(rank))
    except DocumentError as error:
        logger.warning("a commit is left out of the page", extra={"error": str(error)})
        return False
    return True
