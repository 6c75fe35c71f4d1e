"""Fixtures that every test may use."""

import gc
import signal
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
LONGEST_FIRST = (
    "e2e/test_demo.py",
    "terminal/test_tutorial.py",
    "faults/test_control_plane.py",
    "simulation/test_schedules.py",
    "terminal/test_hyperpod_guide.py",
    "e2e/test_installed.py",
    "infra/test_deploy_command.py",
    "e2e/test_upgrade.py",
    "faults/test_rendezvous_interleavings.py",
    "terminal/test_commands.py",
    "e2e/test_torchx.py",
    "faults/test_exploration.py",
    "faults/test_mutants.py",
    "e2e/test_command_line.py",
    "terminal",
    "e2e/test_partitions.py",
    "workflow/test_reruns_of_runs.py",
    "e2e/test_verify.py",
    "integration/replica/test_pod.py",
    "e2e/test_recipe_runs.py",
    "e2e/test_hyperpod_run.py",
    "infra/test_gate.py",
    "infra/test_access.py",
    "workflow",
    "e2e",
    "faults",
    "infra",
    "page",
    "oracle",
    "conformance",
    "integration",
)
"""Files and folders by the time that they take: a worker that begins a long file last keeps the others waiting."""

pytest_plugins = ["tests.plugins.cloud", "tests.plugins.commands", "tests.plugins.stack"]


def pytest_configure() -> None:
    """Let the programs under test be interrupted, and look for garbage less often.

    What a shell starts in the background ignores SIGINT, and so do its children; CI may be started like that.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # A worker holds so much that it would look for garbage for a tenth of its time.
    gc.set_threshold(50_000, 20, 20)


def pytest_collection_finish() -> None:
    """What was imported is no garbage."""
    gc.collect()
    gc.freeze()


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
