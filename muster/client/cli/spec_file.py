"""Reading a spec from a file or from standard input."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from muster.client.checks.check_findings import place
from muster.client.client_errors import SpecFileError, os_reason
from muster.client.launch.default_source import default_source, unshipped
from muster.client.launch.expanded_spec import with_files_beside
from muster.contract.spec.spec_reader import load_spec_text

STANDARD_INPUT = "-"


class WrittenSpec(NamedTuple):
    """A spec as it is written, the folder that it means by leaving `source_dir` out, or why it means none."""

    document: dict[Any, object]
    meant: str | None = None
    remark: str | None = None


def read_spec(path: str, name: str | None = None, changes: Sequence[str] = ()) -> WrittenSpec:
    """The spec in the file `path` (- is standard input), as the run `name`. What it says is not checked.

    `changes` are values by path: `kwargs.lr=3e-4`.

    Its `source_dir` and the files of its `recipe` are relative to the file's folder. If the file has no
    `source_dir`, it is the folder of the trainer's module: that of the file, or else the working directory.

    Raises:
        SpecFileError: the file cannot be read.
        SpecError: it is no YAML or JSON of a mapping, or a change does not fit it.
        OptionError: a change cannot be read.
    """
    try:
        text = sys.stdin.read() if path == STANDARD_INPUT else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecFileError(path, os_reason(error)) from error
    except UnicodeDecodeError as error:
        raise SpecFileError(path, "it is not UTF-8 text") from error
    document = load_spec_text(text)
    if changes:
        from muster.client.launch.changes import read_changes, with_changes  # noqa: PLC0415

        document = with_changes(document, read_changes(changes))
    if name is not None:
        document["name"] = name
    beside = Path() if path == STANDARD_INPUT else Path(path).parent
    document = with_files_beside(document, beside)
    source = document.get("source_dir")
    if isinstance(source, str) and source and not source.startswith("s3://"):
        document["source_dir"] = str(beside / source)
    # Who pipes a spec into a command may be anywhere: only a file has a folder of its own.
    elif path != STANDARD_INPUT and (folder := default_source(document, (beside, Path()))) is not None:
        document["source_dir"] = str(folder)
        return WrittenSpec(document, place(folder))
    return WrittenSpec(document, remark=None if path == STANDARD_INPUT else unshipped(document))
