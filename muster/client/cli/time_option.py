"""Options that name a time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from muster.client.client_errors import OptionError

_AGO = re.compile(r"(\d{1,6})([smhd])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def read_time(option: str, text: str) -> datetime:
    """The time that `10m` (ago) or an ISO time names; one without a zone is local.

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
