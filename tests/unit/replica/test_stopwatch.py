"""What counts as blocked time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from muster.replica import stopwatch
from muster.replica.metrics import Metrics
from muster.replica.stopwatch import Stopwatch
from muster.replica.time_account import TimeAccount
from muster.replica.watching.progress import Progress


def test_a_blocked_time_within_another_one_counts_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(monotonic=lambda: now))
    watch = Stopwatch(Metrics(), Progress(), TimeAccount(lambda: now))
    with watch.blocked():
        now += 1
        with watch.blocked():
            now += 2
        now += 3
    now += 4
    with watch.blocked():
        now += 10
    watch.lap()
    assert watch.blocked_seconds == 16
    assert watch.utilisation == pytest.approx(0.2)
