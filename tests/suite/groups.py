"""What `make test-release` runs: groups, from the quickest to the longest."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.support.source_patch import ROOT

MERGE = "merge"
"""The tests of `make test`."""
SEEDS = {"MUSTER_SEEDS_FACTOR": "3"}
"""How many times as many schedules as before a merge."""


@dataclass(frozen=True)
class Group:
    """Some tests that are run together: by pytest, where there is no `module`."""

    name: str
    module: Sequence[str] = ()
    """A module of `tests` with its arguments, run as a program."""
    paths: Sequence[str] = ()
    """For pytest."""
    environment: Mapping[str, str] = field(default_factory=dict)


def groups() -> list[Group]:
    """All groups, in order. Each folder of tests/release is one."""
    folders = sorted(path.name for path in (ROOT / "tests" / "release").iterdir() if any(path.glob("test_*.py")))
    return [
        *(Group(name, paths=[f"tests/release/{name}"]) for name in folders),
        Group(
            "seeds",
            paths=["tests/faults/test_rendezvous_interleavings.py", "tests/torch/test_explored_torchft.py"],
            environment=SEEDS,
        ),
        Group("options", ["tests.options"]),
        Group("hangs", ["tests.simulation", "hangs"]),
        Group("simulation-defects", ["tests.simulation", "defects"]),
        Group("exploration-defects", ["tests.exploration", "defects"]),
        Group("attacks", ["tests.attacks"]),
        Group("soak", ["tests.soak", "--seed", "0"]),
        Group(MERGE),
        # They wait more than they compute.
        Group("mutants", ["tests.mutants", "--workers", "4"]),
        Group("exploration", ["tests.exploration", "20000"]),
        Group("simulation", ["tests.simulation", "explore", "--schedules", "20000"]),
    ]
