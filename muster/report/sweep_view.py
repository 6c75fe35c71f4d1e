"""The replicas of a sweep side by side: what they differ in, and what each has reached. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from muster.contract.spec.sweep_values import best_rank, short_names, value_text, values_of
from muster.report.page_model import ReplicaView, SweepView
from muster.report.words import UTILISATION

_METRICS_MAX = 8  # more columns cannot be compared at a look; the charts have all
_NOT_COMPARED = {UTILISATION, "round", "epoch", "step"}


def sweep_view(sweep: Mapping[str, Sequence[JsonValue]], replicas: Sequence[ReplicaView]) -> SweepView | None:
    """What a page shows of a sweep; None for a run that is none."""
    if not sweep:
        return None
    names = tuple(values_of(sweep, 0))
    last = [_metrics(replica) for replica in replicas]
    shown = _chosen(last)
    by_metric = {name: {rank: found[name] for rank, found in enumerate(last) if name in found} for name in shown}
    return SweepView(
        names=names,
        short=tuple(short_names(names).values()),
        values=tuple(tuple(map(value_text, values_of(sweep, replica.rank).values())) for replica in replicas),
        metrics=shown,
        last=tuple(tuple(found.get(name) for name in shown) for found in last),
        best=tuple(best_rank(name, by_metric[name]) for name in shown),
    )


def _metrics(replica: ReplicaView) -> dict[str, float]:
    """What the replica has logged last; of a program, what SageMaker has read from its log."""
    details = next((one.details for one in reversed(replica.attempts) if one.details is not None), None)
    read = {} if details is None else {metric.name: metric.value for metric in details.metrics}
    return {name: value for name, value in (replica.metrics or read).items() if name not in _NOT_COMPARED}


def _chosen(last: Sequence[Mapping[str, float]]) -> tuple[str, ...]:
    """The metrics of most replicas; first those of which the best value is known."""
    counts: dict[str, int] = {}
    for found in last:
        for name in found:
            counts[name] = counts.get(name, 0) + 1
    can_be_best = {name: best_rank(name, {0: 0.0, 1: 1.0}) is not None for name in counts}
    order = sorted(counts, key=lambda name: (not can_be_best[name], -counts[name], name))
    return tuple(order[:_METRICS_MAX])
