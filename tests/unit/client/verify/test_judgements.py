"""Each check of a verification: it holds for healthy facts, and fails for facts in which one thing is wrong."""

from __future__ import annotations

import re

import pytest

from muster.client.verify.verification import Check, Outcome, Verification, check_lines, summary_lines
from muster.contract.timestamps import Timestamp
from tests.support.verification import BREAKAGES, Breakage, healthy


def test_healthy_facts_fail_nothing_and_leave_nothing_unchecked() -> None:
    found = list(healthy())
    assert [check for check in found if check.outcome not in {Outcome.OK, Outcome.INFO}] == []


@pytest.mark.parametrize("breakage", BREAKAGES, ids=str)
def test_a_check_fails_and_names_the_cause(breakage: Breakage) -> None:
    [check] = [check for check in breakage.judge() if check.outcome is Outcome.FAILED]
    assert check.name == breakage.check
    assert re.search(breakage.words, check.seen), check.seen


def test_every_check_that_can_hold_was_made_to_fail() -> None:
    holds = {check.name for check in healthy() if check.outcome is Outcome.OK}
    # The schedule of a run that could not be removed is information: it finds the run ended, and deletes itself.
    assert holds - {breakage.check for breakage in BREAKAGES} == {"version", "schedules-left"}


def verification(*checks: Check) -> Verification:
    return Verification(
        stack="Muster",
        region="eu-west-1",
        version="0.1.0",
        started_at=Timestamp("2026-11-21T09:45:00.000Z"),
        promise=None,
        run=None,
        checks=checks,
    )


def test_a_verification_passes_unless_a_check_has_failed() -> None:
    good, info, unchecked, bad = (
        Check(name=outcome.value, outcome=outcome, seen="x.")
        for outcome in (Outcome.OK, Outcome.INFO, Outcome.UNCHECKED, Outcome.FAILED)
    )
    assert verification(good, info, unchecked).passed
    assert not verification(good, bad).passed
    assert list(summary_lines(verification(good, bad))) == ["Muster in eu-west-1: 1 ok, 1 failed.", "Failed: failed."]


def test_an_assumption_that_does_not_hold_can_be_pasted_into_an_issue() -> None:
    check = Check(name="x", outcome=Outcome.FAILED, seen="b.", remedy="Do c.", assumes="a")
    assert list(check_lines(check)) == [
        "failed     x: b.",
        "           Do c.",
        "           assumption: Muster assumes that a; seen: b.",
    ]
    assert list(check_lines(check.model_copy(update={"outcome": Outcome.OK}))) == ["ok         x: b."]
