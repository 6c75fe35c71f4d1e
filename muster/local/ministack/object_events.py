"""S3's events about objects, of which a fault can lose some."""

from __future__ import annotations

import functools
from collections.abc import Callable
from fnmatch import fnmatchcase
from typing import Any

from ministack.services import s3

from muster.local.faults import LostNotice
from muster.local.service.fault_book import FaultBook


def install(faults: FaultBook) -> None:
    """Let MiniStack lose the events that a fault names; the objects are there."""
    s3._fire_s3_event_async = _losing(s3._fire_s3_event_async, faults)


def _losing(fire: Callable[..., Any], faults: FaultBook) -> Callable[..., Any]:
    @functools.wraps(fire)
    def fired(*arguments: Any, **further: Any) -> Any:
        key = str(further["key"] if "key" in further else arguments[1])
        if faults.take(LostNotice, lambda fault: fnmatchcase(key, fault.key)) is not None:
            return None
        return fire(*arguments, **further)

    return fired
