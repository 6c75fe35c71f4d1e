"""Commands of other packages, mounted under `muster` from the entry point group `muster.commands`.

An entry point names a Typer app. It is imported when its command runs, not before: `muster --help` must stay quick.
"""

from __future__ import annotations

import ast
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from muster.contract.errors import MusterError

GROUP = "muster.commands"


class MissingExtraError(MusterError):
    """A mounted command whose own packages are not installed."""

    def __init__(self, entry_point: EntryPoint, module: str) -> None:
        extras = ",".join(entry_point.extras)
        # Not by a name of the index, where `muster` is somebody else's package.
        remedy = f"run pip install '.[{extras}]' in a clone of Muster" if extras else f"install {module}"
        super().__init__(f"`muster {entry_point.name}` needs the module {module}, which is not installed: {remedy}.")


class MountedCommand(TyperCommand):
    """Stands for a command that has not been imported."""

    def __init__(self, entry_point: EntryPoint) -> None:
        super().__init__(
            name=entry_point.name, callback=None, help=_first_line(entry_point.module), add_help_option=False
        )
        self._entry_point = entry_point

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the real command, which takes over from here."""
        try:
            app = self._entry_point.load()
        except ModuleNotFoundError as error:
            raise MissingExtraError(self._entry_point, error.name or str(error)) from error
        command = get_command(app) if isinstance(app, typer.Typer) else app
        return command.make_context(info_name, args, parent, **extra)


class MountingGroup(TyperGroup):
    """Our own commands, then those of other packages by name."""

    @cached_property
    def _mounted(self) -> dict[str, MountedCommand]:
        found = entry_points(group=GROUP)
        return {entry.name: MountedCommand(entry) for entry in sorted(found, key=lambda entry: entry.name)}

    def list_commands(self, ctx: Any) -> list[str]:
        """Every command's name: ours in the order of a run's life, then the mounted ones."""
        own = super().list_commands(ctx)
        return [*own, *(name for name in self._mounted if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command named `cmd_name`; ours win over mounted ones."""
        return super().get_command(ctx, cmd_name) or self._mounted.get(cmd_name)


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read without running the module or a package above it."""
    source = _source(module)
    documentation = ast.get_docstring(ast.parse(source.read_text(encoding="utf-8"))) if source else None
    return (documentation or "").partition("\n")[0]


def _source(module: str) -> Path | None:
    # find_spec would import the parents of a dotted name; of a plain name it imports nothing.
    top, *rest = module.split(".")
    spec = find_spec(top)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder, *rest)
        for candidate in (path.with_suffix(".py"), path / "__init__.py"):
            if candidate.is_file():
                return candidate
    return None
