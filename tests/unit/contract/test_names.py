import re
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.names import (
    ATTEMPT_MAX,
    JOB_NAME_MAX,
    PREFIX_MAX,
    REPLICAS_MAX,
    RERUNS_MAX,
    RUN_MAX,
    JobName,
    fresh_run_name,
    is_run_name,
    numbered_run_name,
    run_job_prefix,
    run_name,
    scheduled_run_name,
    time_suffix,
)

# CreateTrainingJob's own pattern for TrainingJobName.
AWS_PATTERN = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")
# StartExecution refuses white space, brackets, wildcards and control characters; the rest is allowed.
EXECUTION_NAMES = st.text(
    st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Z"), exclude_characters='<>{}[]?*"#%\\^|~`$&,;:/'),
    min_size=1,
    max_size=80,
)


@given(EXECUTION_NAMES, st.integers(0, REPLICAS_MAX - 1), st.integers(1, ATTEMPT_MAX))
def test_every_execution_gets_job_names_that_aws_accepts_and_we_can_read_back(execution, rank, attempt):
    name = JobName("m" * PREFIX_MAX, run_name(execution), rank, attempt)
    assert len(str(name)) <= JOB_NAME_MAX
    assert AWS_PATTERN.fullmatch(str(name))
    assert JobName.parse(str(name), name.prefix) == name


@given(EXECUTION_NAMES, EXECUTION_NAMES)
def test_two_executions_never_share_a_run(one, other):
    assert (run_name(one) == run_name(other)) == (one == other)


def test_the_longest_name_fits_exactly():
    longest = JobName("m" * PREFIX_MAX, "r" * RUN_MAX, REPLICAS_MAX - 1, ATTEMPT_MAX)
    assert len(str(longest)) == JOB_NAME_MAX


@pytest.mark.parametrize(
    "name",
    [
        "muster-run-r0-a0",  # attempts begin with 1
        "muster-run-r01-a1",  # one spelling per number
        "muster-run-r0",
        "muster-run-r0-a1-x",
        "other-run-r0-a1",
        "muster-r0-a1",  # no run
        "muster--run-r0-a1",
        "muster-run-r10000-a1",
        "muster-run-r0-a1000",
        "muster-" + "x" * (RUN_MAX + 1) + "-r0-a1",
        "",
        "muster-run-r0-a1\n",
        "muster-run-r\u0661-a1",  # a digit, but not ours
    ],
)
def test_foreign_names_are_not_read(name):
    assert JobName.parse(name, "muster") is None


def test_a_run_named_like_a_job_is_distinguished():
    inner = JobName("muster", "a", 1, 1)
    outer = JobName("muster", "a-r1-a1", 0, 2)
    assert str(outer).startswith(run_job_prefix("muster", "a"))
    assert JobName.parse(str(outer), "muster") == outer
    assert JobName.parse(str(inner), "muster") == inner


def test_a_console_uuid_is_a_run_name_as_it_stands():
    uuid = "0c7e4a52-3f0b-4d6e-9d66-0b8f0d3c2a11"
    assert is_run_name(uuid)
    assert run_name(uuid) == uuid


def test_an_event_bridge_execution_name_keeps_its_head():
    name = run_name("8b5f1a52-3f0b-4d6e-9d66-0b8f0d3c2a11_0c7e4a52-3f0b-4d6e-9d66-0b8f0d3c2a11")
    assert name.startswith("8b5f1a52-3f0b-4d6e-")
    assert is_run_name(name)


@given(st.text(max_size=80))
def test_a_fresh_name_leaves_room_for_the_number_of_every_continuation(head):
    suffix = time_suffix(datetime(2026, 11, 21, 9, 45, tzinfo=UTC), lambda characters: characters[-1])
    name = fresh_run_name(head, suffix)
    assert suffix == "20261121-094500-zzzzz"
    assert is_run_name(name)
    assert numbered_run_name(name, RERUNS_MAX + 1) == f"{name}-x{RERUNS_MAX + 1}"


def test_a_fresh_name_keeps_the_head_that_fits():
    assert fresh_run_name("my_training app", "abc") == "my-training-app-abc"
    assert fresh_run_name("__", "abc") == "run-abc"


def test_the_copies_of_a_schedules_event_name_the_same_run():
    assert scheduled_run_name("nightly", "2026-05-04T03:00:00Z") == "nightly-202605040300"
    assert is_run_name(scheduled_run_name("nightly", "2026-05-04T03:00:00Z"))
