"""What an installation without an extra says: which one brings what is missing, before anything is done."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from muster.client.cli import lazy_group
from muster.client.cli.lazy_group import EXTRAS, LazyCommand, MissingExtraError
from muster.client.cli.program import Commands

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None  # as if it were not installed
import muster
try:
    muster.DiLoCo
except ModuleNotFoundError as error:
    print(error)
"""


@pytest.mark.parametrize(("command", "extra"), [("deploy", "deploy"), ("template", "deploy"), ("local", "local")])
def test_a_command_without_its_extra_is_one_error_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch, command: str, extra: str
) -> None:
    missing = EXTRAS[extra][0]
    monkeypatch.setattr(lazy_group, "find_spec", lambda name: None if name == missing else find_spec(name))
    monkeypatch.setattr(lazy_group, "import_module", lambda name: pytest.fail(f"{name} was imported"))
    with pytest.raises(MissingExtraError) as refused:
        LazyCommand(command, Commands.table[command]).make_context(command, [])
    assert str(refused.value) == (
        f"`muster {command}` needs the module {missing}, which is not installed: run "
        f"pip install 'muster-train[{extra}]'."
    )


def brought_by(extra: str) -> set[str]:
    """The distributions that an extra brings itself, and through the extras that it names."""
    found: set[str] = set()
    for line in PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        if requirement.name == PROJECT["name"]:
            found |= set().union(*map(brought_by, requirement.extras))
        else:
            found.add(canonicalize_name(requirement.name))
    return found


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_brings_the_modules_that_are_looked_for(extra: str) -> None:
    distributions = packages_distributions()
    for module in EXTRAS[extra]:
        assert {canonicalize_name(name) for name in distributions[module]} & brought_by(extra), module


def test_a_trainers_names_say_which_extra_they_need() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_NUMPY], capture_output=True, text=True, check=True)
    assert done.stdout == "muster.DiLoCo needs the module numpy: run pip install 'muster-train[replica]'\n"
