"""The page as one HTML file. All data of a run is shown as text, never as markup."""

from __future__ import annotations

import base64
import gzip
import html
import re

from muster.report.figures import Fact
from muster.report.html_file import FileParts, html_file
from muster.report.page_model import Page

_PARTS = FileParts(
    template="page.html",
    scripts=(
        *("uplot.min.js", "data.js", "segments.js", "timeline.js", "charts.js", "rounds.js"),
        *("seats.js", "sweep.js", "page.js"),
    ),
    styles=("uplot.min.css", "page.css"),
)


def render(page: Page, *, live: bool = False) -> bytes:
    """The file. A `live` page polls its server for newer data."""
    values = {
        "title": html.escape(f"{page.run}: {page.state}"),
        "run": html.escape(page.run),
        "state": html.escape(page.state),
        "verdict": _prose(page.verdict),
        "problems": "".join(f"<p>{_prose(problem)}</p>" for problem in page.problems),
        "nowhy": "" if page.problems else " hidden",
        "time": html.escape(" ".join(page.time)),
        "notime": "" if page.time else " hidden",
        "facts": "".join(map(_fact, page.facts)),
        "mode": "live" if live else "still",
    }
    # Replicas are much alike: a thousand of them take a third of the bytes.
    data = base64.b64encode(gzip.compress(page_json(page).encode(), mtime=0)).decode()
    return html_file(_PARTS, values, data, live=live)


def page_json(page: Page) -> str:
    """The page's data, without empty fields. NaN and infinity, which JSON does not have, are null."""
    return page.model_dump_json(exclude_defaults=True)


def _prose(text: str) -> str:
    """What stands between backticks as code; the page's `prose` does the same."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text))


def _fact(fact: Fact) -> str:
    note = f"<small>{html.escape(fact.note)}</small>" if fact.note else ""
    return f"<div><dt>{html.escape(fact.label)}</dt><dd>{html.escape(fact.value)}{note}</dd></div>"
