"""The project's words: retired ones are gone, and the glossary's files exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from bench.structure.sources import read_sources
from bench.structure.vocabulary import RETIRED, retired_word

ROOT = Path(__file__).parents[3]

HELD = (
    *("muster/", "lambdas/", "infra/", "statemachine/", "examples/", "app.py"),
    *("docs/", "README.md", "CONTRIBUTING.md"),
)
"""Where a retired word must not appear, in prose or in a name."""


@pytest.fixture(scope="module")
def sources() -> dict[str, str]:
    """The texts in which no retired word may appear."""
    return {path: text for path, text in read_sources(ROOT).items() if path.startswith(HELD)}


@pytest.mark.parametrize("word", sorted(RETIRED))
def test_a_retired_word_is_gone(sources: dict[str, str], word: str) -> None:
    found = retired_word(sources, word)
    assert [f"{item.path}:{item.line}: {item.text}" for item in found] == []


def test_every_file_of_the_glossary_exists() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    glossary = text.partition("## Glossary")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \| `([^`]+)` \|$", glossary, re.MULTILINE)
    words = [word for word, _ in rows]
    assert len(rows) > 50
    assert words == sorted(words, key=str.casefold)
    assert [(word, path) for word, path in rows if not (ROOT / path).is_file()] == []


def test_every_room_of_the_packages_stands_on_the_map() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    the_map = text.partition("## The map of the code")[2].partition("\n## ")[0]
    rooms = [
        folder.relative_to(ROOT)
        for package in ("muster", "infra")
        for folder in sorted((ROOT / package).rglob("*"))
        if (folder / "__init__.py").is_file()
    ]
    assert len(rooms) > 30
    missing = [str(room) for room in rooms if f"{room}/" not in the_map and f"`{room.name}/`" not in the_map]
    assert missing == []
