"""What containers write, on a terminal and as JSON: it is shown, and steers nothing."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from muster.client.cli.json_answers import Started
from muster.client.cli.log_text import printer, text_of
from muster.client.cli.output import print_answer, print_error, visible
from muster.client.logs.log_lines import LogLine
from muster.contract.errors import MusterError

CLEAR = "\x1b[2J"
TITLE = "\x1b]0;owned\x07"


@pytest.mark.parametrize("coloured", [True, False])
def test_a_line_cannot_steer_the_terminal(coloured: bool) -> None:
    shown = text_of(f"a{CLEAR}b{TITLE}\x9b1A\x7f\u202e\tü€😀", coloured=coloured)
    assert shown == r"a\x1b[2Jb\x1b]0;owned\x07\x9b1A\x7f\x202e" + "\tü€😀"


def test_a_lines_own_colours_stay_where_there_are_colours_and_end_with_it() -> None:
    line = "\x1b[31mred\x1b[0m and \x1b[1;32mgreen"
    assert text_of(line, coloured=True) == f"{line}\x1b[0m"
    assert text_of(line, coloured=False) == "red and green"


def test_every_part_of_an_event_has_its_rank_before_it(capsys: pytest.CaptureFixture[str]) -> None:
    show = printer(as_json=False)
    long = "x" * 200_000
    for message in ("first\n   7 | forged", "10%\r20%\r\n", "", long):
        show(LogLine(at=datetime(2026, 1, 1, tzinfo=UTC), rank=3, attempt=2, job="job", message=message))
    parts = ["first", "   7 | forged", "10%", "20%", "", long]
    assert capsys.readouterr().out.splitlines() == [f"3 a2 | {part}" for part in parts]


@pytest.mark.parametrize(("process", "attempt", "head"), [(None, 1, "   3"), (5, 1, " 3.5"), (5, 2, "3.5 a2")])
def test_a_line_says_replica_and_process(
    capsys: pytest.CaptureFixture[str], process: int | None, attempt: int, head: str
) -> None:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    printer(as_json=False)(LogLine(at=at, rank=3, process=process, attempt=attempt, job="job", message="loss=1"))
    assert capsys.readouterr().out == f"{head} | loss=1\n"


def test_json_holds_the_very_text_and_no_raw_control_character(capsys: pytest.CaptureFixture[str]) -> None:
    text = f"{CLEAR}\x9b1A\x7f\u2028\nü"
    print_answer(Started(run=text))
    out = capsys.readouterr().out
    assert json.loads(out) == {"run": text, "parent": None}
    assert all(character.isprintable() for character in out.rstrip("\n"))


def test_an_error_is_shown_line_by_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_error(MusterError(f"two\nlines{CLEAR}"), as_json=False)
    assert capsys.readouterr().err == "muster: two\nlines\\x1b[2J\n"
    assert visible("plain\ttext") == "plain\ttext"
