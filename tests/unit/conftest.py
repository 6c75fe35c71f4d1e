"""A unit test starts no cloud."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

_FOLDER = Path(__file__).parent
_CLOUD = re.compile(r"muster\.local[.\w]*\.(daemon|cloud)")
_running = False


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
