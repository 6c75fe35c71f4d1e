"""What a run needs and may cost at most, before anything of it exists. Pure: a function of the spec and prices."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from muster.contract.aws.failures import FailureClass
from muster.contract.names import ATTEMPT_MAX
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import Spec

# An attempt that ended in one of these had no instance, and nothing to pay for.
_UNBILLED = {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLE}
_HOUR = 3_600


@dataclass(frozen=True)
class Quota:
    """A quota as Service Quotas names it, and how much of it the run needs."""

    name: str
    instances: int
    for_fallbacks: int = 0  # so many more if every replica had to take a fallback of this type


@dataclass(frozen=True)
class Cost:
    """Dollars, for instances alone. None: some type has no price in the table."""

    per_hour: float | None  # all replicas at once, on their first choice
    attempt_ceiling: float | None  # one attempt of every replica, on its dearest type, to its time limit
    ceiling: float | None  # the same with every rerun that the budgets allow
    unpriced: tuple[str, ...]


def quotas(ranks: Iterable[Spec]) -> list[Quota]:
    """What the run needs of each quota; `ranks` are the specs as they hold for each rank."""
    needed: Counter[str] = Counter()
    fallbacks: Counter[str] = Counter()
    for spec in ranks:
        usage = "spot training job usage" if spec.spot else "training job usage"
        first, *others = spec.instance_types
        # SageMaker wants quota for every type among preferences, Muster's fallbacks only when their turn comes.
        at_once = spec.instance_types if spec.instance_preferences is not None else (first,)
        needed.update(f"{name} for {usage}" for name in at_once)
        if spec.instance_preferences is None:
            fallbacks.update(f"{name} for {usage}" for name in others)
        if spec.keep_alive_period_in_seconds:
            needed.update(f"{name} for training warm pool usage" for name in at_once)
    return [Quota(name, needed[name], fallbacks[name]) for name in sorted({*needed, *fallbacks})]


def cost(ranks: Iterable[Spec], usd_per_hour: Mapping[str, float]) -> Cost:
    """The estimate for the specs of all ranks. Spot is counted as on demand, which it never exceeds."""
    specs = list(ranks)
    unpriced = sorted({name for spec in specs for name in spec.instance_types if name not in usd_per_hour})
    if unpriced:
        return Cost(None, None, None, tuple(unpriced))
    attempts = [_attempt_ceiling(spec, usd_per_hour) for spec in specs]
    return Cost(
        per_hour=sum(usd_per_hour[spec.instance_types[0]] for spec in specs),
        attempt_ceiling=sum(attempts),
        ceiling=sum(ceiling * _billed_attempts(spec) for ceiling, spec in zip(attempts, specs, strict=True)),
        unpriced=(),
    )


def _attempt_ceiling(spec: Spec, usd_per_hour: Mapping[str, float]) -> float:
    # RetryStrategy's retries are within the limit of the runtime; a warm pool is billed after the job.
    seconds = spec.max_runtime_seconds + (spec.keep_alive_period_in_seconds or 0)
    return max(usd_per_hour[name] for name in spec.instance_types) * seconds / _HOUR


def _billed_attempts(spec: Spec) -> int:
    reruns = sum(
        spec.budget(failure_class).max_reruns for failure_class in DEFAULT_BUDGETS if failure_class not in _UNBILLED
    )
    # A run that is followed by others brings its budgets anew with each.
    return min(ATTEMPT_MAX, 1 + reruns) * (1 + (spec.rerun.max if spec.rerun else 0))
