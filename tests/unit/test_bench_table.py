"""The rows of a benchmark, their file, their table, and the runner."""

from __future__ import annotations

import io
import json
import math
from pathlib import Path

import pytest
from rich.console import Console

from bench import __main__ as runner
from bench.known import Known, known_rows
from bench.table import Row, print_table, write_rows


@pytest.mark.parametrize(
    ("value", "aim", "ok"),
    [
        (1.5, "<= 1.5", True),
        (1.51, "<= 1.5", False),
        (1.0, "< 1", False),
        (0.9, "< 1", True),
        (3, ">= 3", True),
        (3, "> 3", False),
        (4, "== 4", True),
        (5, "== 4", False),
        (math.nan, "<= 1.5", False),
        (1e9, None, None),
    ],
)
def test_ok_is_computed_from_value_and_aim(value: float, aim: str | None, ok: bool | None) -> None:
    assert Row("r", value, "s", aim).ok is ok


@pytest.mark.parametrize("aim", ["", "1.5", "<=1.5", "=< 1.5", "<= fast", "about 3"])
def test_an_aim_that_cannot_be_computed_is_refused(aim: str) -> None:
    with pytest.raises(ValueError, match="aim"):
        Row("r", 1.0, "s", aim)


def test_rows_are_written_with_exactly_the_agreed_fields(tmp_path: Path) -> None:
    rows = [Row("bytes", 3.0, "MiB", "<= 2", 1024.0, "größer"), Row("time", 0.5, "s")]
    path = write_rows("manifest", rows, tmp_path / "build" / "bench")
    assert path == tmp_path / "build" / "bench" / "manifest.json"
    assert json.loads(path.read_text(encoding="utf-8")) == [
        {"name": "bytes", "value": 3.0, "unit": "MiB", "aim": "<= 2", "ok": False, "peer": 1024.0, "note": "größer"},
        {"name": "time", "value": 0.5, "unit": "s", "aim": None, "ok": None, "peer": None, "note": ""},
    ]
    assert list(json.loads(path.read_text(encoding="utf-8"))[0]) == [
        "name",
        "value",
        "unit",
        "aim",
        "ok",
        "peer",
        "note",
    ]


def test_the_table_shows_a_missed_aim_as_missed() -> None:
    output = io.StringIO()
    rows = [Row("slow", 3.0, "s", "<= 2", 4.5), Row("fast", 1.0, "s", "<= 2"), Row("plain [x]", 12_345.6, "s")]
    rows.append(Row("unknown", math.nan, "s"))
    known = {"launcher": {"slow": Known(before=7.25, missed="two copies"), "fast": Known(missed="of no use here")}}
    print_table({"launcher": rows}, known, Console(file=output, width=150))
    slow, fast, plain, unknown = (line for line in output.getvalue().splitlines() if "launcher" in line)
    assert "missed" in slow
    assert "4.5" in slow
    assert "7.25" in slow
    assert "two copies" in output.getvalue()
    assert "of no use here" not in output.getvalue()
    assert "yes" in fast
    assert "missed" not in plain + fast
    assert "plain [x]" in plain
    assert "–" in unknown
    assert "12,346" in plain


def test_the_benchmarks_are_the_modules_with_a_run() -> None:
    assert {"manifest", "cold_import"} <= runner.discover().keys()
    assert not {"table", "large_archive", "manifest_probe"} & runner.discover().keys()


def test_a_missed_aim_is_no_failure_and_a_crash_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def crash() -> list[Row]:
        message = "the loopback is gone"
        raise OSError(message)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "discover", lambda: {"broken": crash, "fine": lambda: [Row("slow", 3.0, "s", "<= 2")]})
    assert runner.main(["fine"]) == 0
    assert "missed" in capsys.readouterr().out
    assert runner.main([]) == 1
    shown = capsys.readouterr()
    assert "the loopback is gone" in shown.err
    assert "missed" in shown.out
    assert [path.name for path in (tmp_path / "build" / "bench").iterdir()] == ["fine.json"]


def test_what_is_known_of_rows_belongs_to_benchmarks_and_fits_their_rows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert known_rows().keys() <= runner.discover().keys()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(runner, "discover", lambda: {"loop": lambda: [Row("slow", 3.0, "s", "<= 2")]})
    monkeypatch.setattr(runner, "known_rows", lambda: {"loop": {"gone": Known(before=1)}})
    assert runner.main(["loop"]) == 0
    shown = " ".join(capsys.readouterr().err.split())
    assert "a row that loop does not print: 'gone'" in shown
    assert "loop misses the aim of 'slow'" in shown


def test_an_unknown_benchmark_is_named_beside_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert runner.main(["manifst"]) == 2
    shown = capsys.readouterr().err
    assert "manifst" in shown
    assert "cold_import" in shown
