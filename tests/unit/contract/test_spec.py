import json

import pytest

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.names import RUN_MAX
from muster.contract.spec.retry_budget import DEFAULT_BUDGETS
from muster.contract.spec.spec import SPEC_BYTES_MAX, Spec
from muster.contract.spec.spec_reader import DEPTH_MAX, parse_spec, parse_spec_text

GOOD = {"replicas": 4, "trainer": "package.module:train"}


def problems(**fields: object) -> dict[str, str]:
    """Field -> what the error says about it, for GOOD with `fields` over it (None removes one)."""
    spec = {key: value for key, value in {**GOOD, **fields}.items() if value is not None}
    with pytest.raises(SpecError) as caught:
        parse_spec(spec)
    return {
        problem.field: str(problem).removeprefix(f"{problem.field}: ").removeprefix("found ")
        for problem in caught.value.problems
    }


def test_the_smallest_spec_is_complete():
    spec = parse_spec(GOOD)
    assert (spec.quorum, spec.min_participants, spec.budget(FailureClass.SPOT)) == (
        4,
        4,
        DEFAULT_BUDGETS[FailureClass.SPOT],
    )


def test_every_class_of_failure_has_a_default_budget():
    assert set(DEFAULT_BUDGETS) == set(FailureClass) - {FailureClass.STOPPED_BY_MUSTER}


@pytest.mark.parametrize("failure_class", [FailureClass.USER_CODE, FailureClass.INVALID_REQUEST])
def test_what_will_fail_again_is_not_rerun_by_default(failure_class):
    assert parse_spec(GOOD).budget(failure_class).max_reruns == 0


def test_yaml_and_json_and_the_console_give_the_same_spec():
    value = {
        **GOOD,
        "kwargs": {"lr": 1e-4, "nested": {"a": [1, "x", None, True]}},
        "reruns": {"spot": {"max_reruns": 3}},
    }
    yaml = (
        "replicas: 4\ntrainer: package.module:train\n"
        "kwargs: {lr: 1e-4, nested: {a: [1, x, null, true]}}\nreruns: {spot: {max_reruns: 3}}\n"
    )
    assert parse_spec(value) == parse_spec_text(yaml) == parse_spec_text(json.dumps(value))


def test_a_spec_survives_its_own_json():
    spec = parse_spec(
        {**GOOD, "reruns": {"user-code": {"max_reruns": 1}}, "on_replica_failure": "continue", "min_replicas": 2}
    )
    assert Spec.model_validate_json(spec.to_json()) == spec


def test_all_problems_are_reported_at_once_also_those_between_fields():
    found = problems(
        replicas="4",
        replicass=3,
        instance_type="g5.xlarge",
        kwargs={"lr": float("nan")},
        max_wait_seconds=5,
        environment={"1A": "x", "B": "y"},
    )
    assert set(found) == {
        "replicas",
        "replicass",
        "instance_type",
        "kwargs.lr",
        "max_wait_seconds",
        "environment.1A",
    }
    assert found["replicass"] == "unknown field; did you mean replicas?"
    assert found["replicas"] == "'4'; write a whole number"


