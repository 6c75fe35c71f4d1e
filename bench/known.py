"""What is known of rows beforehand: their value before the last work on speed, and why an aim is missed."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FILE = Path(__file__).with_name("known_rows.toml")


@dataclass(frozen=True)
class Known:
    """`before` is in the row's unit; `missed` says where the rest goes, and is shown only where the aim is missed."""

    before: float | None = None
    missed: str = ""


def known_rows(file: Path = FILE) -> dict[str, dict[str, Known]]:
    """By benchmark and row's name."""
    tables = tomllib.loads(file.read_text(encoding="utf-8"))
    return {benchmark: {name: Known(**entry) for name, entry in rows.items()} for benchmark, rows in tables.items()}


def of_no_row(known: Iterable[str], rows: Iterable[str]) -> list[str]:
    """The entries whose row is gone or has another name by now."""
    return sorted(set(known) - set(rows))
