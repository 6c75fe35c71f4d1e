"""Text that people read."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


def shortened(text: str, most: int) -> str:
    """The text, or its beginning and an ellipsis where it is longer than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def some_of(items: Sequence[str], most: int, joint: str = ", ") -> str:
    """At most so many of the items, and how many others there are: `a, b and 3 more`."""
    more = f" and {len(items) - most:,} more" if len(items) > most else ""
    return joint.join(items[:most]) + more


def columns(
    rows: Sequence[Sequence[str]], *, right: Collection[int] = (), widths: Sequence[int] | None = None
) -> Iterator[str]:
    """A line for each row, its cells two spaces apart; those of the columns `right` are figures.

    Each column is as wide as its widest cell, unless `widths` says less: then a longer cell moves what follows it.
    """
    sizes = widths or [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            cell.rjust(size) if index in right else cell.ljust(size)
            for index, (cell, size) in enumerate(zip(row, sizes, strict=True))
        )
        yield "  ".join(cells).rstrip()
