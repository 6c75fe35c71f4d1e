"""The words that the project no longer uses, and where they still occur, in prose and in names."""

from __future__ import annotations

import re

from bench.structure.sources import Finding, Sources, base_name

RETIRED = {
    "heir": r"heirs?",
    "tell": r"tells?|told",
    "whoever": r"whoever|whomever",
    "somebody": r"somebody",
    "nobody": r"nobody",
    "goes on": r"goes[\s_#]+on",
    "stray": r"strays?",
    "sight": r"sights?",
    "happening": r"happenings?",
    "surroundings": r"surroundings",
    "moment": r"moments?",
    "roll call": r"roll[\s_#]*calls?",
    "owed": r"owed",
    "rung": r"rung",
}
"""Each retired word with the pattern of its forms."""

_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What holds the words themselves, or text that others wrote.
_LEFT_OUT = "bench/structure/"
_OTHERS = {"package-lock.json", "LICENSE", "uplot.min.css", "uplot.min.js"}


def retired_word(sources: Sources, word: str) -> list[Finding]:
    """Where a retired word stands, alone or as a part of a name, in any text file of the project, the tests included.

    Raises KeyError for a word that is not in `RETIRED`.
    """
    pattern = re.compile(rf"(?<![a-z])(?:{RETIRED[word]})(?![a-z])", re.IGNORECASE)
    findings = []
    for path, text in sources.items():
        if path.startswith(_LEFT_OUT) or base_name(path) in _OTHERS:
            continue
        spaced = _CAMEL.sub(" ", text)
        lines = text.split("\n")
        for match in pattern.finditer(spaced):
            line = spaced.count("\n", 0, match.start())
            findings.append(Finding(path, line + 1, lines[line].strip()))
    return findings
