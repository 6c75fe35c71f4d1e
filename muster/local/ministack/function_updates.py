"""Functions that run finish when they are updated: MiniStack kills them. On AWS only new invocations run new code."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from ministack.core import lambda_runtime
from ministack.services import lambda_svc

_LATEST = "$LATEST"
_POLL_SECONDS = 0.1


def install() -> None:
    """Let updates spare the processes that serve an invocation."""
    lambda_svc._update_code = partial(_update, lambda_svc._update_code)
    lambda_svc._update_config = partial(_update, lambda_svc._update_config)


def _update(update: Callable[..., Any], name: str, /, *rest: Any, **options: Any) -> Any:
    for worker in _take_busy(name):
        threading.Thread(target=_end_when_free, args=(worker,), name=f"retired-{name}", daemon=True).start()
    return update(name, *rest, **options)


def _take_busy(function: str) -> list[Any]:
    """Take the processes that serve an invocation of the newest version out of the pool, in which updates end them."""
    taken = []
    with lambda_runtime._lock:
        for key, workers in lambda_runtime._workers.items():
            if key.split(":")[-2:] == [function, _LATEST]:
                busy = [worker for worker in workers if worker.in_use]
                taken += busy
                lambda_runtime._workers[key] = [worker for worker in workers if not worker.in_use]
    return taken


def _end_when_free(worker: Any) -> None:
    while worker.in_use:
        time.sleep(_POLL_SECONDS)
    lambda_runtime.kill_workers([worker])
