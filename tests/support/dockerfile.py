"""Dockerfiles as far as their instructions can be held without Docker."""

import re
from pathlib import Path
from typing import NamedTuple

_ARGUMENT = re.compile(r"\$\{(\w+)\}")


class Instruction(NamedTuple):
    """One instruction, with its lines joined."""

    name: str
    value: str


def instructions(path: Path) -> list[Instruction]:
    """The instructions of a Dockerfile, in order; build arguments have their defaults."""
    lines = [line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\s*\\\n\s*", " ", "\n".join(lines))
    defaults: dict[str, str] = {}
    found = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, value = line.partition(" ")
        if name == "ARG":
            argument, _, default = value.partition("=")
            defaults[argument] = default
        found.append(Instruction(name, _ARGUMENT.sub(lambda match: defaults[match[1]], value)))
    return found
