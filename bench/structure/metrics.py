"""The table of all counts of the code's structure, each with its aim and what it was before the rebuilding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from bench.structure.definitions import function_lengths, long_functions, many_parameters, uses_of_any
from bench.structure.files import file_lines, flat_folders, repeated_names, short_files, small_modules
from bench.structure.imports import import_cycles, imported_options
from bench.structure.repeats import repeated_lines
from bench.structure.rooms import CORE, is_embedded_cloud, room_of
from bench.structure.sources import Finding, Sources, read_sources
from bench.structure.words import written_words
from bench.table import Row

BEFORE = "9790b9a8 (2026-11-24)"
"""The commit whose counts are each metric's `before`."""


@dataclass(frozen=True)
class Metric:
    """One count. `before` is its value at the commit of `BEFORE`."""

    key: str
    name: str
    unit: str
    before: int
    aim: str | None
    find: Callable[[Sources], list[Finding]]
    sums: bool = False
    """Whether the value is the sum of the findings' sizes, not their number."""
    extreme: bool = False
    """Whether the value is the largest finding's size."""

    def value(self, findings: Sequence[Finding]) -> int:
        """The value of the metric for these findings."""
        sizes = [found.size for found in findings]
        return max(sizes, default=0) if self.extreme else sum(sizes) if self.sums else len(sizes)

    def row(self, sources: Sources) -> Row:
        """The count for these sources."""
        return Row(self.name, self.value(self.find(sources)), self.unit, self.aim, note=f"{self.before:,} at {BEFORE}")


def run() -> list[Row]:
    """All counts for the repository of the working folder."""
    sources = read_sources()
    return [metric.row(sources) for metric in METRICS]


def _lines(key: str, name: str, before: int, aim: str, belongs: Callable[[str], bool]) -> Metric:
    return Metric(key, f"lines: {name}", "lines", before, aim, partial(file_lines, belongs=belongs), sums=True)


METRICS: tuple[Metric, ...] = (
    _lines("product", "muster, infra, lambdas", 95767, "<= 68000", lambda _: True),
    _lines(
        "core", "the core, with stack and embedded SageMaker", 61509, "<= 44000", lambda path: room_of(path) == CORE
    ),
    _lines("hyperpod", "HyperPod", 17723, "<= 12000", lambda path: room_of(path) == "HyperPod"),
    _lines("recipes", "recipes", 7041, "<= 4000", lambda path: room_of(path) == "recipes"),
    _lines("verify", "verify", 3013, "<= 1200", lambda path: room_of(path) == "verify"),
    _lines("local", "embedded cloud without HyperPod", 8455, "<= 7000", is_embedded_cloud),
    Metric("files", "files", "files", 876, "<= 520", partial(file_lines, belongs=lambda _: True)),
    Metric("short-files", "files under 40 lines", "files", 95, "<= 40", short_files),
    Metric("long-functions", "functions over 50 lines", "functions", 15, "<= 10", long_functions),
    Metric("longest-function", "longest function", "lines", 85, None, function_lengths, extreme=True),
    Metric("parameters", "functions with more than 5 parameters", "functions", 32, "<= 15", many_parameters),
    Metric("cycles", "circles of imports", "circles", 8, "<= 0", import_cycles),
    Metric("options", "core reachable without options: its imports of them", "imports", 0, "<= 0", imported_options),
    Metric("repeated-names", "base names that occur twice or more", "names", 48, "<= 12", repeated_names),
    Metric("flat-folders", "most files flat in one folder", "files", 37, None, flat_folders, extreme=True),
    Metric("small-modules", "one-importer modules under 30 lines", "modules", 40, None, small_modules),
    Metric("repeated-lines", "duplicates of six lines or more in infra/", "pairs of files", 11, None, repeated_lines),
    Metric("any", "uses of Any", "uses", 690, None, uses_of_any),
    Metric("words", "words of the documentation, not generated", "words", 81434, "<= 50000", written_words, sums=True),
)
