"""`muster deadletters`: the events that the stack's functions did not handle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.aws.dead_letter_queue import LISTED_MAX
from muster.client.cli.exit_codes import ExitCode
from muster.client.cli.option_groups import Json, StackOptions, grouped
from muster.client.cli.output import busy, print_either, require_terminal
from muster.client.client_errors import UsageError

if TYPE_CHECKING:
    from muster.client.runs.dead_letter import DeadLetter

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="Show, replay or drop the events that the functions of the stack did not handle.",
)

Ids = Annotated[list[str] | None, typer.Argument(metavar="ID...", help="The letters, as `list` shows them.")]


@app.command(name="list")
@grouped
def list_letters(
    stack: StackOptions,
    *,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="Show at most this many.")] = LISTED_MAX,
    json: Json = False,
) -> None:
    """Show the dead letters: which event, for which function, and why it was given up. Changes nothing."""
    with busy("Reading the dead-letter queue"):
        found = stack.muster().dead_letters(limit)
    print_either(found, _list_lines(found.letters), as_json=json)


@app.command()
@grouped
def replay(
    stack: StackOptions,
    ids: Ids = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Replay all letters.")] = False,
    json: Json = False,
) -> None:
    """Call the functions again with the same events. A letter is deleted when Lambda has accepted its event."""
    wanted = _wanted(ids, every=every)
    with busy("Replaying"):
        answer = stack.muster().replay_dead_letters(wanted)
    print_either(answer, _replay_lines(answer.replayed, answer.kept), as_json=json)
    if answer.kept:
        raise typer.Exit(ExitCode.RUN_FAILED)


@app.command()
@grouped
def drop(
    stack: StackOptions,
    ids: Ids = None,
    *,
    every: Annotated[bool, typer.Option("--all", help="Drop all letters.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete letters. Their events are lost."""
    wanted = _wanted(ids, every=every)
    what = "all letters" if wanted is None else f"{len(wanted)} letter{'s' if len(wanted) > 1 else ''}"
    if not yes:
        require_terminal(f"add --yes to delete {what}", as_json=json)
        if not typer.confirm(f"Delete {what}? Their events are lost.", default=False):
            raise typer.Exit(ExitCode.INTERRUPTED)
    with busy("Deleting"):
        answer = stack.muster().drop_dead_letters(wanted)
    lines = [f"{letter.id}: dropped" for letter in answer.dropped] or ["No dead letters."]
    print_either(answer, lines, as_json=json)


def _wanted(ids: Sequence[str] | None, *, every: bool) -> list[str] | None:
    """The ids that were named; None for all."""
    if bool(ids) == every:
        message = "name the letters by their ids, or all of them with --all"
        raise UsageError(message)
    return None if every else list(ids or ())


def _list_lines(letters: Sequence[DeadLetter]) -> Iterator[str]:
    for letter in letters:
        yield f"{letter.id}  {letter.at}  {letter.function or 'no function'}: {letter.event}"
        yield f"    {letter.given_up_by}: {letter.error}"
        if letter.obstacle is not None:
            yield f"    cannot be replayed: {letter.obstacle}"
    if letters:
        yield "Mend the cause, then `muster deadletters replay ID` or `--all`. `drop` deletes letters."
    else:
        yield "No dead letters. One that another command is reading is hidden for up to five minutes."


def _replay_lines(replayed: Sequence[DeadLetter], kept: Sequence[DeadLetter]) -> Iterator[str]:
    for letter in replayed:
        yield f"{letter.id}: {letter.function} is called again"
    for letter in kept:
        yield f"{letter.id}: cannot be replayed: {letter.obstacle}"
    if not (replayed or kept):
        yield "No dead letters."
