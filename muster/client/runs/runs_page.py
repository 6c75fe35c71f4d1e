"""The page of the runs of a stack, made from a list of them."""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from muster.client.aws.deployed_stack import Stack
from muster.client.runs.run_list import RunSummary
from muster.contract import timestamps
from muster.contract.aws.partitions import Locality
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.document import Document
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.names import run_name
from muster.contract.timestamps import Timestamp
from muster.report.html_file import FileParts, html_file
from muster.report.links import console_links, object_link

RUNS_PAGE_VERSION = 1
_PARTS = FileParts(template="runs.html", scripts=("data.js", "runs.js"), styles=("page.css", "runs.css"))


class RunRow(RunSummary):
    """One run."""

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


def runs_page(stack: Stack, runs: Sequence[RunSummary], *, more: bool) -> RunsPage:
    """The page of these runs of the stack; `more`: there are others."""
    now = timestamps.text(datetime.now(UTC))
    return RunsPage(
        stack=stack.name,
        region=Locality.of_arn(stack.state_machine_arn).region,
        made_at=now,
        more=more,
        prices=f"instances alone, at on-demand prices of {SHIPPED_PRICES.region}, {SHIPPED_PRICES.as_of}",
        runs=tuple(_row(stack, run, now) for run in runs),
    )


def _row(stack: Stack, run: RunSummary, now: str) -> RunRow:
    seconds = max(0.0, timestamps.seconds_between(run.started_at, run.ended_at or now))
    return RunRow(**dict(run), seconds=seconds, link=_link(stack, run))


def _link(stack: Stack, run: RunSummary) -> str:
    arn = stack.execution_arn(run.run)
    if run.ended_at is None or run.reruns is None:
        return console_links(arn, stack.job_prefix).execution
    return object_link(arn, s3_uri(stack.bucket, RunLayout(run_name(run.run)).page))


def render_runs(page: RunsPage) -> bytes:
    """The page as one HTML file. All data of the runs is shown as text, never as markup."""
    values = {"title": html.escape(f"Runs of {page.stack}"), "stack": html.escape(page.stack)}
    return html_file(_PARTS, values, page.to_line())
