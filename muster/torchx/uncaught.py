"""Muster's errors in TorchX's command line, which catches no scheduler's errors: one line instead of a traceback."""

from __future__ import annotations

import sys
import threading
from functools import cache
from pathlib import Path
from types import TracebackType

from muster.client.cli.output import print_error
from muster.contract.errors import MusterError

_PROGRAM = "torchx"


@cache
def report_plainly() -> None:
    """In TorchX's own program, show an uncaught error of Muster as one line. Others are shown as before."""
    if Path(sys.argv[0]).stem != _PROGRAM:
        return
    before, before_in_thread = sys.excepthook, threading.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MusterError):
            print_error(error, as_json=False)
        else:
            before(kind, error, trace)

    def report_in_thread(uncaught: threading.ExceptHookArgs) -> None:
        # `torchx log` reads in threads, and raises their errors again in the main thread.
        if not isinstance(uncaught.exc_value, MusterError):
            before_in_thread(uncaught)

    sys.excepthook, threading.excepthook = report, report_in_thread
