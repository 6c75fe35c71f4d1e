"""Errors of Muster in TorchX's command line, which catches those of no scheduler: a line instead of a traceback."""

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
def tell_plainly() -> None:
    """In TorchX's own program, end with one line on an error of Muster; what else is not caught is shown as before."""
    if Path(sys.argv[0]).stem != _PROGRAM:
        return
    before, before_in_thread = sys.excepthook, threading.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MusterError):
            print_error(error, as_json=False)
        else:
            before(kind, error, trace)

    def tell_in_thread(uncaught: threading.ExceptHookArgs) -> None:
        # `torchx log` reads in threads and raises what it finds there again in the main one.
        if not isinstance(uncaught.exc_value, MusterError):
            before_in_thread(uncaught)

    sys.excepthook, threading.excepthook = tell, tell_in_thread
