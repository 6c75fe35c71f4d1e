"""A spec: what its defaults are, how YAML is read, and what is refused, each problem with its field."""

import json
import re
from typing import Any, get_args

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.names import RUN_MAX
from muster.contract.spec.policies import ContinuationCause
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.run_limits import RUN_MAX_SECONDS
from muster.contract.spec.spec import SPEC_BYTES_MAX, Spec
from muster.contract.spec.spec_reader import DEPTH_MAX, parse_spec, parse_spec_text
from tests.support.refused_specs import refusal, refused_fields

GOOD: dict[str, Any] = {"replicas": 4, "trainer": "package.module:train"}
PROGRAM: dict[str, Any] = {"trainer": None, "entrypoint": ["python"]}


def problems(**fields: Any) -> dict[str, str]:
    """Field -> what the error says about it, for GOOD with `fields` over it (None removes one)."""
    return {field: said.removeprefix("found ") for field, said in refused_fields({**GOOD, **fields}).items()}


def test_what_a_spec_leaves_out_has_a_default() -> None:
    spec = parse_spec(GOOD)
    assert (spec.quorum, spec.min_participants, spec.timers()) == (4, 4, {})
    assert spec.budget(FailureClass.SPOT) == DEFAULT_BUDGETS[FailureClass.SPOT]
    assert set(DEFAULT_BUDGETS) == set(FailureClass) - {FailureClass.STOPPED_BY_MUSTER}
    assert set(get_args(ContinuationCause)) == {"failed", *DEFAULT_BUDGETS}
    # What will fail again is not rerun.
    assert {spec.budget(cause).max_reruns for cause in (FailureClass.USER_CODE, FailureClass.INVALID_REQUEST)} == {0}
    # A resolved spec depends on no default.
    resolved = parse_spec({**GOOD, "spot": True}).resolved()
    assert set(resolved.reruns) == set(DEFAULT_BUDGETS)
    assert (resolved.min_replicas, resolved.rendezvous.min_participants) == (4, 4)
    assert resolved.max_wait_seconds == resolved.max_runtime_seconds
    assert resolved.resolved() == resolved


def test_yaml_and_json_and_the_console_give_the_same_spec() -> None:
    value = {**GOOD, "kwargs": {"lr": 1e-4, "nested": {"a": [1, "x", None, True]}}}
    yaml = "replicas: 4\ntrainer: package.module:train\nkwargs: {lr: 1e-4, nested: {a: [1, x, null, true]}}\n"
    spec = parse_spec(value)
    assert spec.kwargs == value["kwargs"]
    texts = [yaml, json.dumps(value), spec.to_json().decode()]
    assert [parse_spec_text(text) for text in texts] == [spec] * 3


def test_all_problems_are_reported_at_once_also_those_between_fields_and_no_field_is_blamed_twice() -> None:
    found = problems(
        replicas="4", replicass=3, kwargs={"lr": float("nan")}, max_wait_seconds=5, environment={"1A": "x", "B": "y"}
    )
    assert set(found) == {"replicas", "replicass", "kwargs.lr", "max_wait_seconds", "environment.1A"}
    assert found["replicass"] == "unknown field; did you mean replicas?"
    assert found["replicas"] == "'4'; write a whole number"
    assert set(problems(replicas=0, min_replicas=3, on_replica_failure="continue")) == {"replicas"}
    # A misspelled field is not also missing.
    assert problems(trainer=None, trianer="m:f") == {"trianer": "unknown field; did you mean trainer?"}


