"""What `muster plan` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from muster.client.backend_offers import client_backends
from muster.client.forecasts import forecast_lines
from muster.client.launch.planned_recipe import DIGEST_SHOWN, source_lines
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.spec.sweep_values import short_names, value_text
from muster.contract.text import columns
from muster.contract.training.ranks import parse_ranks
from muster.report.figures import duration

if TYPE_CHECKING:
    from muster.client.launch.dry_run import DryRun, RankGroup, Request
    from muster.client.launch.estimate import ClusterShare, Cost, Quota
    from muster.client.launch.planned_places import PlannedPlaces
    from muster.client.launch.planned_seats import PlannedSeats


def dry_run_lines(dry: DryRun, *, requests: bool = False) -> Iterator[str]:
    """What is started, quota and cost; with `requests` one request of each group of ranks that differ only in it."""
    on_clusters = {rank for group in dry.groups if group.cluster is not None for rank in _ranks(group)}
    first = dry.requests if dry.seats is None else dry.requests[: dry.seats.start.replicas]
    jobs = [_name(request) for rank, request in enumerate(first) if rank not in on_clusters]
    pods = [_name(request) for rank, request in enumerate(first) if rank in on_clusters]
    when = "" if dry.seats is None else " at first"
    yield from _named(jobs, "training job", when)
    yield from _named(pods, "job", f" on clusters{when}")
    yield "Nothing was sent. Values in <brackets>, and so the plan's digest, are known only at the launch."
    yield from (f"Note: {remark}{'' if remark.endswith('?') else '.'}" for remark in dry.remarks)
    if (source := dry.source) is not None:
        count = f"{source.files} file{'' if source.files == 1 else 's'}, {source.bytes:,} bytes"
        yield f"Source: {count} from {source.folder}, as {source.key}; not uploaded."
    if (recipe := dry.recipe) is not None:
        yield f"Recipe: {recipe.name} (family {recipe.family}), digest {recipe.digest[:DIGEST_SHOWN]}."
        yield from source_lines(recipe.sources)
    yield from _sweep_lines(dry)
    if dry.seats is not None:
        yield from _seat_lines(dry.seats)
    elif dry.quotas:
        yield "Quota needed:"
        yield from (f"  {_quota(quota)}" for quota in dry.quotas)
    if dry.clusters:
        yield "Needed of clusters:"
        yield from (f"  {_share(share)}" for share in dry.clusters)
    if dry.places is not None:
        yield from _place_lines(dry.places)
    yield from _cost_lines(dry.cost, dry.seats)
    if dry.forecast is not None:
        yield from forecast_lines(dry.forecast)
    backends = client_backends().values() if requests else ()
    long = {text: short for backend in backends for text, short in backend.shortened().items()}
    for group in dry.groups:
        ranks = _ranks(group)
        differ = "in the rank and the values of the sweep" if dry.sweep else "in the rank only"
        others = f" (ranks {group.ranks} differ {differ})" if len(ranks) > 1 else ""
        what = "request" if group.cluster is None else "job"
        end = ":" if requests else "."
        yield f"The {what} of rank {ranks[0]}{others}, {_size(group)}{_where(group)}{end}"
        if requests:
            yield from json.dumps(_shortened(dry.requests[ranks[0]], long), indent=2).splitlines()
    if not requests:
        yield "`muster plan --requests` shows the requests themselves."


def _shortened(request: JsonValue, long: Mapping[str, str]) -> JsonValue:
    """A request with other words for `long` texts."""
    if isinstance(request, dict):
        return {name: _shortened(value, long) for name, value in request.items()}
    if isinstance(request, list):
        return [_shortened(item, long) for item in request]
    return long.get(request, request) if isinstance(request, str) else request


def _named(names: list[str], kind: str, where: str = "") -> Iterator[str]:
    if names:
        count = f"{len(names)} {kind}{'s' if len(names) > 1 else ''}{where}"
        yield f"{count}: {names[0]} to {names[-1]}." if len(names) > 1 else f"{count}: {names[0]}."


def _name(request: Request) -> str:
    """The name of the job that a request creates."""
    metadata = request.get("metadata")
    return str(metadata["name"] if isinstance(metadata, dict) else request["TrainingJobName"])


def _ranks(group: RankGroup) -> list[int]:
    return [rank for part in parse_ranks(group.ranks) for rank in part]


def _where(group: RankGroup) -> str:
    """` on the cluster ml-cluster (namespace team-a, queue team-a-queue, priority high, 1 spare)`."""
    place = group.cluster
    if place is None:
        return ""
    parts = [f"namespace {place.namespace}"]
    parts += [] if place.queue is None else [f"queue {place.queue}"]
    parts += [] if place.priority is None else [f"priority {place.priority}"]
    parts += [f"{place.spares} spare{'' if place.spares == 1 else 's'}"] if place.spares else []
    parts += [] if place.least is None else [f"{place.least} to {place.most} instances"]
    return f" on the cluster {place.cluster} ({', '.join(parts)})"


def _share(share: ClusterShare) -> str:
    """`ml.p5.48xlarge of ml-cluster, in queue team-a-queue: 4 (up to 8)`."""
    queue = "" if share.queue is None else f", in queue {share.queue}"
    more = f" (up to {share.most})" if share.most > share.instances else ""
    return f"{share.instance_type} of {share.cluster or 'the cluster of the stack'}{queue}: {share.instances}{more}"


def _sweep_lines(dry: DryRun) -> Iterator[str]:
    """What the ranks differ in, as a table."""
    if not dry.sweep:
        return
    yield "Sweep: each replica trains by itself, with its own values:"
    shown = [tuple(short_names(dry.sweep[0]).values()), *(tuple(map(value_text, own.values())) for own in dry.sweep)]
    rows = [("rank", *shown[0]), *((str(rank), *own) for rank, own in enumerate(shown[1:]))]
    yield from (f"  {line}" for line in columns(rows, right=(0,)))


def _seat_lines(seats: PlannedSeats) -> Iterator[str]:
    """How many replicas there may be, what they cost and need, and what follows where there is no capacity."""
    elastic, counts = seats.elastic, {"min": seats.least, "start": seats.start, "max": seats.most}
    yield "Replicas come and go:"
    prices = [("" if one.per_hour is None else f"${one.per_hour:,.2f} per hour") for one in counts.values()]
    rows = [(name, f"{one.replicas:,}", price) for (name, one), price in zip(counts.items(), prices, strict=True)]
    yield from (f"  {line}" for line in columns(rows, right=(1, 2)))
    if elastic.budget_usd_per_hour is not None:
        yield f"  Scaling opens what ${elastic.budget_usd_per_hour:,.2f} per hour pay for: {seats.paid:,} at least."
    if elastic.scale:
        steps = ", ".join(f"{step.replicas:,} after {duration(step.after_seconds)}" for step in elastic.scale)
        yield f"  Scheduled: {steps}."
    then = "the run stops" if elastic.below_min == "stop" else "the others wait"
    yield (
        f"  Without capacity for {duration(elastic.park_after_seconds)}, a seat is parked and looks again every "
        f"{duration(elastic.retry_parked_seconds)}; below min {then}."
    )
    yield "Quota needed by min, start and max:"
    for quota in seats.quotas:
        granted = "" if quota.granted is None else f"; {quota.granted:g} granted"
        yield f"  {quota.name}: {quota.least:,}, {quota.start:,} and {quota.most:,}{granted}"


def _place_lines(planned: PlannedPlaces) -> Iterator[str]:
    """What the run needs of each place, and what a round sends between them."""
    yield "Places:"
    for one in planned.places:
        kind, which = ("rank", one.ranks) if one.ranks else ("rung", ", ".join(map(str, one.rungs)))
        who = f"{kind} {which}" if which.isdecimal() else f"{kind}s {which}"
        at = "" if one.region is None else f" ({one.region}, account {one.account})"
        yield f"  {one.place}{at}: {who}"
        for quota in one.quotas:
            granted = "" if quota.granted is None else f"; {quota.granted:g} granted"
            yield f"    {quota.name}: {quota.instances:,}{granted}"
        for name, usd in one.usd_per_hour.items():
            yield f"    {name}: ${usd:,.2f} per hour on demand"
    if planned.outposts:
        sums = "1 sum" if planned.outposts == 1 else f"{planned.outposts} sums"
        yield (
            f"  A round sends {sums} to the bucket at home and as many means back: ${planned.egress_usd_per_gb:.2f} "
            "for each GB of a mean, as the far codec stores it."
        )


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


def _cost_lines(cost: Cost, seats: PlannedSeats | None) -> Iterator[str]:
    prices = cost.prices
    if cost.per_hour is None or cost.attempt_ceiling is None or cost.ceiling is None:
        yield f"Cost: not known: the price table of {prices.as_of} has no {', '.join(cost.unpriced)}."
        return
    many = "all" if seats is None else f"the first {seats.start.replicas:,}"
    each = "each" if seats is None else f"each of {seats.most.replicas:,}"
    yield f"Cost: about ${cost.per_hour:,.2f} per hour while {many} replicas train."
    yield f"  At most ${cost.attempt_ceiling:,.2f} for one attempt of {each}, ${cost.ceiling:,.2f} with all its reruns."
    shipped = prices.source == SHIPPED_PRICES.source
    yield (
        f"  An estimate for instances alone, by on-demand prices of {prices.region} as of {prices.as_of} "
        f"({prices.source}); spot costs less"
        f"{', other regions differ: `muster plan --deployed` asks for the prices of the stack' if shipped else ''}."
    )
