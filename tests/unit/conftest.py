"""A unit test starts no cloud, and no module of unit tests imports a framework."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent
_CLOUD = re.compile(r"muster\.local[.\w]*\.(daemon|cloud)")
_running = False
_FRAMEWORKS = {"torch", "jax", "transformers", "lightning"}
_imported: dict[str, set[str]] = {}


def _refuse_a_cloud(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or not _running:
        return
    command = arguments[1]
    words = [str(word) for word in ([command] if isinstance(command, str | bytes) else command)]
    if any(map(_CLOUD.search, words)) or {"local", "up"} <= set(words):
        pytest.fail(f"A unit test starts no embedded cloud: move the test to tests/e2e. It starts {words}")


# An audit hook, for the command that starts a cloud is the same from every place.
sys.addaudithook(_refuse_a_cloud)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Refuse a cloud while a test of this folder and its fixtures run; pytest calls this for every test."""
    global _running  # noqa: PLW0603 - an audit hook stays for the process's life
    _running = item.path.is_relative_to(_FOLDER)
    try:
        return (yield)
    finally:
        _running = False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Iterator[pytest.CollectReport]:
    """Note which frameworks a module of this folder imports: `make unit` works where none is installed."""
    before = _FRAMEWORKS & sys.modules.keys()
    report = yield
    if isinstance(collector, pytest.Module) and collector.path.is_relative_to(_FOLDER):
        _imported[collector.nodeid] = _FRAMEWORKS & sys.modules.keys() - before
    return report


@pytest.fixture
def frameworks_of_modules() -> dict[str, set[str]]:
    """The frameworks that each module of unit tests was the first to import, by the module's node."""
    return _imported
