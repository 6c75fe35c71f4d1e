"""A refused spec: no more than fifty problems, in bounded time and room, on lines that can be shown."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from muster.contract.errors import PROBLEMS_SHOWN, Problem, SettingsError, SpecError
from muster.contract.spec.spec_reader import parse_spec, parse_spec_text
from muster.control.reporting.announcements import announce_refusal
from tests.memory.harness import ControlHarness

GOOD = {"replicas": 4, "trainer": "package.module:train"}
TEXT_MAX = 20_000  # bytes: below the cause of an execution, which has at most 32,768 characters


def refusal(spec: object) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse_spec(spec) if isinstance(spec, dict) else parse_spec_text(str(spec))
    return caught.value


@pytest.mark.parametrize(
    ("fields", "problems"),
    [
        ({f"a{number}": 0 for number in range(12_395)}, 12_395),
        ({"environment": {f"A{number}": number for number in range(12_395)}}, 12_395),
        ({"tags": {f"a{number}": 1 for number in range(40)}, "environment": dict.fromkeys("ABCDEFGHIJKLMN", 1)}, 54),
        ({"kwargs": {f"a{number}": float("nan") for number in range(1_000)}}, 1_000),
    ],
    ids=["unknown fields", "environment", "several fields", "numbers"],
)
def test_of_many_problems_fifty_are_shown_and_the_others_counted(fields: dict[str, Any], problems: int) -> None:
    begin = time.process_time()
    error = refusal({**GOOD, **fields})
    assert time.process_time() - begin < 2
    assert len(error.problems) + error.more == problems
    assert len(error.problems) <= PROBLEMS_SHOWN
    assert f"{problems:,} problem" in str(error)
    assert str(error).endswith(f"and {error.more:,} more") is (problems > PROBLEMS_SHOWN)
    assert len(str(error).encode()) < TEXT_MAX


LONG = "x" * 1_000_000


@pytest.mark.parametrize(
    "spec",
    [
        {**GOOD, LONG: 1},
        {**GOOD, "kwargs": {LONG: [float("nan")] * 100}},
        {**GOOD, "kwargs": {LONG: [0] * 100_000, "a": float("inf")}},
        {**GOOD, "environment": {LONG: 1}},
        {**GOOD, "tags": {LONG: "a"}},
        {**GOOD, "overrides": {LONG: {}}},
        {**GOOD, "image": f"a b{LONG}"},
        {**GOOD, "replicas": 10**5_000},
        {**GOOD, "kwargs": {"a": 10**5_000}},
        {**GOOD, **{f"{'é' * 60}{number}": 1 for number in range(60)}},
        {**GOOD, "kwargs": {"a": {"b": {f"c{LONG}": "\ud800"}}}},
        {**GOOD, "reruns": {LONG: {"max_reruns": 1}}},
        {**GOOD, "input_data_config": [{"channel_name": LONG}] * 30},
        f"a: !{LONG[:1_000]} b",
        f"{LONG[:100_000]}: 1\n{LONG[:100_000]}: 2",
        f"? [{'a, ' * 1_000}]\n: 1",
    ],
    ids=range(16),
)
def test_whatever_its_names_and_values_are_a_refusal_is_short_text_on_few_lines(spec: object) -> None:
    begin = time.process_time()
    error = refusal(spec)
    assert time.process_time() - begin < 2
    assert len(str(error).encode()) < TEXT_MAX
    assert len(str(error).splitlines()) == len(error.problems) + 1 + bool(error.more)
    json.dumps([vars(problem) for problem in error.problems], ensure_ascii=False).encode()


def test_an_error_cuts_every_part_of_a_problem() -> None:
    assert len(str(SpecError([Problem(LONG, LONG, LONG, LONG)])).encode()) < TEXT_MAX


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "\ud800", "a\u202eb"])
def test_a_name_that_cannot_be_shown_is_spelled_out(name: str) -> None:
    for spec in ({**GOOD, name: 1}, {**GOOD, "kwargs": {name: {"x": float("nan")}}}):
        text = str(refusal(spec))
        assert all(line.isprintable() for line in text.split("\n"))
        text.encode()


def test_unknown_fields_without_a_near_one_do_not_repeat_the_list_of_all_fields() -> None:
    assert "`muster init - --every-field` prints a spec with every known field" in str(refusal({**GOOD, "qqqq": 1}))
    assert "the known fields are max_reruns" in str(refusal({**GOOD, "reruns": {"spot": {"qqqq": 1}}}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a:\n\tb: 1", "line 2, column 1: a tab; indent with spaces"),
        ("a: b: c", "line 1, column 5: a second colon on the line; write the value in quotes"),
        ("a: [", "line 1, column 5: a value is missing here"),
        ("a: [1 2\nb: 1", "a comma or the closing ] is missing here"),
        ("a: 1\n  b: 2\nc", "line 2, column 4: a second colon"),
        ("a:\n - 1\n b: 2", "line 3, column 2: the indentation does not fit the lines above"),
        ("a: 1\nb", "line 2, column 2: a line without a colon"),
        ('a: "b', "text in quotes without its end"),
    ],
)
def test_a_mistake_of_yaml_is_told_in_plain_words(text: str, words: str) -> None:
    assert words in str(refusal(text))
    assert "'<" not in str(refusal(text))


def test_a_misspelled_field_is_not_also_missing() -> None:
    [problem] = refusal({"replicas": 4, "trianer": "package.module:train"}).problems
    assert str(problem) == "trianer: unknown field; did you mean trainer?"


def test_the_event_of_a_refusal_says_how_many_problems_it_leaves_out() -> None:
    with ControlHarness().installed() as harness:
        error = refusal({**GOOD, **{f"a{number}": 0 for number in range(1_000)}})
        announce_refusal(harness.plane.bus, "request", error)
        [event] = harness.cloud.events.of("Run Refused")
    assert len(event["problems"]) == 51
    assert event["problems"][-1] == "and 950 more"


def test_settings_have_the_same_bounds() -> None:
    problems = [Problem(f"a{number}", LONG, LONG) for number in range(1_000)]
    error = SettingsError("muster.toml", problems, [7, None, *range(998)])
    assert len(str(error).encode()) < TEXT_MAX
    assert "line 7: a0: found xxx" in str(error)
    assert f"and {error.more:,} more" in str(error)


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (lambda value: {"environment": {"TOKEN": value}}, "environment.TOKEN: found a whole number (not shown)"),
        (lambda value: {"kwargs": {"token": float("nan")}, "replicas": [value]}, "replicas: found a list of 1 value"),
    ],
)
def test_of_a_private_value_the_type_is_shown(make: Callable[[int], dict[str, Any]], shown: str) -> None:
    assert shown in str(refusal({**GOOD, **make(71_717_171)}))
    assert "71717171" not in str(refusal({**GOOD, **make(71_717_171)})).replace("_", "").replace(",", "")


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"backend": False}, "backend: found False; choose one of training-job, hyperpod"),
        ({"overrides": {"0": {"backend": "eks"}}}, "overrides.0.backend: found 'eks'; choose one of training-job, hyp"),
        ({"hyperpod": {"topology": {"mode": []}}}, "hyperpod.topology.mode: found an empty list; choose one of prefer"),
        ({"reruns": {"spott": {"max_reruns": 1}}}, "reruns.spott: found 'spott'; choose one of capacity, quota, "),
        ({"on_replica_failure": 3}, "on_replica_failure: found 3; choose one of terminate, continue"),
    ],
)
def test_a_word_that_is_none_of_a_field_s_is_refused_with_those_that_are(fields: dict[str, Any], problem: str) -> None:
    assert problem in str(refusal({**GOOD, **fields}))
