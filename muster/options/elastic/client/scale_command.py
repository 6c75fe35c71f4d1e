"""`muster scale`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from muster.client.cli.option_groups import Json, RunName, StackOptions, grouped
from muster.client.cli.output import busy, print_either
from muster.client.runs.scaling import Scaled
from muster.report.seat_words import ranks_words, seat_lines, seats_text


@grouped
def scale(
    run: RunName,
    replicas: Annotated[int, typer.Argument(metavar="N", min=1, help="How many replicas are wanted.")],
    stack: StackOptions,
    *,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until who comes trains or lacks capacity, and the others have left."),
    ] = False,
    json: Json = False,
) -> None:
    """Change how many replicas an elastic run has, while it trains."""
    muster = stack.muster()
    with busy("Waiting for the replicas" if wait else "Asking for another number of replicas"):
        scaled = muster.scale(run, replicas, wait=wait)
    print_either(scaled, _lines(scaled), as_json=json)


def _lines(scaled: Scaled) -> Iterator[str]:
    wanted = f"{scaled.run}: {scaled.replicas:,} replica{'' if scaled.replicas == 1 else 's'} wanted"
    if scaled.before == scaled.replicas:
        yield f"{wanted}, as before."
    else:
        changes = ranks_words(scaled.opened, scaled.closed)
        yield f"{wanted} instead of {scaled.before:,}{f': {changes}' if changes else ''}."
    if scaled.replicas < scaled.asked:
        yield f"elastic.budget_usd_per_hour pays for no more; {scaled.asked:,} were asked for."
    if scaled.seats is None:
        yield f"Watch them with `muster status {scaled.run} --watch`."
    else:
        yield f"seats: {seats_text(scaled.seats)}"
        yield from seat_lines(scaled.seats)
