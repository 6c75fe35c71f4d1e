"""Fixtures that every test may use."""

import ctypes
import gc
import resource
import signal
import subprocess
import sys
import unicodedata
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.internal.conjecture import providers

# Tests assert behaviour, not time; and what fails here must fail again on another machine.
settings.register_profile("muster", deadline=None, derandomize=True)
settings.load_profile("muster")
# Nor may the examples depend on what a worker imported before: they would draw on constants of those modules.
assert callable(providers._get_local_constants)
_no_constants = providers._local_constants
providers._get_local_constants = lambda: _no_constants

HERE = Path(__file__).parent
_M_ARENA_MAX = -8  # malloc.h: each thread would have an arena of its own, and keep what it once had
_MUCH = 50_000_000
LONGEST_FIRST = (
    "simulation",
    "faults",
    "unit/replica",  # of large arrays, which come while a worker holds little else
    "terminal",
    "workflow",
    "e2e",
    "infra",
    "integration",
    "page",
    "conformance",
)
"""Files and folders by the time that they take: a worker that begins a long file last keeps the others waiting."""

pytest_plugins = [f"tests.plugins.{path.stem}" for path in sorted(HERE.glob("plugins/[a-z]*.py"))]


def pytest_configure(config: pytest.Config) -> None:
    """Let the programs under test be interrupted, and look for garbage less often.

    What a shell starts in the background ignores SIGINT, and so do its children; CI may be started like that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A worker holds so much that it would look for garbage for a tenth of its time.
    gc.set_threshold(50_000, 20, 20)
    if sys.platform == "linux":
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
    kept = config.rootpath.joinpath(".hypothesis", "unicode_data", unicodedata.unidata_version, "codec-utf-8.json.gz")
    if not hasattr(config, "workerinput") and not kept.exists():
        # Hypothesis's tables of characters take 200 MB while they are made, once in a checkout.
        made = "from hypothesis.internal.charmap import intervals_from_codec as made; made('utf-8')"
        subprocess.run([sys.executable, "-c", made], cwd=config.rootpath, check=True)


def pytest_collection_finish() -> None:
    """What was imported is no garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_logfinish(nodeid: str) -> None:
    """Give memory back that tests held, whenever there is much more of it than after the last time."""
    global _held  # noqa: PLW0603 - pytest calls functions of modules
    if sys.platform == "linux" and _resident() > _held + _MUCH:
        gc.unfreeze()  # a command of Muster's that a test calls freezes the garbage of all that came before
        gc.collect()
        gc.freeze()
        ctypes.CDLL(None).malloc_trim(0)
        _held = _resident()


def _resident() -> int:
    """The resident memory of this process in bytes."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


_held = 0


def pytest_make_parametrize_id(val: object) -> str | None:
    """Name no test by bytes: gzip writes the time into them, and workers that collect at different times must agree."""
    return f"{len(val)} bytes" if isinstance(val, bytes) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; what is not named in `LONGEST_FIRST` fills the gaps at the end."""
    items.sort(key=lambda item: _place(item.path))


@cache
def _place(path: Path) -> int:
    return next(
        (place for place, name in enumerate(LONGEST_FIRST) if path.is_relative_to(HERE / name)), len(LONGEST_FIRST)
    )
