"""A comparison of two runs as lines of text."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.contract.run.failure_words import counted
from muster.contract.text import columns, shortened
from muster.report.figures import dollars, duration, rate_number
from muster.report.rounds import chosen

if TYPE_CHECKING:
    from pydantic import JsonValue

    from muster.report.comparison import ComparedFigure, ComparedMetric, ComparedOutcome, Comparison

_ROUNDS_SHOWN = 8
_VALUE_MAX = 48  # characters of a value of a spec
_NONE = "–"
_FIGURES = (1, 2, 3)


def comparison_lines(found: Comparison) -> Iterator[str]:
    """How the two ended, what limits the comparison, what differs, and what came of it."""
    for side, run in (("A", found.a), ("B", found.b)):
        yield f"{side}  {_outcome(run)}"
    if found.remarks:
        yield ""
        yield "Limits:" if found.comparable else "Not comparable:"
        yield from (f"  {remark}" for remark in found.remarks)
    yield ""
    if found.spec:
        rows = [(one.field, _value(one.a), _value(one.b)) for one in found.spec]
        yield from columns([("spec", "A", "B"), *rows])
    else:
        yield "Their specs are the same."
    yield ""
    yield from columns([("", "A", "B", "B / A"), *(_figure_row(one) for one in found.figures)], right=_FIGURES)
    for metric in found.metrics:
        yield ""
        yield from columns(list(_metric_rows(metric)), right=_FIGURES)


def _outcome(run: ComparedOutcome) -> str:
    reason = f": {run.reason}" if run.reason else ""
    causes = counted(Counter(run.reruns).elements())
    return f"{run.run} {run.state}{reason}{f' (reruns: {causes})' if causes else ''}"


def _value(value: JsonValue) -> str:
    if value is None:
        return _NONE
    return shortened(value if isinstance(value, str) else json.dumps(value), _VALUE_MAX)


def _figure_row(figure: ComparedFigure) -> tuple[str, ...]:
    ratio = _NONE if figure.ratio is None else f"{figure.ratio:.2f}"
    return figure.name, _quantity(figure.a, figure.unit), _quantity(figure.b, figure.unit), ratio


def _quantity(value: float | None, unit: str) -> str:
    if value is None:
        return _NONE
    if unit == "s":
        return duration(value)
    if unit == "$":
        return dollars(value)
    return f"{rate_number(value)} {unit}".rstrip()


def _metric_rows(metric: ComparedMetric) -> Iterator[tuple[str, ...]]:
    """Some rounds, evenly spread, the first and the last one among them."""
    yield f"{metric.name} by round", "A", "B", "B / A"
    for index in chosen(range(len(metric.rounds)), _ROUNDS_SHOWN):
        one, other = metric.a[index], metric.b[index]
        ratio = f"{other / one:.2f}" if one and other is not None else _NONE
        yield str(metric.rounds[index]), _number(one), _number(other), ratio


def _number(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}"
