"""Muster and AWS's own SDK on the same recipes: equal field by field, except for the differences that are listed."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.oracle import muster_side
from tests.oracle.cases import Case, cases
from tests.oracle.differences import REQUESTS, RESOLVED, Difference, by_name, found_differences
from tests.oracle.exact import decoded, encoded

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "sagemaker" / "bin" / "python"
CASES = cases()
JOBS = [case for case in CASES if case.job is not None]


def named(case: Case) -> str:
    return case.name


@cache
def asked() -> dict[str, Any]:
    """What the SDK answers: one process for all tests, since it imports for two seconds."""
    questions = {
        "resolved": [encoded(case.question()) for case in CASES],
        "from_recipe": [encoded(case.question()) for case in JOBS if case.base is None],
        "trained": [encoded(case.question()) for case in JOBS if case.base is not None],
    }
    command = [str(PYTHON), "-m", "tests.oracle.sagemaker_side"]
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers


def theirs(kind: str, case: Case) -> Any:
    answer = asked()[kind][case.name]
    assert "value" in answer, answer
    return decoded(answer["value"])


def unexplained(
    case: Case, found: dict[str, tuple[object, object]], listed: Sequence[Difference]
) -> Iterator[tuple[str, object, object]]:
    for field, (left, right) in found.items():
        if not any(one.explains(case.name, field, left, right) for one in listed):
            yield field, left, right


@pytest.mark.parametrize("case", CASES, ids=named)
def test_a_recipe_resolves_as_the_sdk_resolves_it(case: Case) -> None:
    found = found_differences(theirs("resolved", case), muster_side.resolved(case))
    assert list(unexplained(case, found, RESOLVED)) == []


def request_differences(case: Case) -> dict[str, tuple[object, object]]:
    kind = "from_recipe" if case.base is None else "trained"
    return found_differences(by_name(theirs(kind, case)["request"]), by_name(muster_side.request(case)))


@pytest.mark.parametrize("case", JOBS, ids=named)
def test_a_job_gets_the_request_that_the_sdk_sends(case: Case) -> None:
    assert list(unexplained(case, request_differences(case), REQUESTS)) == []


def test_every_listed_difference_occurs() -> None:
    found = [(case, request_differences(case)) for case in JOBS]
    unused = [
        one
        for one in REQUESTS
        if not any(
            one.explains(case.name, field, *pair) for case, differences in found for field, pair in differences.items()
        )
    ]
    assert unused == []
