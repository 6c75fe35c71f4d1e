"""The page of the runs of a stack: its contents, and the file."""

from __future__ import annotations

import html
from typing import Annotated

from pydantic import Field

from muster.contract.document import Document
from muster.contract.run.ended_run import RunLine
from muster.contract.timestamps import Timestamp
from muster.report.html_file import FileParts, html_file

RUNS_PAGE_VERSION = 1
_PARTS = FileParts(template="runs.html", scripts=("data.js", "runs.js"), styles=("page.css", "runs.css"))


class RunRow(RunLine):
    """One run."""

    state: str
    seconds: float = Field(description="until its end, or until the page was made")
    link: str = Field(description="its page in the S3 console; of a run that has none its execution")


class RunsPage(Document):
    """Everything that the page shows."""

    version: Annotated[int, Field(ge=RUNS_PAGE_VERSION, le=RUNS_PAGE_VERSION)] = RUNS_PAGE_VERSION
    stack: str
    region: str
    made_at: Timestamp
    more: bool = Field(description="whether there are older runs that the page does not show")
    prices: str = Field(description="what the costs are computed with")
    runs: tuple[RunRow, ...] = Field(description="the newest first")


def render_runs(page: RunsPage) -> bytes:
    """The page as one HTML file. All data of the runs is shown as text, never as markup."""
    values = {"title": html.escape(f"Runs of {page.stack}"), "stack": html.escape(page.stack)}
    return html_file(_PARTS, values, page.to_line())
