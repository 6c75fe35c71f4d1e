"""Which lines `muster logs` shows."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated

import typer

from muster.client.client_errors import OptionError
from muster.contract.names import REPLICAS_MAX
from muster.contract.training.ranks import parse_ranks

_RANKS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


@dataclass(frozen=True)
class LogFilter:
    """Which lines `muster logs` shows."""

    rank: Annotated[str | None, typer.Option("--rank", "-r", help="Only these ranks: 3, 0-3 or 0,2,8-11.")] = None
    attempt: Annotated[
        int | None, typer.Option("--attempt", "-a", min=1, help="Only this attempt of each replica.")
    ] = None
    since: Annotated[str | None, typer.Option("--since", help="Only from then on: 10m, 2h, 3d or an ISO time.")] = None
    until: Annotated[str | None, typer.Option("--until", help="Only until then, in the same form.")] = None
    regex: Annotated[str | None, typer.Option("--regex", help="Only lines that match it somewhere.")] = None
    tail: Annotated[int | None, typer.Option("--tail", "-n", min=1, help="Only the last lines, at most this many.")] = (
        None
    )

    @property
    def hide_lines(self) -> bool:
        """Whether there may be lines of these ranks that are not shown."""
        return not (self.attempt is None and self.since is None and self.until is None and self.regex is None)


def read_ranks(text: str) -> frozenset[int]:
    """The ranks in `0,2,8-11`.

    Raises:
        OptionError: it is not a list of ranks.
    """
    parts = parse_ranks(text) if _RANKS.fullmatch(text) is not None else []
    if not parts or any(len(part) == 0 or part[-1] >= REPLICAS_MAX for part in parts):
        raise OptionError(text, f"write ranks like 3, 0-3 or 0,2,8-11, up to {REPLICAS_MAX - 1:,}", option="--rank")
    return frozenset(rank for part in parts for rank in part)