def test_a_faulty_field_is_not_blamed_twice():
    assert set(problems(trainer="no colon")) == {"trainer"}
    assert set(problems(replicas=0, min_replicas=3, on_replica_failure="continue")) == {"replicas"}


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"replicas": None}, "replicas", "required"),
        ({"replicas": 0}, "replicas", "at least 1"),
        ({"replicas": 10_001}, "replicas", "at most 10,000"),
        ({"replicas": True}, "replicas", "whole number"),
        ({"trainer": None}, "trainer", "package.module:function"),
        ({"trainer": "module.function"}, "trainer", "package.module:function"),
        ({"entrypoint": ["python"]}, "entrypoint", "leave one of the two out"),
        ({"arguments": ["--lr"]}, "arguments", "kwargs"),
        ({"trainer": None, "entrypoint": ["python"], "kwargs": {"a": 1}}, "kwargs", "arguments"),
        ({"trainer": None, "entrypoint": ["x" * 257]}, "entrypoint.0", "at most 256 characters"),
        ({"trainer": None, "entrypoint": ["python"], "arguments": ["a"] * 101}, "arguments", "at most 100 entries"),
        ({"name": "a--b"}, "name", "single hyphens"),
        ({"name": "x" * (RUN_MAX + 1)}, "name", f"at most {RUN_MAX} characters"),
        ({"max_runtime_seconds": 2_419_201}, "max_runtime_seconds", "at most 2,419,200"),
        ({"spot": True, "max_wait_seconds": 10}, "max_wait_seconds", "includes the runtime"),
        ({"max_wait_seconds": 100_000}, "max_wait_seconds", "spot: true"),
        ({"environment": {"A": "x" * 513}}, "environment.A", "at most 512 characters"),
        ({"environment": {f"A{i}": "x" for i in range(93)}}, "environment", "at most 92 entries"),
        ({"environment": {"A": 1}}, "environment.A", "string"),
        ({"environment": {"MUSTER_RUN": "x"}}, "environment.MUSTER_RUN", "reserved"),
        ({"tags": {"aws:x": "y"}}, "tags.aws:x", "reserved"),
        ({"tags": {"a": "x" * 257}}, "tags.a", "at most 256 characters"),
        ({"reruns": {"capacty": {"max_reruns": 1}}}, "reruns.capacty", "capacity"),
        ({"reruns": {"spot": {"max_reruns": -1}}}, "reruns.spot.max_reruns", "at least 0"),
        ({"reruns": {"spot": {"max_rerun": 1, "max_reruns": 1}}}, "reruns.spot.max_rerun", "did you mean max_reruns?"),
        ({"on_replica_failure": "retry"}, "on_replica_failure", "terminate, continue"),
        ({"on_early_finish": "wait"}, "on_early_finish", "continue, stop"),
        ({"trainer": None, "entrypoint": ["sh"], "on_early_finish": "stop"}, "on_early_finish", "only replicas with"),
        ({"min_replicas": 5, "on_replica_failure": "continue"}, "min_replicas", "at most replicas (4)"),
        ({"min_replicas": 2}, "min_replicas", "on_replica_failure: continue"),
        ({"rendezvous": {"min_participants": 5}}, "rendezvous.min_participants", "at most replicas (4)"),
        ({"rendezvous": {"grace": 1.0}}, "rendezvous.grace", "did you mean grace_seconds?"),
        ({"kwargs": {"a": object()}}, "kwargs.a", "JSON"),
        ({"image": "has space"}, "image", "no white space"),
        ({"kwargs": {"a": "\ud800"}}, "kwargs.a", "Unicode"),
        ({"kwargs": {"\ud800": 1}}, "kwargs", "Unicode"),
        ({"kwargs": {"a": [1, {"b": float("inf")}]}}, "kwargs.a.1.b", "pass it as a string"),
        ({"trainer": None, "entrypoint": ["sh", "a\nb"]}, "entrypoint.1", "one line"),
        ({"tags": {"a": "x\ty"}}, "tags.a", "letters, digits, spaces"),
        (
            {"reruns": {"spot": {"max_reruns": 1, "delay_seconds": 9, "max_delay_seconds": 3}}},
            "reruns.spot.max_delay_seconds",
            "at least delay_seconds (9)",
        ),
    ],
)
def test_each_problem_names_the_field_what_was_found_and_the_remedy(fields, field, words):
    found = problems(**fields)
    assert list(found) == [field]
    assert words in found[field]


