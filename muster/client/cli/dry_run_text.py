"""What `muster plan` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.client.recipes.recipe_values import DIGEST_SHOWN, source_lines
from muster.contract.run.sweep_values import short_names, value_text
from muster.contract.training.ranks import parse_ranks

if TYPE_CHECKING:
    from muster.client.launch.dry_run import DryRun, RankGroup
    from muster.client.launch.estimate import Cost, Quota


def dry_run_text(dry: DryRun) -> str:
    """The requests, once for each group of ranks that differ only in the rank; quota; cost."""
    return "\n".join(_dry_run_lines(dry))


def _dry_run_lines(dry: DryRun) -> Iterator[str]:
    names = [str(request["TrainingJobName"]) for request in dry.requests]
    count = f"{len(names)} training job{'s' if len(names) > 1 else ''}"
    yield f"{count}: {names[0]} to {names[-1]}." if len(names) > 1 else f"{count}: {names[0]}."
    yield "Nothing was sent. Values in <brackets>, and so the plan's digest, are known only at the launch."
    yield from (f"Note: {remark}{'' if remark.endswith('?') else '.'}" for remark in dry.remarks)
    if (source := dry.source) is not None:
        count = f"{source.files} file{'' if source.files == 1 else 's'}, {source.bytes:,} bytes"
        yield f"Source: {count} from {source.folder}, as {source.key}; not uploaded."
    if (recipe := dry.recipe) is not None:
        yield f"Recipe: {recipe.name} (family {recipe.family}), digest {recipe.digest[:DIGEST_SHOWN]}."
        yield from source_lines(recipe.sources)
    yield from _sweep_lines(dry)
    yield "Quota needed:"
    yield from (f"  {_quota(quota)}" for quota in dry.quotas)
    yield from _cost_lines(dry.cost)
    for group in dry.groups:
        ranks = [rank for part in parse_ranks(group.ranks) for rank in part]
        differ = "in the rank and the values of the sweep" if dry.sweep else "in the rank only"
        others = f" (ranks {group.ranks} differ {differ})" if len(ranks) > 1 else ""
        yield f"The request of rank {ranks[0]}{others}, {_size(group)}:"
        yield json.dumps(dry.requests[ranks[0]], indent=2)


def _sweep_lines(dry: DryRun) -> Iterator[str]:
    """What the ranks differ in, as a table."""
    if not dry.sweep:
        return
    yield "Sweep: each replica trains by itself, with its own values:"
    shown = [tuple(short_names(dry.sweep[0]).values()), *(tuple(map(value_text, own.values())) for own in dry.sweep)]
    rows = [("rank", *shown[0]), *((str(rank), *own) for rank, own in enumerate(shown[1:]))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for rank, *values in rows:
        cells = [rank.rjust(widths[0]), *(value.ljust(width) for value, width in zip(values, widths[1:], strict=True))]
        yield f"  {'  '.join(cells)}".rstrip()


def _size(group: RankGroup) -> str:
    """The instances and processes of a replica."""
    instances = "1 instance" if group.instances == 1 else f"{group.instances} instances"
    if group.processes is None:
        return instances
    if group.processes == "auto":
        return f"{instances} with one process per GPU"
    return f"{instances} with {group.processes} process{'' if group.processes == 1 else 'es'}"


def _quota(quota: Quota) -> str:
    fallbacks = f" ({quota.for_fallbacks} more if every fallback is used)" if quota.for_fallbacks else ""
    return f"{quota.name}: {quota.instances}{fallbacks}"


def _cost_lines(cost: Cost) -> Iterator[str]:
    prices = cost.prices
    if cost.per_hour is None or cost.attempt_ceiling is None or cost.ceiling is None:
        yield f"Cost: not known: the price table of {prices.as_of} has no {', '.join(cost.unpriced)}."
        return
    yield f"Cost: about ${cost.per_hour:,.2f} per hour while all replicas train."
    yield f"  At most ${cost.attempt_ceiling:,.2f} for one attempt of each, ${cost.ceiling:,.2f} with all its reruns."
    yield (
        f"  An estimate for instances alone, by on-demand prices of {prices.region} as of {prices.as_of} "
        f"({prices.source}); spot costs less, other regions differ."
    )
