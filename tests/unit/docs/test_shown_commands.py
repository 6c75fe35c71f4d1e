"""Every `muster …` that a page, an example or an error message shows is a command line that can be read."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from click import ClickException

from docs.commands_reference import commands

ROOT = Path(__file__).resolve().parents[3]
PLACES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").glob("*/*.yaml")),
    *sorted((ROOT / "muster").rglob("*.py")),
    *sorted((ROOT / "infra").rglob("*.py")),
]
COMMANDS = dict(commands())
GROUPS = {path.split()[0] for path in COMMANDS if " " in path}
OF_TYPER = {"--help", "--version", "--install-completion", "--show-completion"}


class Shown(NamedTuple):
    """A command line without the program's name. `whole`: it stands for itself in a shell, and not in a sentence."""

    text: str
    whole: bool


def shown_in(path: Path) -> Iterator[Shown]:
    text = path.read_text(encoding="utf-8")
    for block in re.findall(r"^```console\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        for line in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
            yield from (Shown(found, whole=True) for found in re.findall(r"(?:^|/|\$\()muster ([^#|;)]*)", line))
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from (Shown(found, whole=False) for found in re.findall(r"`(?:eval \"\$\()?muster ([^`{)|][^`)|]*)", outside))


def words_of(text: str) -> list[str]:
    """The words of a command line; what says that more may follow, or may be left out, is none."""
    plain = re.sub(r"[\[\]]|\.\.\.|…", " ", text.replace('"', " "))
    return shlex.split(plain)


def command_of(words: list[str]) -> tuple[Any, list[str]]:
    length = 2 if words[0] in GROUPS else 1
    return COMMANDS[" ".join(words[:length])], words[length:]


ALL = {(path.relative_to(ROOT).as_posix(), shown) for path in PLACES for shown in shown_in(path)}


def problem_of(shown: Shown) -> str | None:
    """Why a command line cannot be read."""
    words = words_of(shown.text)
    named = [word for word in words if not word.startswith("-")]
    if not named or named in [[group] for group in GROUPS]:
        unknown = set(words) - OF_TYPER - GROUPS
        return f"unknown: {sorted(unknown)}" if unknown else None
    try:
        command, rest = command_of(words)
    except KeyError as error:
        return f"no such command: {error}"
    options = {name for param in command.params for name in [*param.opts, *param.secondary_opts]} | OF_TYPER
    own = rest[: rest.index("--")] if "--" in rest else rest
    if unknown := [word for word in own if word.startswith("-") and word != "-" and word not in options]:
        return f"unknown options: {unknown}"
    if shown.whole:
        try:
            command.make_context("muster", rest)
        except ClickException as error:
            return error.format_message()
    return None


def test_every_command_that_is_shown_can_be_read() -> None:
    problems = {f"{place}: {shown.text}": problem_of(shown) for place, shown in sorted(ALL)}
    assert {command: problem for command, problem in problems.items() if problem} == {}
    assert ("docs/tutorial/demo.md", Shown("launch first/run.yaml --name first --watch", whole=True)) in ALL
    assert ("docs/local.md", Shown("local exec -- muster deploy --target local", whole=False)) in ALL