@pytest.mark.parametrize("value", [None, [], "replicas: 4", 7])
def test_what_is_no_mapping_is_no_spec(value):
    with pytest.raises(SpecError, match="write a mapping"):
        parse_spec(value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicas: 4\nreplicas: 5\ntrainer: a.b:c", r"line 2, column 1: the key 'replicas' appears twice"),
        ("a: &x [1]\nb: *x", r"line 2, column 4: aliases"),
        ("a: [1", r"line 1, column \d+"),
        ("1: 2", "line 1, column 1: this key is not a string"),
        ("a: !!python/object/apply:os.system [ls]", r"column 4: tags \(!!python/object/apply:os.system\)"),
        ("a: '" + "x" * SPEC_BYTES_MAX + "'", "260,000"),
        ("a: b\x00", "special characters"),
    ],
)
def test_text_that_is_no_yaml_says_where(text, words):
    with pytest.raises(SpecError, match=words):
        parse_spec_text(text)


@pytest.mark.parametrize("text", ["[" * 5_000, "a: " + "{a: " * 5_000, "- " * 5_000, "[" * 2_500 + "]" * 2_500])
def test_text_that_is_nested_deeply_is_refused_where_it_is_too_deep(text):
    with pytest.raises(SpecError, match=r"line 1, column \d{3}: more than 100 levels of nesting"):
        parse_spec_text(text)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("!!int ''", r"tags \(!!int\) are not allowed"),
        ("!!float ''", r"tags \(!!float\)"),
        ("!!bool abc", r"tags \(!!bool\)"),
        ("!!timestamp abc", r"tags \(!!timestamp\)"),
        ("0x" + "f" * 5_000, "a number of 5,002 characters; allowed: at most 400, or text in quotes"),
        ("0o" + "7" * 5_000, "a number of 5,002 characters"),
        ("9" * 5_000, "a number of 5,000 characters"),
        ("0b" + "1" * 5_000, ".* is read differently by versions of YAML"),
        ("0" + "7" * 5_000, ".* is read differently by versions of YAML"),
        ("0777", "this number is read differently by versions of YAML; write it in decimal digits"),
        ("1_000", "this number is read differently"),
    ],
)
def test_a_value_that_yaml_cannot_give_safely_is_refused_in_one_line(value, words):
    with pytest.raises(SpecError, match=f"line 1, column 8: {words}") as refused:
        parse_spec_text(f"value: {value}")
    assert len(str(refused.value)) < 400


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("12:30", "12:30"),
        ("1" + ":59" * 200, "1" + ":59" * 200),
        ("no", "no"),
        ("on", "on"),
        ("2026-11-21", "2026-11-21"),
        ("'0777'", "0777"),
        ("!!str 12", "12"),
        ("0x1F", 31),
        ("0o17", 15),
        ("-3", -3),
        ("1e-4", 1e-4),
        (".5", 0.5),
        ("False", False),
        ("~", None),
        ("", None),
        ("<<", "<<"),
    ],
)
def test_a_value_without_quotes_is_what_yaml_1_2_says(value, read):
    found = parse_spec_text(f"replicas: 1\ntrainer: m:f\nkwargs:\n  value: {value}\n").kwargs["value"]
    assert (found, type(found)) == (read, type(read))


def test_kwargs_of_200_kib_are_fine():
    big = {f"key{i}": "x" * 1_000 for i in range(200)}
    assert parse_spec({**GOOD, "kwargs": big}).kwargs == big


def nested(depth: int) -> dict:
    value: dict = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


def test_nesting_is_bounded_where_a_plan_can_still_be_read_back():
    spec = parse_spec({**GOOD, "kwargs": nested(DEPTH_MAX)})
    assert Spec.model_validate_json(spec.to_json()) == spec
    assert problems(kwargs=nested(DEPTH_MAX + 1)) == {
        "kwargs": f"more than {DEPTH_MAX} levels of nesting; flatten the value, or keep it in S3"
    }
    assert set(problems(kwargs=nested(20_000), replicas="x")) == {"kwargs", "replicas"}


def test_a_resolved_spec_depends_on_no_default():
    resolved = parse_spec({**GOOD, "spot": True}).resolved()
    assert set(resolved.reruns) == set(DEFAULT_BUDGETS)
    assert (resolved.min_replicas, resolved.rendezvous.min_participants) == (4, 4)
    assert resolved.max_wait_seconds == resolved.max_runtime_seconds
    assert resolved.resolved() == resolved
