"""Tables for the terminal. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence


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
