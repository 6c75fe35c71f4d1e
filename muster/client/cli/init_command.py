"""The command that writes a spec and code to start with."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from muster.client.cli.json_answers import StarterWritten
from muster.client.cli.option_groups import Json, grouped
from muster.client.cli.output import print_answer, write_whole
from muster.client.client_errors import FilesExistError, SpecWriteError, UsageError, os_reason
from muster.client.starter.frameworks import PYTORCH, Kind, all_starters

if TYPE_CHECKING:
    from muster.client.starter.starter_files import Wish

STANDARD_OUTPUT = "-"
_REPLICAS = 4
if TYPE_CHECKING:
    Framework = str
else:
    # Which ones there are depends on the options; Typer shows the members of an enumeration as the choices.
    Framework = StrEnum("Framework", {name: name for name in all_starters()})


@dataclass(frozen=True)
class StarterOptions:
    """What a user wants to start with, as far as it is said."""

    framework: Annotated[
        Framework | None, typer.Option("--framework", "-f", help="What the trainer uses; default pytorch.")
    ] = None
    kind: Annotated[
        Kind | None,
        typer.Option(
            "--kind",
            help="A function with which all replicas train one model, or a program for each replica by itself.",
        ),
    ] = None
    data: Annotated[
        str | None,
        typer.Option(
            "--data", metavar="S3-PREFIX", help="Prefix of training data in S3; it becomes the channel train."
        ),
    ] = None
    replicas: Annotated[int | None, typer.Option("--replicas", help=f"How many replicas; default {_REPLICAS}.")] = None
    own: Annotated[
        str | None,
        typer.Option("--from", metavar="CODE", help="Your own code: train.py, or package.module:function."),
    ] = None
    every_field: Annotated[
        bool, typer.Option("--every-field", help="Add every other field of a spec, with its default and meaning.")
    ] = False

    def check(self) -> None:
        """Return if the options go together.

        Raises:
            UsageError: they do not.
        """
        if self.own is not None and (self.framework, self.kind) != (None, None):
            message = "--from is for code that is there, --framework and --kind are for new code: give one of them"
            raise UsageError(message)
        if self.kind is Kind.SCRIPT and self.framework is not None:
            message = "--kind script writes a program without a framework: leave --framework out"
            raise UsageError(message)

    def wish(self, place: Path) -> Wish:
        """The choice, with the defaults; code of the user's own is read from the folder `place`."""
        from muster.client.starter.own_code import read_own_code  # noqa: PLC0415
        from muster.client.starter.starter_files import Wish  # noqa: PLC0415

        return Wish(
            framework=self.framework or PYTORCH,
            kind=self.kind or Kind.FUNCTION,
            data=self.data,
            replicas=_REPLICAS if self.replicas is None else self.replicas,
            own=None if self.own is None else read_own_code(self.own, place),
            every_field=self.every_field,
        )


@grouped
def init(
    wanted: StarterOptions,
    folder: Annotated[str, typer.Argument(metavar="FOLDER", help="Where to write; - prints the spec alone.")] = ".",
    *,
    json: Json = False,
) -> None:
    """Write a spec and a trainer that runs as it is, or a spec for your own code. Without options it asks."""
    from muster.client.starter.starter_files import SPEC_FILE, starter_files  # noqa: PLC0415

    wanted.check()
    place = Path() if folder == STANDARD_OUTPUT else Path(folder)
    asks = wanted == StarterOptions() and not json and folder != STANDARD_OUTPUT and sys.stdin.isatty()
    wish = _asked() if asks else wanted.wish(place)
    made = starter_files(wish)
    if folder == STANDARD_OUTPUT:
        made = {SPEC_FILE: made[SPEC_FILE]}
    else:
        _write_new(place, made)
    if json:
        text = made[SPEC_FILE] if folder == STANDARD_OUTPUT else None
        print_answer(StarterWritten(files=() if text else tuple(str(place / name) for name in made), text=text))
    elif folder == STANDARD_OUTPUT:
        typer.echo(made[SPEC_FILE], nl=False)
    else:
        _show(place, made, wish)


def _asked() -> Wish:
    """What the user answers, question by question."""
    from muster.client.starter.starter_files import Wish  # noqa: PLC0415

    typer.echo("What do the replicas run?")
    typer.echo("  function  a function with which all replicas train one model")
    typer.echo("  script    a program that each replica runs by itself")
    kind = Kind(_choice("Kind", Kind, Kind.FUNCTION.value))
    framework = PYTORCH
    if kind is Kind.FUNCTION:
        for name, (starter, _) in all_starters().items():
            typer.echo(f"  {name:<12} {starter.words}")
        framework = _choice("Framework", all_starters(), PYTORCH)
    data = typer.prompt("Data in S3 (s3://bucket/prefix/, or nothing for made-up data)", default="", show_default=False)
    replicas = typer.prompt("Replicas", default=_REPLICAS, type=int)
    return Wish(framework=framework, kind=kind, data=data.strip() or None, replicas=replicas)


def _choice(question: str, choices: Iterable[str], default: str) -> str:
    known = list(choices)
    while (answer := str(typer.prompt(question, default=default)).strip()) not in known:
        typer.echo(f"Write one of {', '.join(known)}.")
    return answer


def _write_new(folder: Path, made: dict[str, str]) -> None:
    """Write all files, or none if one of them is there already."""
    there = [str(folder / name) for name in made if (folder / name).exists()]
    if there:
        raise FilesExistError(there)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecWriteError(str(folder), os_reason(error)) from error
    for name, text in made.items():
        try:
            write_whole(folder / name, text)
        except OSError as error:
            raise SpecWriteError(str(folder / name), os_reason(error)) from error


def _show(folder: Path, made: dict[str, str], wish: Wish) -> None:
    from muster.client.starter.starter_files import SPEC_FILE  # noqa: PLC0415

    spec = folder / SPEC_FILE
    typer.echo(f"Wrote {', '.join(str(folder / name) for name in made)}.")
    if wish.own is not None and wish.own.hook is not None:
        typer.echo(
            f"{wish.own.script} makes a Trainer, which hook lets train one model with all replicas. Give each replica "
            "data of its own, by `overrides` for example."
        )
    elif wish.own is not None and wish.own.trainer is None:
        typer.echo(
            f"{wish.own.script} has no function that takes the context, so each replica runs it by itself. To train "
            "one model with all replicas, make its main function a trainer, as `muster init DIR -f pytorch` writes one."
        )
    typer.echo(f"Next: `muster plan {spec}` shows what it needs and costs, `muster launch {spec} --watch` starts it.")
