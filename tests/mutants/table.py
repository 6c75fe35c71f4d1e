"""The mutants, read from the TOML files beside this one."""

import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.support.source_patch import Patch

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Mutant:
    """One piece of code that is changed."""

    name: str
    """What the product does no longer."""
    test: str
    """The test that must fail, as `file::function`."""
    patch: Patch


def mutants() -> list[Mutant]:
    """Every mutant, in the order of the files."""
    rows = [row for path in sorted(FOLDER.glob("*.toml")) for row in tomllib.loads(path.read_text())["mutant"]]
    return [
        Mutant(row["name"], row["test"], Patch(row["file"], row["function"], row["before"], row["after"]))
        for row in rows
    ]
