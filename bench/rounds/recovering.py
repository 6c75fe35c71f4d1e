"""A replica as its container starts it, with a clock at each phase of its recovery.

Run as `python -m bench.rounds.recovering STARTED`, with the variables of a replica; `STARTED` is when the process was.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

STARTED = float(sys.argv[-1]) if __name__ == "__main__" else 0.0
_first: dict[str, float] = {}
_last: dict[str, float] = {}
_cpu: defaultdict[str, float] = defaultdict(float)
_lock = threading.Lock()


def _noted(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, of whose calls the first begin, the last end and all CPU are kept."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        began, cpu = time.time(), time.thread_time()
        try:
            return function(*args, **kwargs)
        finally:
            ended, spent = time.time(), time.thread_time() - cpu
            with _lock:
                _first.setdefault(name, began)
                _last[name] = ended
                _cpu[name] += spent

    return noted


def _span(name: str) -> float:
    return _last.get(name, 0.0) - _first.get(name, 0.0)


def phases(began: float, ended: float) -> dict[str, float]:
    """Seconds of each phase. Those of the download and of the imports pass at the same time."""
    return {
        "own imports": _first["import"] - STARTED,
        "imports": _span("import"),
        "find": _first.get("download", began) - _first["find"],
        "download": _span("download"),
        "join": ended - began,
        "verify": _cpu["verify"],
        "unpack": _cpu["unpack"],
        "apply": _cpu["apply"],
    }


def main() -> int:
    """Run the replica."""
    from muster.replica.algorithms.outer_optimizer import Nesterov  # noqa: PLC0415 - a part of what is timed
    from muster.replica.entry import launch  # noqa: PLC0415
    from muster.replica.entry import main as process  # noqa: PLC0415
    from muster.replica.rounds import snapshots  # noqa: PLC0415
    from muster.replica.rounds.prefetch import Prefetch  # noqa: PLC0415
    from muster.replica.store.read_ahead import ReadAhead  # noqa: PLC0415
    from muster.replica.wire import stream_decoder  # noqa: PLC0415

    places: tuple[tuple[Any, str, str], ...] = (
        (process, "load_trainer", "import"),
        (Prefetch, "_run", "find"),
        (Prefetch, "start", "find"),
        (ReadAhead, "_read", "download"),
        (stream_decoder, "decoded", "verify"),
        (snapshots, "put_values", "unpack"),
        (Nesterov, "apply", "apply"),
    )
    for owner, name, phase in places:
        setattr(owner, name, _noted(phase, getattr(owner, name)))
    return launch.main(os.environ)


if __name__ == "__main__":
    # The trainer finds what is noted here.
    sys.modules["bench.rounds.recovering"] = sys.modules["__main__"]
    sys.exit(main())
