"""Two runs side by side: what their specs differ in, and what came of it. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.spec.private_values import is_private, kind_of
from muster.contract.timestamps import seconds_between
from muster.report.page_model import MetricView, Page
from muster.report.words import rerun_causes

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|true|false", re.IGNORECASE)
# Fields of a spec whose differences say nothing about the training.
_OF_THE_RUN_ALONE = {"name", "resume_from"}
_MILLION = 1e6


@dataclass(frozen=True)
class ComparedRun:
    """One of two runs: its page, why it ended so, and its spec with every default."""

    page: Page
    reason: str
    spec: Mapping[str, JsonValue]

    @property
    def lineage(self) -> Mapping[str, JsonValue]:
        """Of a continuation."""
        found = self.page.plan.get("lineage")
        return found if isinstance(found, dict) else {}


class SpecDifference(Document):
    """A field in which the specs differ. A text that may be secret is not shown."""

    field: str
    a: JsonValue
    b: JsonValue


class ComparedFigure(Document):
    """One figure of both runs; none where it is not known."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None = Field(description="b to a; none where one is not known, or a is zero")


class ComparedMetric(Document):
    """A metric of both runs in the rounds that both have, averaged over the replicas."""

    name: str
    rounds: tuple[int, ...]
    a: tuple[float | None, ...]
    b: tuple[float | None, ...]


class ComparedOutcome(Document):
    """How one of the runs ended, or where it stands."""

    run: str
    state: str
    reason: str
    reruns: dict[str, int] = Field(description="how many attempts were rerun, by failure class")


class Comparison(Document):
    """Two runs side by side."""

    a: ComparedOutcome
    b: ComparedOutcome
    comparable: bool = Field(description="whether metrics and rates of the two mean the same")
    remarks: tuple[str, ...] = Field(description="what limits the comparison")
    spec: tuple[SpecDifference, ...]
    figures: tuple[ComparedFigure, ...]
    metrics: tuple[ComparedMetric, ...]


def compare(a: ComparedRun, b: ComparedRun) -> Comparison:
    """Compare two runs."""
    spec = tuple(_differences(a.spec, b.spec))
    metrics = tuple(_metrics(a.page, b.page))
    barriers = tuple(_barriers(a, b, spec, metrics))
    return Comparison(
        a=_outcome(a),
        b=_outcome(b),
        comparable=not barriers,
        remarks=(*barriers, *_cautions(a, b)),
        spec=spec,
        figures=tuple(_figures(a.page, b.page)),
        metrics=metrics,
    )


def _outcome(run: ComparedRun) -> ComparedOutcome:
    causes: Counter[str] = rerun_causes(run.page.replicas)
    return ComparedOutcome(run=run.page.run, state=run.page.state, reason=run.reason, reruns=dict(causes.most_common()))


def _barriers(
    a: ComparedRun, b: ComparedRun, spec: Sequence[SpecDifference], metrics: Sequence[ComparedMetric]
) -> Iterator[str]:
    """Why metrics and rates of the two cannot be compared."""
    program = [one for one in spec if one.field in {"trainer", "entrypoint", "image", "source_dir", "algorithm_name"}]
    if any(one.field in {"trainer", "entrypoint", "algorithm_name"} for one in program):
        names = ", ".join(one.field for one in program)
        yield f"they run different programs ({names}): their metrics may mean different things"
    sweeps = [run.page.run for run in (a, b) if run.page.sweep is not None]
    if sweeps:
        yield f"{' and '.join(sweeps)} {'are sweeps' if len(sweeps) > 1 else 'is a sweep'}: its replicas train apart"
    units = a.page.rounds.unit, b.page.rounds.unit
    without = [run.page.run for run in (a, b) if not run.page.rounds.total]
    if without:
        yield f"{' and '.join(without)} {'have' if len(without) > 1 else 'has'} committed no round"
    elif units[0] != units[1]:
        yield f"{a.page.run} counts {units[0]}, {b.page.run} counts {units[1]}: their rates cannot be compared"
    elif not metrics and (a.page.rounds.metrics or b.page.rounds.metrics):
        yield "they have no metric in common in any round"


def _cautions(a: ComparedRun, b: ComparedRun) -> Iterator[str]:
    """What a reader of the comparison must know."""
    for run, other in ((a, b), (b, a)):
        if run.page.ended_at is None:
            yield f"{run.page.run} has not ended: its figures are not final, and its cost is an upper bound"
        if run.lineage.get("parent") == other.page.run:
            yield f"{run.page.run} continues {other.page.run}: its rounds include those of the runs before"
        elif run.lineage:
            yield f"{run.page.run} is a continuation: its rounds include those of the runs before"
    changed = {one.field for one in _differences(a.spec, b.spec)} & {"image", "source_dir"}
    if changed:
        yield f"their code differs ({', '.join(sorted(changed))})"


