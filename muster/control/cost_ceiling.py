"""The spending of a run that has a cost ceiling. A run without one causes no requests here."""

from __future__ import annotations

from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import Attempt
from muster.contract.run.spending import attempt_usd, end_mark, launch_mark, spent_usd
from muster.control.active_run import ActiveRun
from muster.control.runtime import clock


def note_launch(run: ActiveRun, rank: int, attempt: Attempt) -> None:
    """Record that the attempt's job exists and costs money from now on."""
    if run.plan.spec.cost_ceiling_usd is None:
        return
    mark = launch_mark(run.documents.layout, rank, attempt.attempt, _priced_type(run, rank, attempt))
    run.documents.store.create(mark, b"{}")


def note_end(run: ActiveRun, rank: int, attempt: Attempt) -> None:
    """Record the cost of the attempt, which has ended."""
    if run.plan.spec.cost_ceiling_usd is not None:
        run.documents.store.create(_end_mark(run, rank, attempt), b"{}")


def with_billed_time(run: ActiveRun, rank: int, ended: Attempt) -> Attempt:
    """`ended` with its billable seconds; where the run has a ceiling, SageMaker is asked for them."""
    if run.plan.spec.cost_ceiling_usd is None or ended.billable_seconds is not None:
        return ended
    job = run.jobs.find(str(run.job_name(rank, ended.attempt)))
    return ended.model_copy(update={"billable_seconds": job.billable_seconds if job else 0})


def reached_ceiling(run: ActiveRun, ended: tuple[int, Attempt] | None = None) -> str | None:
    """The reason against reruns, where the ceiling is reached. None where it is not, or there is none.

    `ended` is a rank and its ended attempt, whose cost counts although its mark is not written yet.
    """
    ceiling = run.plan.spec.cost_ceiling_usd
    if ceiling is None:
        return None
    now = clock.utc_now()
    marks = run.documents.store.listed(run.documents.layout.spent)
    if ended is not None:
        marks.append((_end_mark(run, *ended), now))
    spent = spent_usd(marks, now)
    if spent < ceiling:
        return None
    return f"the cost ceiling of ${ceiling:,.2f} is reached (about ${spent:,.2f} spent)"


def _end_mark(run: ActiveRun, rank: int, attempt: Attempt) -> str:
    usd = attempt_usd(_priced_type(run, rank, attempt), attempt.billable_seconds or 0)
    return end_mark(run.documents.layout, rank, attempt.attempt, usd)


def _priced_type(run: ActiveRun, rank: int, attempt: Attempt) -> str:
    """The attempt's type. Until SageMaker has chosen, the most expensive possible one, so that the ceiling holds."""
    if attempt.instance_type is not None:
        return attempt.instance_type
    types = run.plan.spec.of_rank(rank).instance_types
    return max(types, key=lambda name: SHIPPED_PRICES.usd_per_hour.get(name, 0.0))
