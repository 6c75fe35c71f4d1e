"""Sets of ranks as people write them: `0-3`, `5`, `0,2,8-11`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from muster.contract.training.values import Wording

Ranks = Annotated[
    str,
    Field(max_length=256, pattern=r"^[0-9]{1,5}(-[0-9]{1,5})?(,[0-9]{1,5}(-[0-9]{1,5})?)*$"),
    Wording("ranks such as 0-3 or 0,2,8-11"),
]


def parse_ranks(text: str) -> list[range]:
    """The ranges of `text`, which is of the form of `Ranks`; one in descending order is empty."""
    bounds = (part.partition("-") for part in text.split(","))
    return [range(int(first), int(last or first) + 1) for first, _, last in bounds]


@lru_cache(maxsize=64)
def ranks_in(text: str) -> frozenset[int]:
    """The ranks of a text of that form; none for an empty one. It may be asked for each of ten thousand."""
    return frozenset(rank for part in parse_ranks(text) for rank in part) if text else frozenset()


def spans(ranks: Iterable[int]) -> list[tuple[int, int]]:
    """Sorted, distinct `ranks` as first and last of each span."""
    found: list[tuple[int, int]] = []
    for rank in ranks:
        if found and found[-1][1] == rank - 1:
            found[-1] = (found[-1][0], rank)
        else:
            found.append((rank, rank))
    return found


def show_ranks(ranks: Iterable[int]) -> str:
    """The shortest text for sorted, distinct `ranks`."""
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in spans(ranks))
