"""Events that follow from what the control plane did; none of them may fail a function."""

from __future__ import annotations

import pytest
from botocore.exceptions import EndpointConnectionError

from muster.contract.errors import PROBLEMS_SHOWN, Problem, RunNameTakenError, SpecError
from muster.contract.run.run_events import TEXT_MAX, QuorumLost
from muster.control.aws.bus import Bus
from muster.control.outcome import end_attempt
from muster.control.reporting.announcements import announce_refusal, announce_rerun, announce_run_started
from tests.memory import Fault, throttle
from tests.memory.harness import BUS, RUN, ControlHarness


def test_a_start_names_the_execution_and_the_plan(harness: ControlHarness) -> None:
    plan = harness.plan(replicas=3).plan
    announce_run_started(harness.plane.bus, plan)
    [entry] = harness.cloud.events.entries
    assert (entry.bus, entry.source, entry.detail_type) == (BUS, "muster", "Run Started")
    detail = entry.detail
    assert (detail["execution_arn"], detail["replicas"], detail["plan_digest"]) == (plan.execution_arn, 3, plan.digest)
    assert "parent" not in detail


def test_a_refusal_says_all_that_is_wrong_within_the_size_of_an_event(harness: ControlHarness) -> None:
    problems = [Problem(f"field{number}", "x" * 5_000, "mend it") for number in range(300)]
    announce_refusal(harness.plane.bus, "the request", SpecError(problems))
    announce_refusal(harness.plane.bus, "another", RunNameTakenError(RUN, "arn:other"))
    many, one = harness.cloud.events.of("Run Refused")
    assert len(many["problems"]) <= PROBLEMS_SHOWN + 1
    assert max(map(len, many["problems"])) <= TEXT_MAX
    assert many["problems"][-1] == f"and {300 - len(many['problems']) + 1} more"
    assert (one["error"], len(one["problems"])) == ("Muster.RunNameTakenError", 1)


def test_only_a_rerun_that_was_decided_is_announced(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    announce_rerun(harness.plane.bus, harness.record(), job_prefix="muster")
    end_attempt(harness.plane, run.replica(0), harness.record().current.model_copy(update={"status": "Completed"}))
    announce_rerun(harness.plane.bus, harness.record(), job_prefix="muster")
    assert "Replica Rerun" not in harness.emitted()


@pytest.mark.parametrize(
    "fault", [throttle("PutEvents"), Fault("PutEvents", EndpointConnectionError(endpoint_url="https://events"))]
)
def test_an_event_that_cannot_be_sent_is_logged_and_no_error(
    harness: ControlHarness, fault: Fault, caplog: pytest.LogCaptureFixture
) -> None:
    harness.cloud.calls.inject(fault)
    Bus(harness.cloud.client("events"), BUS).emit(QuorumLost(at="t", run=RUN, reason="why"))
    assert harness.emitted() == []
    assert caplog.messages == ["event not sent"]
