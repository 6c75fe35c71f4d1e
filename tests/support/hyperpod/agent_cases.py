"""Rules, log lines and bodies for the comparison of our agent with hyperpod-elastic-agent."""

from typing import Any

Steps = list[tuple[float, str | None]]


class Clock:
    """A clock that stands still until a case moves it; `time()` and a call give the time."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def time(self) -> float:
        """As `time.time`."""
        return self.now

    __call__ = time


def rule(**more: Any) -> dict[str, Any]:
    """A rule about steps."""
    return {"name": "steps", "logPattern": r"step (\d+(?:\.\d+)?)", **more}


_COUNT: Steps = [(1.0, f"step {value}") for value in (1, 2, 3, 2.5, 1, 9)]
RULES: list[tuple[dict[str, Any], Steps]] = [
    (rule(), [(0, None), (1, "other"), (1, "step 1"), (100, ""), (1, " step 2")]),
    (rule(expectedStartCutOffInSeconds=10), [(0, None), (9, None), (2, ""), (1, "step 1"), (100, "")]),
    (rule(expectedStartCutOffInSeconds="10"), [(11, "step 1")]),
    (rule(expectedRecurringFrequencyInSeconds=5), [(60, ""), (0, "step 1"), (5, ""), (1, ""), (1, "step 2"), (1, "")]),
    (rule(stopPattern="done"), [(0, "step 1"), (0, "done"), (0, "step 2"), (100, None)]),
    (rule(stopPattern="done", expectedStartCutOffInSeconds=1), [(5, "done"), (5, "")]),
    (rule(metricThreshold=2), _COUNT),
    (rule(operator="gt"), _COUNT),
    *((rule(metricThreshold=2, operator=operator), _COUNT) for operator in ("gt", "lt", "eq", "gteq", "lteq")),
    (rule(metricThreshold=2, operator="gt", metricEvaluationDataPoints=2), [*_COUNT, (1, "step 9"), (1, "step 1")]),
    ({"name": "plain", "logPattern": "step"}, [(0, "a step"), (0, "step"), (0, "")]),
    (
        rule(metricThreshold=2, operator="gt", expectedRecurringFrequencyInSeconds=5),
        [(0, "step 9"), (6, ""), (0, "step 1"), (6, "step 1")],
    ),
]

_RIGHT = {"rank": 0, "nnodes": 2, "faultCount": 1, "master_addr": "127.0.0.1", "master_port": 29400}
STARTS: list[dict[str, Any]] = [
    _RIGHT,
    {**_RIGHT, "master_port": "29400"},
    {**_RIGHT, "master_port": ""},
    {**_RIGHT, "master_port": "none"},
    {**_RIGHT, "master_addr": ""},
    {**_RIGHT, "rank": "one"},
    {**_RIGHT, "rank": None},
    {**_RIGHT, "rankIps": [{"rank": 0, "ip": "127.0.0.1"}], "ipVersion": "1"},
    {**_RIGHT, "unknown": 1},
    {},
]
