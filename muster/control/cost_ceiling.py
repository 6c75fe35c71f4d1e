"""The spending of a run that has a cost ceiling. A run without one causes no requests here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import Attempt
from muster.contract.run.run_cost import (
    Rented,
    billed_usd,
    egress_usd,
    end_mark,
    held_instances,
    instance_seconds,
    launch_mark,
    reached_mark,
    spent_usd,
    usd_of_ended,
    usd_so_far,
)
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.described_job import described
from muster.control.jobs import PlaceSilentError
from muster.control.round_notes import newest_commit
from muster.control.runtime import clock


def note_launch(replica: ActiveReplica, attempt: Attempt) -> None:
    """Record that the attempt's job exists: it costs money since the first such call, at the type of the last one."""
    if _ceiling(replica.run) is not None:
        mark = launch_mark(replica.run.documents.layout, replica.rank, attempt.attempt, _rented(replica, attempt))
        replica.run.documents.store.create(mark, b"{}")


def note_end(replica: ActiveReplica, ended: Attempt) -> None:
    """Record the cost of an attempt that has ended; while its job may still run, the launch mark counts."""
    mark = None if _ceiling(replica.run) is None else _end_mark(replica, ended)
    if mark is not None:
        replica.run.documents.store.create(mark, b"{}")


def with_bill(replica: ActiveReplica, ended: Attempt) -> Attempt:
    """`ended` with its billable seconds and its type; where the run has a ceiling, SageMaker is asked for them.

    Without them where its place does not answer, where it is gone, and where the answer lags behind its end: then its
    times say what it has cost, about.
    """
    if _ceiling(replica.run) is None or ended.billable_seconds is not None or ended.cluster is not None:
        return ended
    if ended.where is not None and ended.where.may_run:
        return ended  # its bill is not known before its place answers
    try:
        job = replica.jobs_of(ended).find(ended.job)
    except PlaceSilentError:
        return ended
    if job is None:
        return ended if ended.has_proven_job else ended.model_copy(update={"billable_seconds": 0})
    return described(ended, job)


def reached_ceiling(run: ActiveRun, end_mark_to_come: str | None = None) -> str | None:
    """The reason against reruns, where the ceiling is reached. None where it is not, or there is none.

    `end_mark_to_come` is the mark of an ended attempt that is not written yet, and counts.
    """
    ceiling = _ceiling(run)
    if ceiling is None:
        return None
    marks = run.documents.store.listed(run.documents.layout.spent)
    if end_mark_to_come is not None:
        marks.append((end_mark_to_come, clock.utc_now()))
    # The records are read only where the marks, which count from the launch on, would forbid a rerun.
    if _spent(run, marks) < ceiling or (spent := _spent(run, marks, _so_far(run))) < ceiling:
        return None
    prices = "" if run.plan.region == SHIPPED_PRICES.region else f", at prices of {SHIPPED_PRICES.region}"
    return f"the cost ceiling of ${ceiling:,.2f} is reached (about ${spent:,.2f} spent{prices})"


def note_reached(run: ActiveRun) -> None:
    """Record that a replica was lost because the ceiling was reached: bills may be less than the estimates."""
    run.documents.store.create(reached_mark(run.documents.layout), b"{}")


def ended_at_ceiling(run: ActiveRun) -> bool:
    """Whether a replica was lost because of the ceiling, or the run, which has ended, has cost as much."""
    ceiling = _ceiling(run)
    if ceiling is None:
        return False
    marks = run.documents.store.listed(run.documents.layout.spent)
    return reached_mark(run.documents.layout) in dict(marks) or _spent(run, marks) >= ceiling


def reached_ceiling_with(replica: ActiveReplica, ended: Attempt) -> str | None:
    """The same with the cost of `ended`, an attempt of `replica` whose mark is not written yet."""
    return reached_ceiling(replica.run, _end_mark(replica, ended))


def _spent(
    run: ActiveRun, marks: Sequence[tuple[str, datetime]], so_far: Mapping[tuple[int, int], float] | None = None
) -> float:
    """Dollars for instances, by the marks and what is known better (`so_far`), and for traffic between places."""
    last = None if run.plan.spec.places is None else newest_commit(run)
    egress = None if last is None else egress_usd(run.plan, last.round, last.crossed_bytes)
    return spent_usd(marks, clock.utc_now(), run.plan.spec.prices, so_far) + (egress or 0.0)


def _so_far(run: ActiveRun) -> dict[tuple[int, int], float]:
    """What running attempts have cost that SageMaker has told of: one that waits for an instance costs nothing."""
    spec, now = run.plan.spec, clock.now()
    found: dict[tuple[int, int], float] = {}
    for entry in run.documents.entries(spec.replicas):
        current, instances = entry.attempts[-1], spec.of_rank(entry.rank).instance_count
        if entry.decision is None and current.has_proven_job:
            usd = usd_so_far(current, instances, now, spec.prices.usd_per_hour)
            found |= {} if usd is None else {(entry.rank, current.attempt): usd}
    return found


def _ceiling(run: ActiveRun) -> float | None:
    return run.plan.spec.cost_ceiling_usd


def _end_mark(replica: ActiveReplica, ended: Attempt) -> str | None:
    if ended.where is not None and ended.where.may_run:
        return None
    until = ended.ended_at or clock.now()
    if ended.cluster is None:
        usd = usd_of_ended([ended], replica.spec, until) or 0.0
    else:
        seconds = instance_seconds(ended, replica.spec.instance_count, until)
        usd = billed_usd(Rented(_rented(replica, ended).instance_type), seconds, replica.spec.prices)
    return end_mark(replica.run.documents.layout, replica.rank, ended.attempt, usd)


def _rented(replica: ActiveReplica, attempt: Attempt) -> Rented:
    """The attempt's instances. Until SageMaker has chosen their type, the dearest possible one: the ceiling holds.

    So for an elastic replica the most that it may have, until its end says how many it had.
    """
    spec = replica.spec
    return Rented(attempt.instance_type or spec.prices.dearest(spec.instance_types), held_instances(spec))
