"""What commands print: documents for scripts, lines for people."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

from muster.contract.errors import MusterError, SpecError

# What moves a terminal's cursor, its title or its direction of writing: C0 but for the tab, DEL, C1, bidi controls.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """`text` from a container, as it may be shown on a terminal: its control characters are spelled out."""
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def print_json(value: Any) -> None:
    """`value` as JSON on one line of standard output, without a raw control character in it."""
    text = json.dumps(value, sort_keys=True, ensure_ascii=False)
    sys.stdout.write(_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
    sys.stdout.flush()


def _lines(text: str) -> str:
    """`text` of several lines of ours, with `visible` done to each."""
    return "\n".join(map(visible, text.split("\n")))


def print_error(error: MusterError, *, as_json: bool) -> None:
    """The error for people on standard error; with `as_json` also as a document on standard output."""
    sys.stderr.write(f"muster: {_lines(str(error))}\n")
    if as_json:
        document: dict[str, Any] = {"code": error.code, "message": str(error)}
        if isinstance(error, SpecError):
            document["problems"] = [
                {"field": item.field, "found": item.found, "allowed": item.allowed, "remedy": item.remedy}
                for item in error.problems
            ]
        print_json({"error": document})
