"""Reading a spec from a file or from standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from muster.client.errors import SpecFileError, os_reason
from muster.contract.spec.spec_reader import parse_spec, parse_spec_text

if TYPE_CHECKING:
    from muster.contract.spec.spec import Spec


def read_spec(path: str, name: str | None = None) -> Spec:
    """The spec in the file `path` (- is standard input), as the run `name`; its `source_dir` is beside the file.

    Raises:
        SpecFileError: the file cannot be read.
        SpecError: the spec has problems.
    """
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise SpecFileError(path, os_reason(error)) from error
    except UnicodeDecodeError as error:
        raise SpecFileError(path, "it is not UTF-8 text") from error
    spec = parse_spec_text(text)
    if name is not None:
        spec = parse_spec({**spec.model_dump(mode="json", exclude_unset=True), "name": name})
    if spec.source_dir is None or spec.delivered:
        return spec
    beside = Path() if path == "-" else Path(path).parent
    return spec.model_copy(update={"source_dir": str(beside / spec.source_dir)})
