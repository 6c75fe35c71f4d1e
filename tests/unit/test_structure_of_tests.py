"""How the tests are laid out: what they import from each other, and that a unit test starts no cloud."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from muster.local import LocalCloud
from tests.support.workshop import fast_settings

TESTS = Path(__file__).resolve().parents[1]


def imported(source: str) -> set[str]:
    """The names that a module imports from `tests`, as `from` and `import` write them, dotted."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name for name in found if name.split(".")[0] == "tests"}


def holds_tests(source: str) -> bool:
    """Whether pytest would find a test in a module."""
    return any(
        (isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test"))
        or (isinstance(node, ast.ClassDef) and node.name.startswith("Test"))
        for node in ast.parse(source).body
    )


def module_of(path: Path) -> str:
    return ".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts))


def test_no_test_imports_a_module_that_has_tests_or_fixtures() -> None:
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    closed = {name for name, text in sources.items() if holds_tests(text) or name.endswith(".conftest")}
    assert len(closed) > 100
    found = {name: sorted(imported(text) & closed) for name, text in sources.items()}
    assert {name: modules for name, modules in found.items() if modules} == {}


@pytest.mark.parametrize(
    "line",
    ["from tests.unit.test_a import x", "from tests.unit import test_a", "import tests.unit.test_a as x"],
)
def test_every_form_of_an_import_is_seen(line: str) -> None:
    assert "tests.unit.test_a" in imported(line)


def test_a_unit_test_starts_no_cloud(tmp_path: Path) -> None:
    refused = "A unit test starts no embedded cloud"
    with pytest.raises(pytest.fail.Exception, match=refused):
        LocalCloud.start(tmp_path, fast_settings())
    with pytest.raises(pytest.fail.Exception, match=refused):
        subprocess.run([sys.executable, "-m", "muster.client.cli.program", "local", "up"], check=True, cwd=tmp_path)
