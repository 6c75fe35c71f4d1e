"""Reads the options of `muster logs`."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from muster.client.errors import OptionError
from muster.contract.names import REPLICAS_MAX
from muster.contract.training.ranks import parse_ranks

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_RANKS = re.compile(r"\d{1,5}(-\d{1,5})?(,\d{1,5}(-\d{1,5})?)*")


def read_time(option: str, text: str) -> datetime:
    """`10m` ago, or an ISO time; one without a zone is local.

    Raises:
        OptionError: it is neither.
    """
    ago = _AGO.fullmatch(text)
    try:
        if ago is not None:
            return datetime.now(UTC) - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        remedy = "write an age like 90s, 10m, 2h or 3d, or a time like 2026-11-21T09:30:00Z"
        raise OptionError(text, remedy, option) from None


def read_ranks(text: str) -> frozenset[int]:
    """The ranks in `0,2,8-11`.

    Raises:
        OptionError: it is not a list of ranks.
    """
    parts = parse_ranks(text) if _RANKS.fullmatch(text) is not None else []
    if not parts or any(len(part) == 0 or part[-1] >= REPLICAS_MAX for part in parts):
        raise OptionError(text, f"write ranks like 3, 0-3 or 0,2,8-11, up to {REPLICAS_MAX - 1:,}", option="--rank")
    return frozenset(rank for part in parts for rank in part)
