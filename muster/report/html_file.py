"""One HTML file with its scripts, its style and its data in it.

The file's policy allows only the scripts and the style in it, by their digests, and no network. The data is a
block without any `<`, so no data can end the block.
"""

from __future__ import annotations

import base64
import hashlib
import html
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template


@dataclass(frozen=True)
class FileParts:
    """The assets of a file."""

    template: str
    scripts: tuple[str, ...]
    styles: tuple[str, ...]


def html_file(parts: FileParts, values: Mapping[str, str], data: str, *, live: bool = False) -> bytes:
    """The file: the template with `values`, which are HTML, and `data`, a text. A `live` one asks its server."""
    known = {**values, **_fixed(parts, live), "data": script_data(data)}
    return Template(_asset(parts.template)).substitute(known).encode()


@cache
def _fixed(parts: FileParts, live: bool) -> dict[str, str]:
    """What is in all files of these parts."""
    scripts = [_asset(name).strip() for name in parts.scripts]
    style = "\n".join(_asset(name).strip() for name in parts.styles)
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(map(_source, scripts))}",
        f"style-src {_source(style)}",
        "img-src data:",
        *(["connect-src 'self'"] if live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return {
        "policy": html.escape("; ".join(policy)),
        "style": style,
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }


def script_data(data: str) -> str:
    """JSON as HTML can contain it: no text in it can look like a tag or a comment."""
    return data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _asset(name: str) -> str:
    return resources.files("muster.report").joinpath("assets", name).read_text(encoding="utf-8")
