"""The command that fetches the model of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from muster.client.cli.option_groups import Json, RunName, StackOptions, grouped
from muster.client.cli.output import after_interrupt, busy, print_either
from muster.client.runs.model_download import FetchedModel, ModelDownload


@grouped
def model(
    run: RunName,
    stack: StackOptions,
    *,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The folder; default RUN-model here.")] = None,
    rank: Annotated[int | None, typer.Option("--rank", "-r", help="Of a sweep: the replica whose model.")] = None,
    json: Json = False,
) -> None:
    """Fetch the model that a run leaves, and verify it. Files that are already there are not fetched again."""
    folder = out or Path(f"{run}-model" if rank is None else f"{run}-r{rank}-model")
    with busy("Reading the run"):
        download = stack.muster().run(run).model_download(folder, rank)
    try:
        fetched = _fetch(download)
    except KeyboardInterrupt:
        after_interrupt()
        typer.echo(f"What was fetched stays in {folder}: repeat the command to fetch the rest.", err=True)
        raise
    files = "1 file" if len(fetched.files) == 1 else f"{len(fetched.files)} files"
    line = f"{folder}: {files}, {fetched.bytes:,} bytes, of {fetched.run} after round {fetched.round}."
    print_either(fetched, [line], as_json=json)


def _fetch(download: ModelDownload) -> FetchedModel:
    """Fetch with a progress bar, where standard error is a terminal."""
    from rich.console import Console  # noqa: PLC0415
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    console = Console(stderr=True)
    columns = (TextColumn("Fetching"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=download.total_bytes, completed=download.present_bytes)
        return download.fetch(lambda count: progress.advance(task, count))
