"""The page of the runs of a stack, made from a list of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from muster.client.aws.deployed_stack import Stack
from muster.client.runs.run_list import RunSummary
from muster.contract import timestamps
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.names import run_name
from muster.contract.run.ended_run import RunLine
from muster.report.links import console_links, object_link
from muster.report.runs_page import RunRow, RunsPage


def runs_page(stack: Stack, runs: Sequence[RunSummary], *, more: bool) -> RunsPage:
    """The page of these runs of the stack; `more`: there are others."""
    now = timestamps.text(datetime.now(UTC))
    return RunsPage(
        stack=stack.name,
        region=stack.state_machine_arn.split(":")[3],
        made_at=now,
        more=more,
        prices=f"instances alone, at on-demand prices of {SHIPPED_PRICES.region}, {SHIPPED_PRICES.as_of}",
        runs=tuple(_row(stack, run, now) for run in runs),
    )


def _row(stack: Stack, run: RunSummary, now: str) -> RunRow:
    return RunRow(
        **{name: getattr(run, name) for name in RunLine.model_fields},
        state=run.state,
        seconds=max(0.0, timestamps.seconds_between(run.started_at, run.ended_at or now)),
        link=_link(stack, run),
    )


def _link(stack: Stack, run: RunSummary) -> str:
    arn = stack.execution_arn(run.run)
    if run.ended_at is None or run.reruns is None:
        return console_links(arn, stack.job_prefix).execution
    return object_link(arn, s3_uri(stack.bucket, RunLayout(run_name(run.run)).page))
