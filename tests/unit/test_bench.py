"""What a reader of `make bench` relies on: a missed aim is shown as missed, a crash and an unknown name are errors."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import __main__ as runner
from bench.table import Row


def test_a_missed_aim_is_no_failure_and_a_crash_or_an_unknown_name_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> list[Row]:
        message = "the loopback is gone"
        raise OSError(message)

    monkeypatch.chdir(tmp_path)
    rows = [Row("slow", 3.0, "s", "<= 2"), Row("fast", 1.0, "s", "<= 2"), Row("unknown", math.nan, "s")]
    asked = SimpleNamespace(run=lambda: pytest.fail("not asked for"), ON_REQUEST=True)
    known = {"broken": SimpleNamespace(run=crash), "fine": SimpleNamespace(run=lambda: rows), "asked": asked}
    monkeypatch.setattr(runner, "discover", lambda: known)
    assert runner.main(["fine"]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if "fine" in line]
    assert [("missed" in line, "yes" in line) for line in shown] == [(True, False), (False, True), (False, False)]
    assert runner.main([]) == 1
    output = capsys.readouterr()
    assert "the loopback is gone" in output.err
    assert "missed" in output.out
    [written] = (tmp_path / "build" / "bench").iterdir()
    row, *_ = json.loads(written.read_text(encoding="utf-8"))
    assert (written.name, row["name"], row["ok"]) == ("fine.json", "slow", False)
    assert runner.main(["fin"]) == 2
    assert "fine" in capsys.readouterr().err
