"""Counts of the documentation: the words that people keep, without the parts that the code generates."""

from __future__ import annotations

import re

from bench.structure.sources import Finding, Sources

_PLACES = re.compile(r"docs/.*\.md|(infra|examples)/(.*/)?README\.md|README\.md|CONTRIBUTING\.md|CHANGELOG\.md")
_GENERATED = "*Generated from "
"""What a page says below its heading if all of it is generated."""
_PART = re.compile(r"<!-- (\w+): (?:made|generated) by .*?<!-- end of \1 -->", re.DOTALL)


def written_words(sources: Sources) -> list[Finding]:
    """The hand-written words of each page, as `wc -w` counts them: a table's bars are words, too."""
    pages = {path: _PART.sub("", text) for path, text in sources.items() if _PLACES.fullmatch(path)}
    counts = {path: len(text.split()) for path, text in pages.items() if _GENERATED not in text[:500]}
    return [Finding(path, 1, f"{words} words", words) for path, words in counts.items()]
