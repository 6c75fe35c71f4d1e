"""The rows of a benchmark: what was measured, what was aimed at, what a compared system needs."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from math import isnan
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from bench.known import Known

DIRECTORY = Path("build/bench")

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Row:
    """One measurement. `aim` reads like "<= 1.5" and is in the row's unit; `peer` was measured in the same run."""

    name: str
    value: float
    unit: str
    aim: str | None = None
    peer: float | None = None
    note: str = ""

    def __post_init__(self) -> None:
        if self.aim is not None:
            _parse_aim(self.aim)

    @property
    def ok(self) -> bool | None:
        """Whether the value meets its aim; None without an aim. NaN meets none."""
        if self.aim is None:
            return None
        compare, bound = _parse_aim(self.aim)
        return compare(self.value, bound)


def write_rows(benchmark: str, rows: Iterable[Row], directory: Path = DIRECTORY) -> Path:
    """Write `<directory>/<benchmark>.json` and return its path."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{benchmark}.json"
    order = ("name", "value", "unit", "aim", "ok", "peer", "note")
    documents = [{**asdict(row), "ok": row.ok} for row in rows]
    text = json.dumps([{key: document[key] for key in order} for document in documents], indent=2, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def print_table(results: dict[str, list[Row]], known: dict[str, dict[str, Known]], console: Console) -> None:
    """All rows as one table, benchmarks in the order given. Below a missed aim stands where the rest goes."""
    table = Table("benchmark", "measurement", "before", "value", "unit", "aim", "met", "peer", "note")
    for column in (2, 3, 7):
        table.columns[column].justify = "right"
    for benchmark, rows in results.items():
        for row in rows:
            entry = known.get(benchmark, {}).get(row.name, Known())
            met = {True: "[green]yes[/]", False: "[bold red]missed[/]", None: ""}[row.ok]
            reason = f"[yellow]{escape(entry.missed)}[/]" if row.ok is False and entry.missed else ""
            cells = (benchmark, row.name, _optional(entry.before), _number(row.value), row.unit, row.aim or "")
            notes = "\n".join(filter(None, (escape(row.note), reason)))
            table.add_row(*map(escape, cells), met, _optional(row.peer), notes)
        table.add_section()
    console.print(table)


def _parse_aim(aim: str) -> tuple[Callable[[float, float], bool], float]:
    sign, _, bound = aim.partition(" ")
    try:
        return _COMPARISONS[sign], float(bound)
    except (KeyError, ValueError):
        message = f"the aim {aim!r} is not of the form '<= 1.5' (one of {', '.join(_COMPARISONS)})"
        raise ValueError(message) from None


def _optional(value: float | None) -> str:
    return "" if value is None else _number(value)


def _number(value: float) -> str:
    if isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
