"""The page as one HTML file. All data of a run is shown as text, never as markup.

The page's policy allows only the scripts and the style in the page, by their digests, and no network. The run's data is
a JSON block without any `<`, so no data can end the block.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from string import Template

from muster.report.packed_rows import Texts, packed_replicas
from muster.report.page_model import Fact, Page

_SCRIPTS = ("uplot.min.js", "data.js", "segments.js", "timeline.js", "charts.js", "rounds.js", "page.js")
_STYLES = ("uplot.min.css", "page.css")


def render(page: Page, *, live: bool = False) -> bytes:
    """The file. A `live` page polls its server for newer data."""
    scripts, style = _scripts(), _style()
    policy = [
        "default-src 'none'",
        f"script-src {' '.join(map(_source, scripts))}",
        f"style-src {_source(style)}",
        "img-src data:",
        *(["connect-src 'self'"] if live else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    values = {
        "policy": html.escape("; ".join(policy)),
        "title": html.escape(f"{page.run}: {page.state}"),
        "run": html.escape(page.run),
        "state": html.escape(page.state),
        "verdict": html.escape(page.verdict),
        "problems": "".join(f"<p>{html.escape(problem)}</p>" for problem in page.problems),
        "nowhy": "" if page.problems else " hidden",
        "time": html.escape(" ".join(page.time)),
        "notime": "" if page.time else " hidden",
        "facts": "".join(map(_fact, page.facts)),
        "mode": "live" if live else "still",
        "style": style,
        "data": data_block(page),
        "scripts": "\n".join(f"<script>{script}</script>" for script in scripts),
    }
    return Template(_asset("page.html")).substitute(values).encode()


def page_json(page: Page) -> str:
    """The page's data, without empty fields; the replicas as columns (see `packed_rows`)."""
    document = page.model_dump(mode="json", exclude_none=False, exclude_defaults=True)
    texts = Texts()
    document["replicas"] = packed_replicas(document["replicas"], texts)
    document["texts"] = texts.all
    return json.dumps(_finite(document), separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def data_block(page: Page) -> str:
    """The data as HTML can contain it: no text of a run can look like a tag or a comment."""
    return page_json(page).replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _fact(fact: Fact) -> str:
    note = f"<small>{html.escape(fact.note)}</small>" if fact.note else ""
    return f"<div><dt>{html.escape(fact.label)}</dt><dd>{html.escape(fact.value)}{note}</dd></div>"


def _finite(value: object) -> object:
    """Replaces NaN and infinity, which JSON does not have."""
    if isinstance(value, float):
        return value if value - value == 0 else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


@cache
def _source(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@cache
def _scripts() -> tuple[str, ...]:
    return tuple(_asset(name).strip() for name in _SCRIPTS)


@cache
def _style() -> str:
    return "\n".join(_asset(name).strip() for name in _STYLES)


@cache
def _asset(name: str) -> str:
    return resources.files("muster.report").joinpath("assets", name).read_text(encoding="utf-8")
