"""The table of all counts of the code's structure, each with its aim and what it was before the rebuilding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from bench.structure.definitions import attempt_types, function_lengths, many_parameters, uses_of_any
from bench.structure.files import flat_folders, repeated_names, small_modules, untested_control
from bench.structure.repeats import repeated_lines
from bench.structure.sources import Finding, Sources, read_sources
from bench.structure.vocabulary import retired_word
from bench.table import Row

BEFORE = "3103680 (2026-11)"
"""The commit whose counts are each metric's `before`."""


@dataclass(frozen=True)
class Metric:
    """One count. `before` is its value at the commit of `BEFORE`.

    `extreme`: the value is the largest finding's size, not the number of findings. `reviewed` is the number in the
    review of that commit, where it differs; the review does not describe how it counted.
    """

    key: str
    name: str
    unit: str
    before: int
    aim: str | None
    find: Callable[[Sources], list[Finding]]
    extreme: bool = False
    reviewed: int | None = None

    def value(self, findings: Sequence[Finding]) -> int:
        """The value of the metric for these findings."""
        return max((found.size for found in findings), default=0) if self.extreme else len(findings)

    def row(self, sources: Sources) -> Row:
        """The count for these sources."""
        review = "" if self.reviewed is None else f"; {self.reviewed:,} by the review's count"
        note = f"{self.before:,} at {BEFORE}{review}"
        return Row(self.name, self.value(self.find(sources)), self.unit, self.aim, note=note)


def run() -> list[Row]:
    """All counts for the repository of the working folder."""
    sources = read_sources()
    return [metric.row(sources) for metric in METRICS]


_WORDS_BEFORE = {
    "heir": 190,
    "tell": 482,
    "whoever": 80,
    "somebody": 52,
    "nobody": 121,
    "goes on": 157,
    "stray": 36,
    "sight": 67,
    "happening": 94,
    "surroundings": 13,
    "moment": 91,
    "roll call": 15,
    "owed": 35,
    "rung": 25,
}


def _words() -> Iterator[Metric]:
    for word, before in _WORDS_BEFORE.items():
        find = partial(retired_word, word=word)
        yield Metric(word.replace(" ", "-"), f"retired word: {word}", "places", before, None, find)


METRICS: tuple[Metric, ...] = (
    Metric("small-modules", "one-importer modules under 30 lines", "modules", 27, "<= 8", small_modules, reviewed=33),
    Metric(
        "flat-folders", "most files flat in one folder", "files", 55, "<= 20", flat_folders, extreme=True, reviewed=62
    ),
    Metric("repeated-names", "base names that occur twice or more", "names", 41, "<= 12", repeated_names),
    Metric("parameters", "functions with more than 5 parameters", "functions", 43, "<= 15", many_parameters),
    Metric("any", "uses of Any", "uses", 276, "<= 120", uses_of_any),
    Metric("longest-function", "longest function", "lines", 198, "<= 60", function_lengths, extreme=True),
    Metric("attempt-types", "types of an attempt", "types", 6, "<= 2", attempt_types),
    Metric(
        "repeated-lines",
        "duplicates of six lines or more in infra/",
        "pairs of files",
        44,
        "<= 3",
        repeated_lines,
        reviewed=29,
    ),
    Metric("untested-control", "control modules without a unit test", "modules", 26, None, untested_control),
    *_words(),
)