GATE = {"replicas": 1, "within_seconds": 60}
# The fields, the one that the problem names, and a part of what it says.
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"replicas": None}, "replicas", "required"),
    ({"replicas": 0}, "replicas", "at least 1"),
    ({"replicas": 10_001}, "replicas", "at most 10,000"),
    ({"replicas": True}, "replicas", "whole number"),
    ({"trainer": None}, "trainer", "package.module:function"),
    ({"trainer": "module.function"}, "trainer", "package.module:function"),
    ({"entrypoint": ["python"]}, "entrypoint", "one of the two"),
    ({"arguments": ["--lr"]}, "arguments", "kwargs"),
    ({**PROGRAM, "kwargs": {"a": 1}}, "kwargs", "arguments"),
    ({**PROGRAM, "entrypoint": ["sh", "a\nb"]}, "entrypoint.1", "one line"),
    ({"name": "a--b"}, "name", "single hyphens"),
    ({"name": "x" * (RUN_MAX + 1)}, "name", f"at most {RUN_MAX} characters"),
    ({"image": "has space"}, "image", "no white space"),
    ({"spot": True, "max_wait_seconds": 10}, "max_wait_seconds", "includes the runtime"),
    ({"max_wait_seconds": 100_000}, "max_wait_seconds", "spot: true"),
    ({"environment": {"A": 1}}, "environment.A", "string"),
    ({"environment": {"MUSTER_RUN": "x"}}, "environment.MUSTER_RUN", "reserved"),
    ({"tags": {"aws:x": "y"}}, "tags.aws:x", "reserved"),
    ({"tags": {"a": "x\ty"}}, "tags.a", "letters, digits, spaces"),
    ({"reruns": {"capacty": {"max_reruns": 1}}}, "reruns.capacty", "'capacty'; choose one of capacity, quota"),
    ({"reruns": {"spot": {"max_reruns": -1}}}, "reruns.spot.max_reruns", "at least 0"),
    ({"reruns": {"spot": {"max_rerun": 1, "max_reruns": 1}}}, "reruns.spot.max_rerun", "did you mean max_reruns?"),
    (
        {"reruns": {"spot": {"max_reruns": 1, "delay_seconds": 9, "max_delay_seconds": 3}}},
        "reruns.spot.max_delay_seconds",
        "at least delay_seconds (9)",
    ),
    ({"on_replica_failure": 3}, "on_replica_failure", "3; choose one of terminate, continue"),
    ({"overrides": {"0": {"backend": "eks"}}}, "overrides.0.backend", "'eks'; choose one of training-job, hyperpod"),
    (
        {"hyperpod": {"topology": {"mode": [], "level": "topology.k8s.aws/network-node-layer-1"}}},
        "hyperpod.topology.mode",
        "an empty list; choose one of prefer",
    ),
    ({"on_early_finish": "wait"}, "on_early_finish", "continue, stop"),
    ({**PROGRAM, "on_early_finish": "stop"}, "on_early_finish", "only replicas with"),
    ({"min_replicas": 5, "on_replica_failure": "continue"}, "min_replicas", "at most replicas (4)"),
    ({"min_replicas": 2}, "min_replicas", "on_replica_failure: continue"),
    ({"rendezvous": {"min_participants": 5}}, "rendezvous.min_participants", "at most replicas (4)"),
    (
        {"rendezvous": {"min_participants": 3}, "on_replica_failure": "continue", "min_replicas": 2},
        "rendezvous.min_participants",
        "3; at most min_replicas (2); lower it, or raise min_replicas",
    ),
    ({"kwargs": {"a": object()}}, "kwargs.a", "JSON"),
    ({"kwargs": {"a": "\ud800"}}, "kwargs.a", "Unicode"),
    ({"kwargs": {"a": [1, {"b": float("inf")}]}}, "kwargs.a.1.b", "pass it as a string"),
    ({"launch_gate": {**GATE, "replicas": 5}}, "launch_gate.replicas", "5; at most replicas (4)"),
    ({"launch_gate": {**GATE, "within_seconds": 0}}, "launch_gate.within_seconds", "0; at least 1"),
    (
        {"launch_gate": GATE, "deadline_seconds": 60},
        "launch_gate.within_seconds",
        "60; less than deadline_seconds (60)",
    ),
    ({"deadline_seconds": 0}, "deadline_seconds", "0; at least 1"),
    ({"deadline_seconds": RUN_MAX_SECONDS + 1}, "deadline_seconds", "31536001; at most 31,536,000"),
    ({"cost_ceiling_usd": 0.0}, "cost_ceiling_usd", "0.0; more than 0.0"),
    ({"cost_ceiling_usd": 1_000_000_001}, "cost_ceiling_usd", "1000000001; at most 1,000,000,000.0"),
    (
        {"cost_ceiling_usd": 5.0, "overrides": {"0": {"instance_type": "ml.new.large"}}},
        "cost_ceiling_usd",
        "no price for ml.new.large; write usd_per_hour: {ml.new.large: DOLLARS}",
    ),
    ({"usd_per_hour": {"ml.new.large": 0.0}}, "usd_per_hour.ml.new.large", "0.0; more than 0.0"),
]


def test_each_problem_names_the_field_what_was_found_and_the_remedy() -> None:
    for fields, field, words in REFUSED:
        found = problems(**fields)
        assert list(found) == [field], fields
        assert words in found[field], (words, found)


