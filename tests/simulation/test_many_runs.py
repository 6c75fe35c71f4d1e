"""Many runs in one stack: what a function does is in proportion to what has changed, however many wait."""

from collections import Counter

import pytest

from tests.simulation import scenario
from tests.simulation.functions import installed
from tests.simulation.told import Told
from tests.simulation.world import World

RUNS = 150
CAP = 90
"""Half as many runs, for each has two replicas."""
CALLS_MAX = 140
"""Of one invocation: most settlements make 60; 45 at once meet in the queue, and try again."""
DEADLINES = {f"run{number}/deadline": True for number in range(3)}


def test_no_invocation_makes_more_calls_because_there_are_more_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scenario, "CROWD", RUNS)
    world = World(0, draws=Told({"many runs": True, "cap": CAP, "sweeps": True, **DEADLINES}))
    calls = Counter[str]()
    world.cloud.on_call = lambda *_: calls.update([world.current_name])
    with installed(world):
        world.run()
    assert world.violations == []
    assert (world.reached["end: SUCCEEDED, succeeded"], world.reached["admit: False"]) == (RUNS, RUNS - CAP // 2)
    sweeps = {name: count for name, count in calls.items() if name.startswith(("sweep(", "late sweep"))}
    most = max((count, name) for name, count in calls.items() if "(" in name and name not in sweeps)
    assert most[0] <= CALLS_MAX, most
    # The fences of the runs that have jobs, two pages of lists, and no more once all have ended.
    assert max(sweeps.values()) <= CAP
    assert calls["sweep(late sweep)#0"] <= 10
