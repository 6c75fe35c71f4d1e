"""From what somebody found of a run to what its page tells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from muster.contract.aws.failures import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.names import run_job_prefix
from muster.contract.run.plan import Plan
from muster.report.cost import attempt_usd
from muster.report.links import console_links
from muster.report.page_model import AttemptView, Page, ReplicaView, RoundsView
from muster.report.words import facts, verdict

# Long reasons of many replicas would be most of the page; the console has them whole.
_REASONS_MAX = 200_000  # characters, all attempts together
_REASON_MIN = 120
_HIDDEN = "(not shown)"
_SHORTAGES = {FailureClass.CAPACITY, FailureClass.QUOTA}


@dataclass(frozen=True)
class Sight:
    """A run as it was found at one moment."""

    plan: Plan
    state: str
    reason: str
    made_at: str
    ended_at: str | None
    replicas: Sequence[ReplicaView]
    rounds: RoundsView
    parameters_identical: bool | None = None
    continued_by: str | None = None


def make_page(sight: Sight) -> Page:
    """The page of a run. Pure."""
    plan, until = sight.plan, sight.ended_at or sight.made_at
    replicas = _shortened([_priced(replica, plan, until) for replica in sight.replicas])
    prices = f"on-demand prices of {SHIPPED_PRICES.region}, {SHIPPED_PRICES.as_of}"
    return Page(
        run=plan.run,
        state=sight.state,
        verdict=verdict(sight.state, sight.reason, replicas, sight.rounds, sight.parameters_identical),
        made_at=sight.made_at,
        started_at=plan.created_at,
        ended_at=sight.ended_at,
        facts=tuple(
            facts(
                replicas,
                sight.rounds,
                started_at=plan.created_at,
                until=until,
                prices=prices,
                deadline_seconds=plan.spec.deadline_seconds,
                ceiling_usd=plan.spec.cost_ceiling_usd,
                parent=plan.lineage.parent if plan.lineage else None,
                continued_by=sight.continued_by,
            )
        ),
        links=console_links(plan.execution_arn, run_job_prefix(plan.place.job_prefix, plan.run)),
        replicas=tuple(replicas),
        rounds=sight.rounds,
        plan=_without_environment(plan.model_dump(mode="json", exclude_none=True)),
    )


def _priced(replica: ReplicaView, plan: Plan, until: str) -> ReplicaView:
    spec = plan.spec.of_rank(replica.rank)

    def priced(attempt: AttemptView) -> AttemptView:
        # As requests are made: after each shortage the next fallback.
        short = sum(one.failure_class in _SHORTAGES for one in replica.attempts if one.attempt < attempt.attempt)
        requested = spec.instance_types[short % len(spec.instance_types)] if attempt.job else None
        chosen = attempt.instance_type or requested
        typed = attempt.model_copy(update={"instance_type": chosen})
        usd = attempt_usd(typed, spec.instance_count, until, SHIPPED_PRICES.usd_per_hour)
        return typed.model_copy(update={"usd": None if usd is None else round(usd, 6)})

    return replica.model_copy(update={"attempts": tuple(map(priced, replica.attempts))})


def _shortened(replicas: list[ReplicaView]) -> list[ReplicaView]:
    attempts = [attempt for replica in replicas for attempt in replica.attempts]
    if sum(len(attempt.reason) for attempt in attempts) <= _REASONS_MAX:
        return replicas
    most = max(_REASON_MIN, _REASONS_MAX // len(attempts))

    def cut(attempt: AttemptView) -> AttemptView:
        long = len(attempt.reason) > most
        return attempt.model_copy(update={"reason": f"{attempt.reason[: most - 1]}…"}) if long else attempt

    return [replica.model_copy(update={"attempts": tuple(map(cut, replica.attempts))}) for replica in replicas]


def _without_environment(value: Any) -> Any:
    """The plan without the values of environments: pages are passed on, and people keep secrets there."""
    if isinstance(value, Mapping):
        return {
            key: dict.fromkeys(item, _HIDDEN)
            if key == "environment" and isinstance(item, Mapping)
            else _without_environment(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_without_environment(item) for item in value]
    return value
