"""Finds runs of six or more lines that occur twice: identical, or identical except for names, strings and numbers."""

from __future__ import annotations

import keyword
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import combinations

from bench.structure.sources import Finding, Sources, python_files

_LINES = 6
_SHAPES = 4
"""Lines alike must have that many shapes among six: six items of one list are alike and repeat nothing."""
_COMMON = 8
"""A shape that occurs in more places than this is an idiom. Identical lines always count as a repetition."""
_TOKEN = re.compile(
    r"""(?P<string>[rbfRBF]{0,2}(?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'))|(?P<name>[^\W\d]\w*)|(?P<number>\d[\w.]*)|\S"""
)

_Line = tuple[int, str]
_Place = tuple[str, int]


def repeated_lines(sources: Sources, folder: str = "infra/") -> list[Finding]:
    """Pairs of files below `folder` (or a file with itself) that share a run of six lines or more.

    Blank lines, comments, imports and lines of only punctuation are ignored. A pair counts once, at its longest
    run, however many runs it shares.
    """
    kept = {path: _kept(text) for path, text in python_files(sources) if path.startswith(folder)}
    starts = _pairs_of_windows(kept, lambda line: line, lambda _window, _places: True)
    starts |= _pairs_of_windows(kept, _shape, lambda window, places: len(set(window)) >= _SHAPES and places <= _COMMON)
    longest: dict[tuple[str, str], tuple[int, _Place, _Place]] = {}
    for one, other, length in _runs(starts):
        pair = (one[0], other[0])
        longest[pair] = max(longest.get(pair, (0, one, other)), (length, one, other))
    return [
        Finding(
            one[0],
            kept[one[0]][one[1]][0],
            f"{length} lines again at {other[0]}:{kept[other[0]][other[1]][0]}",
            length,
        )
        for length, one, other in longest.values()
    ]


def _kept(text: str) -> list[_Line]:
    """The lines that count, with their numbers, white space folded."""
    lines, importing = [], False
    for number, line in enumerate(text.splitlines(), 1):
        folded = " ".join(line.split())
        if importing or re.match(r"(from|import)\s", folded):
            importing = ")" not in folded and (importing or "(" in folded)
        elif re.search(r"\w", folded) and not folded.startswith("#"):
            lines.append((number, folded))
    return lines


def _shape(line: str) -> str:
    def replace(match: re.Match[str]) -> str:
        word = match.group()
        return {"string": "S", "number": "0", "name": word if keyword.iskeyword(word) else "N"}.get(
            match.lastgroup or "", word
        )

    return _TOKEN.sub(replace, line)


def _pairs_of_windows(
    kept: dict[str, list[_Line]], key: Callable[[str], str], counts: Callable[[tuple[str, ...], int], bool]
) -> set[tuple[_Place, _Place]]:
    """All pairs of places at which six lines with the same keys start; places in one file do not overlap."""
    windows: defaultdict[tuple[str, ...], list[_Place]] = defaultdict(list)
    for path, lines in kept.items():
        keys = [key(line) for _, line in lines]
        for start in range(len(keys) - _LINES + 1):
            windows[tuple(keys[start : start + _LINES])].append((path, start))
    return {
        (one, other)
        for window, places in windows.items()
        if counts(window, len(places))
        for one, other in combinations(places, 2)
        if one[0] != other[0] or other[1] - one[1] >= _LINES
    }


def _runs(starts: set[tuple[_Place, _Place]]) -> Iterator[tuple[_Place, _Place, int]]:
    """Windows that follow each other at both places are one run; yields its two places and its lines."""
    for (path, line), (other, second) in starts:
        if ((path, line - 1), (other, second - 1)) in starts:
            continue
        length = _LINES
        while ((path, line + length - _LINES + 1), (other, second + length - _LINES + 1)) in starts:
            length += 1
        yield (path, line), (other, second), length
