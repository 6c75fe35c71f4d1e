"""Writes a file whole or not at all: a full disk leaves what was there before."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, content: str | bytes) -> None:
    """Write `content` (a text as UTF-8) beside `path`, and rename it; into a device or a pipe as it is.

    Raises:
        OSError: it cannot be written; names `path`. The file is as it was.
    """
    body = content.encode() if isinstance(content, str) else content
    target = path.resolve()
    if target.exists() and not target.is_file():
        path.write_bytes(body)
        return
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        partial.write_bytes(body)
        if target.exists():
            partial.chmod(target.stat().st_mode)
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        # An error of a write names no file, and that of another file is no help.
        raise type(error)(error.errno, error.strerror, str(path)) from error