# --- spec -----------------------------------------------------------------------------------------


def _differences(a: Mapping[str, JsonValue], b: Mapping[str, JsonValue]) -> Iterator[SpecDifference]:
    before, after = dict(_fields(a)), dict(_fields(b))
    for path in sorted({*before, *after}):
        one, other = before.get(path), after.get(path)
        if one != other and path[0] not in _OF_THE_RUN_ALONE:
            yield SpecDifference(field=".".join(path), a=_shown(path, one), b=_shown(path, other))


def _fields(value: Mapping[str, JsonValue], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], JsonValue]]:
    """The leaves of a document; a list is one of them."""
    for name, item in value.items():
        if isinstance(item, dict) and item:
            yield from _fields(item, (*at, name))
        else:
            yield (*at, name), item


def _shown(path: tuple[str, ...], value: JsonValue) -> JsonValue:
    """The value, unless it may be secret: of what the user's program reads, numbers alone are shown."""
    if value is None or not is_private(path):
        return value
    is_number = isinstance(value, bool | int | float) or (isinstance(value, str) and _NUMBER.fullmatch(value))
    return value if is_number and "environment" not in path else f"({kind_of(value)}, not shown)"


# --- figures --------------------------------------------------------------------------------------


def _figures(a: Page, b: Page) -> Iterator[ComparedFigure]:
    unit = a.rounds.unit if a.rounds.unit == b.rounds.unit else None
    yield _figure("duration", "s", _seconds(a), _seconds(b))
    yield _figure("cost", "$", _usd(a), _usd(b))
    yield _figure("replicas", "", len(a.replicas), len(b.replicas))
    yield _figure("rounds", "", a.rounds.total, b.rounds.total)
    yield _figure("median round", "s", _median_round(a), _median_round(b))
    if unit is not None:
        yield _figure(unit, "", a.rounds.samples, b.rounds.samples)
        yield _figure("rate in the last rounds", f"{unit}/s", _rate(a), _rate(b))
        yield _figure(f"cost of a million {unit}", "$", _usd_per_million(a), _usd_per_million(b))
    yield _figure("reruns", "", rerun_causes(a.replicas).total(), rerun_causes(b.replicas).total())


def _figure(name: str, unit: str, a: float | None, b: float | None) -> ComparedFigure:
    ratio = None if a is None or b is None or a == 0 else b / a
    return ComparedFigure(name=name, unit=unit, a=a, b=b, ratio=ratio)


def _seconds(page: Page) -> float:
    return seconds_between(page.started_at, page.ended_at or page.made_at)


def _usd(page: Page) -> float | None:
    costs = [usd for replica in page.replicas for usd in replica.usd]
    known = [usd for usd in costs if usd is not None]
    return round(sum(known) + (page.egress_usd or 0.0), 6) if len(known) == len(costs) else None


def _median_round(page: Page) -> float | None:
    found = [seconds for seconds in page.rounds.seconds[1:] if seconds is not None]
    return median(found) if found else None


def _rate(page: Page) -> float | None:
    return None if page.rounds.pace is None else page.rounds.pace.samples_per_second


def _usd_per_million(page: Page) -> float | None:
    usd, samples = _usd(page), page.rounds.samples
    return None if usd is None or not samples else usd / samples * _MILLION


# --- metrics --------------------------------------------------------------------------------------


def _metrics(a: Page, b: Page) -> Iterator[ComparedMetric]:
    before, after = _means(a), _means(b)
    for name in sorted(before.keys() & after.keys()):
        rounds = sorted(before[name].keys() & after[name].keys())
        if rounds:
            yield ComparedMetric(
                name=name,
                rounds=tuple(rounds),
                a=tuple(before[name][one] for one in rounds),
                b=tuple(after[name][one] for one in rounds),
            )


def _means(page: Page) -> dict[str, dict[int, float]]:
    """The metrics by name and round."""
    return {metric.name: dict(_mean_by_round(page.rounds.numbers, metric)) for metric in page.rounds.metrics}


def _mean_by_round(numbers: Sequence[int], metric: MetricView) -> Iterator[tuple[int, float]]:
    return ((number, mean) for number, mean in zip(numbers, metric.mean, strict=True) if mean is not None)
