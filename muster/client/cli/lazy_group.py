"""A group of commands, each of which is imported only when it runs: `muster --help` stays quick."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from muster.contract.errors import MusterError

EXTRAS = {
    "local": ("hypercorn", "ministack", "numpy", "starlette"),
    "deploy": ("aws_cdk", "constructs", "uv"),
}
"""Modules that each extra of the distribution brings, and that something needs which a command starts."""


class CommandRow(NamedTuple):
    """Where a command is defined, and its line in `muster --help`: the first line of its docstring."""

    target: str
    """`module:name` of a function, or of a Typer app."""
    help: str
    extra: str = ""
    """The extra of the distribution without which the command cannot work."""


@dataclass(frozen=True)
class CommandOffer:
    """The commands that an option adds: its `OFFER` for the seam `client.commands`."""

    commands: Mapping[str, CommandRow]
    after: str
    """The command of the core that they follow in `muster --help`."""


def with_offered(table: Mapping[str, CommandRow], offered: Iterable[CommandOffer]) -> dict[str, CommandRow]:
    """The table with the commands that options add, each after the command of the core that its option names.

    Raises:
        ValueError: the table has no such command, or it or another option has a command of that name.
    """
    rows = list(table.items())
    # The last offer is set in first, so that offers for one place stand in their order.
    for offer in reversed(list(offered)):
        places = [name for name, _ in rows]
        if offer.after not in table or offer.commands.keys() & set(places):
            message = f"cannot add the commands {', '.join(offer.commands)} after {offer.after}"
            raise ValueError(message)
        at = places.index(offer.after) + 1
        rows[at:at] = offer.commands.items()
    return dict(rows)


class MissingExtraError(MusterError):
    """The packages that a command needs are not installed."""

    def __init__(self, command: str, extra: str, module: str) -> None:
        super().__init__(
            f"`muster {command}` needs the module {module}, which is not installed: run "
            f"pip install 'muster-train[{extra}]'."
        )


class LazyCommand(TyperCommand):
    """Stands for a command that has not been imported."""

    def __init__(self, name: str, row: CommandRow) -> None:
        super().__init__(name=name, callback=None, help=row.help, add_help_option=False)
        self._row = row

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which runs in the place of this one."""
        return self._load().make_context(info_name, args, parent, **extra)

    def _load(self) -> Any:
        # Before the command asks or makes anything, and whichever of its processes would need them.
        for needed in EXTRAS.get(self._row.extra, ()):
            if find_spec(needed) is None:
                raise MissingExtraError(str(self.name), self._row.extra, needed)
        if not self._row.extra:
            # Our documents need no plugin of pydantic, and a search for one reads the metadata of all that is
            # installed. Commands with an extra start programs of others, which inherit the environment.
            os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
        module, _, name = self._row.target.partition(":")
        found = getattr(import_module(module), name)
        if isinstance(found, typer.Typer):
            return _with_bare_flags(get_command(found))
        app = typer.Typer(add_completion=False)
        app.command(self.name)(found)
        return _with_bare_flags(get_command(app))


class LazyGroup(TyperGroup):
    """The commands of a table, in its order."""

    table: ClassVar[dict[str, CommandRow]] = {}

    def __init__(self, **options: Any) -> None:
        commands = {name: LazyCommand(name, row) for name, row in self.table.items()}
        super().__init__(**{**options, "commands": commands})

    def get_params(self, ctx: Any) -> list[Any]:
        """Its options, of which Typer adds some late."""
        return _bare_flags(super().get_params(ctx))


def _with_bare_flags(command: Any) -> Any:
    _bare_flags(command.get_params(command.context_class(command)))
    for inner in getattr(command, "commands", {}).values():
        _with_bare_flags(inner)
    return command


def _bare_flags(parameters: list[Any]) -> list[Any]:
    """The parameters, of which flags show no `<bool>` in a command's help: they take no value."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters
