"""A refused spec: no more than fifty problems, in bounded time and room, on lines that can be shown."""

import json
import time
from typing import Any

from muster.contract.errors import PROBLEMS_SHOWN, Problem, SettingsError, SpecError
from muster.control.reporting.announcements import announce_refusal
from tests.memory.harness import ControlHarness
from tests.support.refused_specs import refusal

GOOD = {"replicas": 4, "trainer": "package.module:train"}
TEXT_MAX = 20_000  # bytes: below the cause of an execution, which has at most 32,768 characters

MANY: list[tuple[dict[str, Any], int]] = [
    ({f"a{number}": 0 for number in range(12_395)}, 12_395),
    ({"environment": {f"A{number}": number for number in range(12_395)}}, 12_395),
    ({"tags": {f"a{number}": 1 for number in range(40)}, "environment": dict.fromkeys("ABCDEFGHIJKLMN", 1)}, 54),
    ({"kwargs": {f"a{number}": float("nan") for number in range(1_000)}}, 1_000),
]


def test_of_many_problems_fifty_are_shown_and_the_others_counted() -> None:
    for fields, problems in MANY:
        begin = time.process_time()
        error = refusal({**GOOD, **fields})
        assert time.process_time() - begin < 2, problems
        assert len(error.problems) + error.more == problems
        assert len(error.problems) <= PROBLEMS_SHOWN
        assert f"{problems:,} problem" in str(error)
        assert str(error).endswith(f"and {error.more:,} more"), problems
        assert len(str(error).encode()) < TEXT_MAX


LONG = "x" * 1_000_000
WILD: list[object] = [
    {**GOOD, LONG: 1},
    {**GOOD, "kwargs": {LONG: [0] * 100_000, "a": float("inf")}},
    {**GOOD, "environment": {LONG: 1}},
    {**GOOD, "tags": {LONG: "a"}},
    {**GOOD, "image": f"a b{LONG}"},
    {**GOOD, "replicas": 10**5_000},
    {**GOOD, "kwargs": {"a": 10**5_000}},
    {**GOOD, **{f"{'é' * 60}{number}": 1 for number in range(60)}},
    {**GOOD, "kwargs": {"a": {"b": {f"c{LONG}": "\ud800"}}}},
    {**GOOD, "input_data_config": [{"channel_name": LONG}] * 30},
    f"a: !{LONG[:1_000]} b",
    f"{LONG[:100_000]}: 1\n{LONG[:100_000]}: 2",
    f"? [{'a, ' * 1_000}]\n: 1",
]


def test_whatever_its_names_and_values_are_a_refusal_is_short_text_on_few_lines() -> None:
    for number, spec in enumerate(WILD):
        begin = time.process_time()
        error = refusal(spec)
        assert time.process_time() - begin < 2, number
        assert len(str(error).encode()) < TEXT_MAX, number
        assert len(str(error).splitlines()) == len(error.problems) + 1 + bool(error.more), number
        json.dumps([vars(problem) for problem in error.problems], ensure_ascii=False).encode()


def test_an_error_cuts_every_part_of_a_problem() -> None:
    assert len(str(SpecError([Problem(LONG, LONG, LONG, LONG)])).encode()) < TEXT_MAX


def test_a_name_that_cannot_be_shown_is_spelled_out() -> None:
    for name in ("a\nb", "a\x1b[31m", "\ud800", "a\u202eb"):
        for spec in ({**GOOD, name: 1}, {**GOOD, "kwargs": {name: {"x": float("nan")}}}):
            text = str(refusal(spec))
            assert all(line.isprintable() for line in text.split("\n")), ascii(name)
            text.encode()


def test_the_event_of_a_refusal_says_how_many_problems_it_leaves_out() -> None:
    with ControlHarness().installed() as harness:
        many = refusal({**GOOD, **{f"a{number}": 0 for number in range(1_000)}})
        for error in (many, SpecError([Problem(f"a{number}", LONG, LONG) for number in range(1_000)])):
            announce_refusal(harness.plane.bus, "request", error)
        event, long = (event["problems"] for event in harness.cloud.events.of("Run Refused"))
    assert (len(event), event[-1]) == (51, "and 950 more")
    assert (max(map(len, long)) <= 1_024, long[-1]) == (True, f"and {1_001 - len(long)} more")


def test_settings_have_the_same_bounds() -> None:
    problems = [Problem(f"a{number}", LONG, LONG) for number in range(1_000)]
    error = SettingsError("muster.toml", problems, [7, None, *range(998)])
    assert len(str(error).encode()) < TEXT_MAX
    assert "line 7: a0: found xxx" in str(error)
    assert f"and {error.more:,} more" in str(error)
