"""The agent's log rules: what it concludes from the standard output of a pod's first worker."""

from __future__ import annotations

import logging
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

READ_SECONDS = 1.0
"""How often a file without a new line is looked at again; it is the agent's own interval."""
_log = logging.getLogger("hyperpodrun")


class LogState(StrEnum):
    """What the rules say of the log."""

    WAITING = "WAITING"
    HEALTHY = "HEALTHY"
    SLOW = "SLOW"
    HANGING = "HANGING"


BAD = (LogState.HANGING, LogState.SLOW)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "gt": lambda value, limit: value > limit,
    "lt": lambda value, limit: value < limit,
    "eq": lambda value, limit: value == limit,
    "gteq": lambda value, limit: value >= limit,
    "lteq": lambda value, limit: value <= limit,
}


class AgentLogRule:
    """One rule of logMonitoringConfiguration. `clock` is in seconds."""

    def __init__(self, rule: Mapping[str, Any], clock: Callable[[], float] = time.time) -> None:
        """Raises ValueError, KeyError or re.error for a rule that is none."""
        self.name = str(rule["name"])
        self._pattern = re.compile(rule["logPattern"])
        self._start_within = _whole(rule.get("expectedStartCutOffInSeconds"))
        self._every = _whole(rule.get("expectedRecurringFrequencyInSeconds"))
        self._stop = re.compile(rule["stopPattern"]) if "stopPattern" in rule else None
        self._threshold = _whole(rule.get("metricThreshold"))
        self._operator: str | None = rule.get("operator")
        self._points = int(rule.get("metricEvaluationDataPoints", 1))
        if self._operator and self._operator not in _COMPARE:
            message = f"Invalid operator {self._operator}, should be one of {sorted(_COMPARE)}"
            raise ValueError(message)
        self._clock = clock
        self._began = clock()
        self._active = True
        self._matched: float | None = None
        self._line: str | None = None
        self._slow = 0
        self._state = LogState.WAITING

    def evaluate(self, line: str | None = None) -> tuple[LogState, str | None]:
        """The state after `line`, or without a new one; and the last line that matched."""
        self._state = self._after(line)
        return self._state, self._line

    def _after(self, line: str | None) -> LogState:
        if not self._active:
            return LogState.HEALTHY
        now = self._clock()
        match = self._pattern.match(line) if line is not None else None
        if match is not None:
            self._line, self._matched = line, now
        if line is not None and self._stop is not None and self._stop.match(line):
            self._active = False
            return LogState.HEALTHY
        if self._late(now):
            return LogState.HANGING
        return self._state if match is None else self._judge(match)

    def _late(self, now: float) -> bool:
        if self._matched is None:
            return self._start_within is not None and now - self._began > self._start_within
        return self._every is not None and now - self._matched > self._every

    def _judge(self, match: re.Match[str]) -> LogState:
        if not match.groups() or self._threshold is None or self._operator is None:
            return LogState.HEALTHY
        if _COMPARE[self._operator](float(match[1]), self._threshold):
            self._slow = min(self._slow + 1, self._points)
        else:
            self._slow = 0
        return LogState.SLOW if self._slow >= self._points else LogState.HEALTHY


class LogWatch:
    """Follows one log file with all rules, in a thread."""

    def __init__(self, rules: Sequence[AgentLogRule], file: Path) -> None:
        self._rules = rules
        self._file = file
        self._ended = threading.Event()
        self._found: tuple[LogState, dict[str, str | None]] = (LogState.WAITING, {})
        self._thread = threading.Thread(target=self._follow, name="log rules", daemon=True)
        self._thread.start()

    @property
    def found(self) -> tuple[LogState, dict[str, str | None]]:
        """The worst state, and the rules that are in it with the last line that each has matched."""
        return self._found

    def stop(self) -> None:
        """End the thread."""
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        # Without a file, because output is not redirected, the rules wait for their first line in vain.
        while not self._file.exists():
            self._evaluate(None, (LogState.HANGING,))
            if self._ended.wait(READ_SECONDS):
                return
        with self._file.open(errors="replace") as log:
            while not self._ended.is_set():
                line = log.readline()
                try:
                    self._evaluate(line, (*BAD, LogState.HEALTHY, LogState.WAITING))
                except ValueError as error:  # the metric is no number
                    _log.error("Failed to evaluate log line: %s, Error: %s", line, error)
                    continue
                if not line:
                    self._ended.wait(READ_SECONDS)

    def _evaluate(self, line: str | None, order: Sequence[LogState]) -> None:
        states: dict[LogState, dict[str, str | None]] = {}
        for rule in self._rules:
            state, matched = rule.evaluate(line)
            states.setdefault(state, {})[rule.name] = matched
        worst = next((state for state in order if state in states), None)
        if worst is not None and self._found[0] is not worst:
            self._found = worst, states[worst]


def _whole(value: object) -> int | None:
    return None if value is None else int(str(value))
