"""What a framework logs, as metrics of the replica: every number whose name can be one, as far as there is room."""

from __future__ import annotations

from collections.abc import Mapping

from muster.replica.statistics.metrics import METRICS_MAX, NAME, UTILISATION


def loggable(values: Mapping[str, object], known: Mapping[str, float]) -> dict[str, float]:
    """The numbers of `values` that `Metrics.log` accepts beside the `known` metrics, in their order."""
    names = {*known} - {UTILISATION}
    found: dict[str, float] = {}
    for name, value in values.items():
        number = _number(value)
        if number is None or NAME.fullmatch(name) is None:
            continue
        names.add(name)
        if len(names) > METRICS_MAX:
            break
        found[name] = number
    return found


def _number(value: object) -> float | None:
    """`value` as a number: a number itself, or an array or tensor of one."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