def test_what_is_no_mapping_is_no_spec(subtests: pytest.Subtests) -> None:
    for value in (None, [], "replicas: 4", 7):
        with subtests.test(value=value), pytest.raises(SpecError, match="write a mapping"):
            parse_spec(value)


UNSAFE = "this number is read differently by versions of YAML"
DEEP = r"line 1, column \d{3}: more than 100 levels of nesting"
# Text, and a pattern of what is said of it.
NO_YAML: list[tuple[str, str]] = [
    ("replicas: 4\nreplicas: 5\ntrainer: a.b:c", "line 2, column 1: the key 'replicas' appears twice"),
    ("a: &x [1]\nb: *x", "line 2, column 4: aliases"),
    ("a: [1", r"line 1, column \d+"),
    ("1: 2", "line 1, column 1: this key is not a string"),
    ("a: !!python/object/apply:os.system [ls]", r"column 4: tags \(!!python/object/apply:os.system\)"),
    ("a: '" + "x" * SPEC_BYTES_MAX + "'", "260,000"),
    ("a: b\x00", "special characters"),
    ("a:\n\tb: 1", "line 2, column 1: a tab; indent with spaces"),
    ("a: b: c", "line 1, column 5: a second colon on the line"),
    ("a: [", "line 1, column 5: a value is missing here"),
    ("a: [1 2\nb: 1", r"a comma or the closing \] is missing here"),
    ("a: 1\n  b: 2\nc", "line 2, column 4: a second colon"),
    ("a:\n - 1\n b: 2", "line 3, column 2: the indentation"),
    ("a: 1\nb", "line 2, column 2: a line without a colon"),
    ('a: "b', "text in quotes without its end"),
    *((text, DEEP) for text in ("[" * 5_000, "a: " + "{a: " * 5_000, "- " * 5_000, "[" * 2_500 + "]" * 2_500)),
    *(
        (f"value: !!{tag}", rf"column 8: tags \(!!{tag.split()[0]}\)")
        for tag in ("int ''", "float ''", "bool a", "timestamp a")
    ),
    *(
        (f"value: {digits}", f"column 8: .*{UNSAFE}")
        for digits in ("0777", "1_000", "0b" + "1" * 5_000, "0" + "7" * 5_000)
    ),
    ("value: 0x" + "f" * 5_000, "column 8: a number of 5,002 characters; allowed: at most 400"),
    ("value: 0o" + "7" * 5_000, "column 8: a number of 5,002 characters"),
    ("value: " + "9" * 5_000, "column 8: a number of 5,000 characters"),
]


def test_text_that_is_no_yaml_or_cannot_be_read_safely_says_where_in_few_words() -> None:
    for text, words in NO_YAML:
        said = str(refusal(text))
        assert re.search(words, said), (text[:60], said)
        assert len(said) < 400, text[:60]
        assert "'<" not in said, "a name of the parser's own"


# Values without quotes that are text, and what others are.
TEXTS = ("12:30", "1" + ":59" * 200, "no", "on", "2026-11-21", "<<")
VALUES: list[tuple[str, Any]] = [
    *(("'0777'", "0777"), ("!!str 12", "12"), ("0x1F", 31), ("0o17", 15), ("-3", -3), ("1e-4", 1e-4), (".5", 0.5)),
    *(("False", False), ("~", None), ("", None)),
]


def test_a_value_without_quotes_is_what_yaml_1_2_says() -> None:
    for value, expected in [*zip(TEXTS, TEXTS, strict=True), *VALUES]:
        found = parse_spec_text(f"replicas: 1\ntrainer: m:f\nkwargs:\n  value: {value}\n").kwargs["value"]
        assert (found, type(found)) == (expected, type(expected)), value
    policy = parse_spec_text(
        "replicas: 1\ntrainer: a.b:c\ncontinue:\n  on: [user-code]\n  max: 2\n"
    ).continuation_policy
    assert policy is not None
    assert policy.on == ["user-code"]


def nested(depth: int) -> Any:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_nesting_is_bounded_where_a_plan_can_still_be_read_back() -> None:
    spec = parse_spec({**GOOD, "kwargs": nested(DEPTH_MAX)})
    assert Spec.model_validate_json(spec.to_json()) == spec
    assert problems(kwargs=nested(DEPTH_MAX + 1))["kwargs"].startswith(f"more than {DEPTH_MAX} levels of nesting;")
    assert set(problems(kwargs=nested(20_000), replicas="x")) == {"kwargs", "replicas"}
