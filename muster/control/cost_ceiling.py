"""Keeping account of a run that has a cost ceiling. A run without one costs no request here."""

from __future__ import annotations

from datetime import UTC, datetime

from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.spending import attempt_usd, end_mark, launch_mark, spent_usd
from muster.control.active_run import ActiveRun


def note_launch(run: ActiveRun, rank: int, attempt: int, instance_type: str | None) -> None:
    """The attempt's job exists: from now on it costs money. `instance_type` is None where SageMaker chooses."""
    if run.plan.spec.cost_ceiling_usd is None:
        return
    mark = launch_mark(run.documents.layout, rank, attempt, instance_type or _dearest(run, rank))
    run.documents.store.create(mark, b"{}")


def note_end(run: ActiveRun, rank: int, attempt: int) -> None:
    """The attempt is over: its job tells what is billed."""
    if run.plan.spec.cost_ceiling_usd is None:
        return
    job = run.jobs.find(str(run.job_name(rank, attempt)))
    usd = attempt_usd(job.instance_type or _dearest(run, rank), job.billable_seconds) if job else 0.0
    run.documents.store.create(end_mark(run.documents.layout, rank, attempt, usd), b"{}")


def spent_ceiling(run: ActiveRun) -> str | None:
    """Why nothing is launched again: the ceiling is reached. None where it is not, or there is none."""
    ceiling = run.plan.spec.cost_ceiling_usd
    if ceiling is None:
        return None
    spent = spent_usd(run.documents.store.listed(run.documents.layout.spent), datetime.now(UTC))
    if spent < ceiling:
        return None
    return f"the cost ceiling of ${ceiling:,.2f} is reached (about ${spent:,.2f} spent)"


def _dearest(run: ActiveRun, rank: int) -> str:
    """Among preferences SageMaker chooses: the account errs to the side of the user's purse."""
    types = run.plan.spec.of_rank(rank).instance_types
    return max(types, key=lambda name: SHIPPED_PRICES.usd_per_hour.get(name, 0.0))
