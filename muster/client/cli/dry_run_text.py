"""A dry run in words."""

from __future__ import annotations

import json
from collections.abc import Iterator

from muster.client.launch.dry_run import DryRun
from muster.client.launch.estimate import Quota


def dry_run_text(dry: DryRun) -> str:
    """What would be sent, once per group of ranks that differ in nothing else; quota; cost."""
    return "\n".join(_lines(dry))


def _lines(dry: DryRun) -> Iterator[str]:
    names = [request["TrainingJobName"] for request in dry.requests]
    count = f"{len(names)} training job{'s' if len(names) > 1 else ''}"
    yield f"{count}: {names[0]} to {names[-1]}." if len(names) > 1 else f"{count}: {names[0]}."
    yield "Nothing was sent; what stands in <brackets>, and with it the plan's digest, is known at the launch."
    yield from (f"Note: {remark}." for remark in dry.remarks)
    if dry.source is not None:
        yield f"Source: {dry.source.files} files, {len(dry.source.tar):,} bytes, as {dry.source.key}; not uploaded."
    yield "Quota needed:"
    yield from (f"  {_quota(quota)}" for quota in dry.quotas)
    yield from _cost(dry)
    for group in dry.groups:
        first = group.ranks[0]
        others = f" (ranks {group.text} differ in the rank only)" if len(group.ranks) > 1 else ""
        yield f"The request of rank {first}{others}:"
        yield json.dumps(dry.requests[first], indent=2)


def _quota(quota: Quota) -> str:
    fallbacks = f" ({quota.for_fallbacks} more if every fallback is taken)" if quota.for_fallbacks else ""
    return f"{quota.name}: {quota.instances}{fallbacks}"


def _cost(dry: DryRun) -> Iterator[str]:
    cost, prices = dry.cost, dry.prices
    if cost.per_hour is None or cost.attempt_ceiling is None or cost.ceiling is None:
        yield f"Cost: not known: the price table of {prices.as_of} has no {', '.join(cost.unpriced)}."
        return
    yield f"Cost: about ${cost.per_hour:,.2f} per hour with all replicas at work."
    yield f"  At most ${cost.attempt_ceiling:,.2f} for one attempt of each, ${cost.ceiling:,.2f} with all its reruns."
    yield (
        f"  An estimate for instances alone, by on-demand prices of {prices.region} as of {prices.as_of} "
        f"({prices.source}); spot costs less, other regions differ."
    )
