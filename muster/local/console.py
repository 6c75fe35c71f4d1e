"""What the commands share: the state option, and errors as one line with an exit code."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from muster.local.errors import LocalCloudError
from muster.local.state import DEFAULT_STATE

StateOption = Annotated[Path, typer.Option("--state", help="Directory with the state of the embedded cloud.")]
DEFAULT = DEFAULT_STATE
TROUBLE = 3
"""Exit code: the cloud, or the way to it; the same as everywhere in `muster`."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn an error of the embedded cloud into its one line on stderr and exit code 3."""
    try:
        yield
    except LocalCloudError as error:
        sys.stderr.write(f"{error}\n")
        raise typer.Exit(TROUBLE) from error
