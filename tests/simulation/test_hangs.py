"""A part of `python -m tests.simulation hangs`: at each step, the service on which it depends the most hangs."""

import pytest

from tests.simulation.hangs import Case, cases, hang

_AT = {"plan": "s3", "queue": "stepfunctions", "re-arm": "sagemaker", "rerun": "sts", "settle": "lambda"}


@pytest.mark.parametrize("case", [case for case in cases() if _AT.get(case.step.name) == case.service], ids=str)
def test_a_service_that_hangs_for_two_hours_fails_no_run_and_stops_nothing_healthy(case: Case) -> None:
    assert hang(case).problems == ()
