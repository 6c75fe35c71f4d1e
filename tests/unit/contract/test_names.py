"""Names of runs and jobs: what AWS accepts, what is read back, and what two runs never share."""

import re
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from muster.contract.names import (
    ATTEMPT_MAX,
    CONTINUATIONS_MAX,
    JOB_NAME_MAX,
    PREFIX_MAX,
    REPLICAS_MAX,
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
def test_every_execution_gets_job_names_that_aws_accepts_and_we_can_read_back(
    execution: str, rank: int, attempt: int
) -> None:
    name = JobName("m" * PREFIX_MAX, run_name(execution), rank, attempt)
    assert len(str(name)) <= JOB_NAME_MAX
    assert AWS_PATTERN.fullmatch(str(name))
    assert JobName.parse(str(name), name.prefix) == name


@given(EXECUTION_NAMES, EXECUTION_NAMES)
def test_two_executions_never_share_a_run(one: str, other: str) -> None:
    assert (run_name(one) == run_name(other)) == (one == other)


FOREIGN = (
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
)


def test_the_longest_name_fits_exactly_and_foreign_names_are_not_read() -> None:
    longest = JobName("m" * PREFIX_MAX, "r" * RUN_MAX, REPLICAS_MAX - 1, ATTEMPT_MAX)
    assert len(str(longest)) == JOB_NAME_MAX
    assert [name for name in FOREIGN if JobName.parse(name, "muster") is not None] == []
    # A run that is named like a job is distinguished.
    outer = JobName("muster", "a-r1-a1", 0, 2)
    assert str(outer).startswith(run_job_prefix("muster", "a"))
    assert JobName.parse(str(outer), "muster") == outer


def test_the_names_of_executions_of_the_console_of_event_bridge_and_of_schedules() -> None:
    uuid = "0c7e4a52-3f0b-4d6e-9d66-0b8f0d3c2a11"
    assert run_name(uuid) == uuid
    cut = run_name(f"8b5f1a52-3f0b-4d6e-9d66-0b8f0d3c2a11_{uuid}")
    assert cut.startswith("8b5f1a52-3f0b-4d6e-")
    # The copies of a schedule's event name the same run.
    scheduled = scheduled_run_name("nightly", "2026-05-04T03:00:00Z")
    assert scheduled == "nightly-202605040300"
    assert all(map(is_run_name, (uuid, cut, scheduled)))


@given(st.text(max_size=80))
def test_a_name_leaves_room_for_the_number_of_every_continuation(head: str) -> None:
    suffix = time_suffix(datetime(2026, 11, 21, 9, 45, tzinfo=UTC), lambda characters: characters[-1])
    name = fresh_run_name(head, suffix)
    assert suffix == "20261121-094500-zzzzz"
    assert is_run_name(name)
    assert numbered_run_name(name, CONTINUATIONS_MAX + 1) == f"{name}-x{CONTINUATIONS_MAX + 1}"
    # One that a user has chosen may be cut.
    names = [numbered_run_name("a" * RUN_MAX, number) for number in (2, 3, CONTINUATIONS_MAX + 1)]
    assert len(set(filter(is_run_name, names))) == 3


def test_a_fresh_name_keeps_the_head_that_fits() -> None:
    assert [fresh_run_name(head, "abc") for head in ("my_training app", "__")] == ["my-training-app-abc", "run-abc"]
