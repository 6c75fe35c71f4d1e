"""What tests import and start: no other tests, no cloud or framework in unit tests, only programs that are named."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
_OURS = r"((?:tests|bench|docs)\b[\w.]*)"
_IMPORT = re.compile(rf"^[ ]*(?:from {_OURS} import (\([^)]*\)|.*)|import {_OURS})", re.MULTILINE)
_TEST = re.compile(r"^(?:(?:async )?def test|class Test)", re.MULTILINE)


def imported(source: str) -> set[str]:
    """The names that a module imports from `tests`, `bench` and `docs`, as `from` and `import` write them, dotted."""
    found: set[str] = set()
    for module, names, whole in _IMPORT.findall(source):
        found |= {module or whole, *(f"{module}.{name}" for name in re.findall(r"\w+", names))}
    return found


def module_of(path: Path) -> str:
    return ".".join(("tests", *path.relative_to(TESTS).with_suffix("").parts))


def test_no_test_imports_a_module_that_has_tests_or_fixtures() -> None:
    sources = {module_of(path): path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    closed = {name for name, source in sources.items() if _TEST.search(source) or name.endswith(".conftest")}
    assert len(closed) > 100
    found = {name: sorted(imported(source) & closed) for name, source in sources.items()}
    assert {name: names for name, names in found.items() if names} == {}


def test_no_module_of_unit_tests_imports_a_framework(frameworks_of_modules: dict[str, set[str]]) -> None:
    assert any(node.endswith(Path(__file__).name) for node in frameworks_of_modules)
    assert {node: found for node, found in frameworks_of_modules.items() if found} == {}


NAMED_BY = {
    "chromium": re.compile(r'"chromium"|bench\.browser'),
    "tmux": re.compile(r'"tmux"'),
    "qemu": re.compile(r'"qemu-aarch64'),
    "cc": re.compile(r'"cc"'),
}
"""How a module names a program that it starts."""
STARTED_FROM = {
    "unit": ["tests/unit"],
    "test": [f"tests/{folder.name}" for folder in (ROOT / "tests").iterdir() if folder.name != "release"],
    "test-release": ["tests"],
    "bench": ["bench"],
    "screenshots": ["docs/screenshots.py"],
}


def modules_from(*places: str) -> Iterator[Path]:
    """The files under these places, and the modules of tests, bench and docs that they import, one after another."""
    waiting = [file for place in places for file in [ROOT / place, *(ROOT / place).rglob("*.py")] if file.is_file()]
    seen: set[Path] = set()
    while waiting:
        file = waiting.pop()
        if file in seen or file.name in {"test_machine.py", Path(__file__).name}:  # They name them to look at them.
            continue
        seen.add(file)
        yield file
        for name in imported(file.read_text(encoding="utf-8")):
            path = ROOT.joinpath(*name.split(".")).with_suffix(".py")
            waiting += [path] if path.exists() else []


def test_a_target_asks_for_the_programs_that_its_modules_start() -> None:
    recipe = "".join(f"\t@echo $(SYSTEM.{target})\n" for target in STARTED_FROM)
    command = ["make", "-f", "Makefile", "-f", "-", "--no-print-directory", "print-system"]
    environment = {"PATH": os.environ["PATH"]}
    printed = subprocess.check_output(command, input=f"print-system:\n{recipe}", cwd=ROOT, env=environment, text=True)
    for (target, places), asked in zip(STARTED_FROM.items(), printed.splitlines(), strict=True):
        texts = [file.read_text(encoding="utf-8") for file in modules_from(*places)]
        started = {program for program, name in NAMED_BY.items() if any(map(name.search, texts))}
        assert set(asked.split()) == started, target
