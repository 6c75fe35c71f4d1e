"""A process from which the SDK reaches nothing: no connection, no credentials, no log."""

import logging
import os
import socket
import sys
from types import ModuleType
from typing import NoReturn

REGION = "us-west-2"


def close_process() -> None:
    """Refuse connections, keep what the SDK writes to the log, and do without what only plots need."""
    os.environ.update(
        AWS_DEFAULT_REGION=REGION,
        AWS_ACCESS_KEY_ID="none",
        AWS_SECRET_ACCESS_KEY="none",
        AWS_EC2_METADATA_DISABLED="true",
    )
    socket.socket.connect = _refuse  # type: ignore[method-assign, assignment]
    socket.getaddrinfo = _refuse
    # pandas is 46 MB, and the SDK imports it for data frames that no recipe has.
    pandas = ModuleType("pandas")
    pandas.DataFrame = type("DataFrame", (), {})  # type: ignore[attr-defined]
    sys.modules["pandas"] = pandas
    logging.disable(logging.CRITICAL)


def _refuse(*_: object, **__: object) -> NoReturn:
    message = "the oracle opens no connection"
    raise OSError(message)
