"""What commands print: documents for scripts, lines for people."""

from __future__ import annotations

import json
import sys
from typing import Any

from muster.contract.errors import MusterError, SpecError


def print_json(value: Any) -> None:
    """`value` as JSON on one line of standard output."""
    sys.stdout.write(json.dumps(value, sort_keys=True, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_error(error: MusterError, *, as_json: bool) -> None:
    """The error for people on standard error; with `as_json` also as a document on standard output."""
    sys.stderr.write(f"muster: {error}\n")
    if as_json:
        document: dict[str, Any] = {"code": error.code, "message": str(error)}
        if isinstance(error, SpecError):
            document["problems"] = [
                {"field": item.field, "found": item.found, "allowed": item.allowed, "remedy": item.remedy}
                for item in error.problems
            ]
        print_json({"error": document})
