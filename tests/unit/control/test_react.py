"""React: events may come twice, late, out of order or not at all; only the name is trusted, and only after the tags."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError
from pydantic import ValidationError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.record import Next
from muster.contract.run.result import Verdict
from muster.control.attempt import Launch
from muster.control.react import JobStateChange
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.harness import RUN, ControlHarness, budget

AGAIN = "InternalServerError: again"


def change(**fields: Any) -> JobStateChange:
    values = {"TrainingJobName": "muster-one-r0-a1", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}
    return JobStateChange.model_validate({**values, **fields})


def secondaries(harness: ControlHarness) -> list[str]:
    return [step.secondary for step in harness.record().current.history]


# --- money ---


def test_the_chosen_type_counts_although_the_entry_in_the_roll_up_could_not_be_written(harness: ControlHarness) -> None:
    types = [{"instance_type": name} for name in ("ml.p5.48xlarge", "ml.g5.2xlarge")]
    run = harness.plan(cost_ceiling_usd=100.0, instance_type=None, instance_preferences=types)
    harness.arm()
    layout = run.documents.layout
    before = harness.keys(layout.spent)
    shard = layout.roll_up_shard(0)
    down = Fault("PutObject", server_error("PutObject").error, when=lambda call: call.parameters["Key"] == shard)
    harness.cloud.calls.inject(down)
    chosen = change(ResourceConfig={"SelectedInstanceType": "ml.g5.2xlarge"})
    with pytest.raises(ClientError):
        harness.react(chosen)
    harness.react(chosen)
    assert (down.fired, len(harness.keys(layout.spent))) == (1, len(before) + 1)


# --- a life ---------------------------------------------------------------------------------------


def test_a_life_is_noted_step_by_step_and_its_end_is_recorded(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    assert harness.deliver() == [
        "noted: InProgress/Starting",
        "noted: InProgress/Downloading",
        "noted: InProgress/Training",
        "noted: InProgress/Uploading",
        "decided",
    ]
    current = harness.record().current
    assert (current.status, current.secondary, current.failure_class) == ("Completed", "Completed", None)
    assert secondaries(harness) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    assert current.artifacts == "s3://bucket/output/one/muster-one-r0-a1/output/model.tar.gz"
    assert harness.answer() == harness.decided()


def test_a_failure_is_classified_and_rerun(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.clock.advance(42)
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    # The event is late; the attempt ended when SageMaker says.
    harness.cloud.clock.advance(30)
    reaction = harness.react(event)
    assert reaction.decision is not None
    assert (reaction.decision.next, reaction.decision.attempt) == (Next.RERUN, 2)
    current = harness.record().current
    assert (current.failure_class, current.reason) == (FailureClass.INFRASTRUCTURE, AGAIN)
    assert current.ended_at == "2026-01-01T00:00:42.000Z"


# --- dropped --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["other-one-r0-a1", "muster-one", "muster-one-r0-a01", "training-job-2026"])
def test_a_name_that_is_not_ours_is_dropped_without_a_look(harness: ControlHarness, name: str) -> None:
    harness.plan()
    harness.cloud.calls.reset()
    assert harness.react(change(TrainingJobName=name)).what == "dropped: the job's name does not have Muster's form"
    assert harness.cloud.calls.log == []


@pytest.mark.parametrize("name", ["muster-other-r0-a1", "muster-one-r0-a1", "muster-one-r7-a1"])
def test_an_event_of_no_replica_is_dropped(harness: ControlHarness, name: str) -> None:
    """There is no such run; the replica was not launched; there is no such rank."""
    harness.plan()
    assert harness.react(change(TrainingJobName=name)).what == "dropped: no such replica"


def test_an_event_of_an_earlier_attempt_is_dropped(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    harness.react(event)
    harness.arm(attempt=2)
    before = harness.record()
    assert harness.react(event).what == "dropped: attempt 1 is not the current one"
    assert harness.record() == before
    assert harness.answer() is None


def test_an_event_of_an_attempt_that_is_not_launched_yet_is_dropped(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    assert harness.react(change(TrainingJobName=harness.job(attempt=2))).what.startswith("dropped: attempt 2")


def test_an_end_of_an_attempt_that_is_succeeded_while_it_is_recorded_is_dropped(harness: ControlHarness) -> None:
    """Another function handles a copy of the event, and the next attempt is launched, in between look and write."""
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())

    def overtake() -> None:
        harness.react(event)
        harness.arm(attempt=2)

    harness.cloud.calls.inject(Fault("PutObject", action=overtake))
    assert harness.react(event).what == "dropped: a newer attempt is the current one"
    assert harness.record().current.attempt == 2
    assert harness.answer() is None


# --- a job that SageMaker has created after it refused ---------------------------------------------


def launch_late(harness: ControlHarness, **fields: Any) -> JobStateChange:
    """Attempt 1 is refused and not found, and then its job is there: its first event. Attempt 2 may be launched."""
    harness.plan(**{"reruns": {"quota": {"max_reruns": 1, "delay_seconds": 0}}, **fields})
    accepted: list[dict[str, Any]] = []
    refused = Fault(
        "CreateTrainingJob",
        AwsError("ResourceLimitExceeded", "no"),
        when=lambda call: not accepted.append(dict(call.parameters)),
    )
    harness.cloud.calls.inject(refused)
    assert harness.arm() is Launch.CONCLUDED
    harness.cloud.client("sagemaker").create_training_job(**accepted[0])
    return harness.last_event(harness.job())


def test_a_job_that_appears_after_its_refusal_is_stopped_and_the_newer_attempt_trains_on(
    harness: ControlHarness,
) -> None:
    late = launch_late(harness)
    assert harness.arm(attempt=2) is Launch.CREATED
    harness.deliver()
    before = harness.record()
    assert harness.react(late).what.endswith("stopped: its launch was recorded as refused")
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    assert harness.cloud.training.names("InProgress") == [harness.job(attempt=2)]
    assert harness.record() == before
    harness.cloud.clock.advance(120)
    assert "noted: Stopped, of a job whose launch was recorded as refused" in harness.deliver()
    first, second = harness.record().attempts
    assert (first.status, first.failure_class, first.reason) == (
        "Stopped",
        FailureClass.QUOTA,
        "ResourceLimitExceeded: no",
    )
    assert (second, harness.record().decision) == (before.current, None)
    assert harness.answer() is None


def test_a_job_that_appears_after_its_refusal_is_stopped_before_the_next_attempt_is_launched(
    harness: ControlHarness,
) -> None:
    late = launch_late(harness, reruns={"quota": {"max_reruns": 1, "delay_seconds": 100}})
    decided = harness.record().decision
    harness.react(late)
    harness.cloud.clock.advance(130)
    harness.deliver()
    assert harness.cloud.training.names("Stopped") == [harness.job()]
    assert harness.record().decision == decided
    assert harness.arm(attempt=2) is Launch.CREATED


def test_a_job_that_appears_after_its_replica_was_lost_is_stopped(harness: ControlHarness) -> None:
    late = launch_late(harness, reruns={"quota": {"max_reruns": 0}})
    harness.react(late)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_what_a_late_job_costs_counts_for_the_ceiling(harness: ControlHarness) -> None:
    late = launch_late(harness, cost_ceiling_usd=100.0)
    harness.arm(attempt=2)
    spent = f"control/{RUN}/spent/"
    before = len(harness.keys(spent))
    harness.cloud.training.train(harness.job())
    harness.react(late)
    assert "0-1-on-ml.m5.large" in harness.keys(spent)
    harness.cloud.clock.advance(120)
    harness.deliver()
    assert harness.record().attempts[0].billable_seconds == 120
    assert len(harness.keys(spent)) == before + 2


def test_a_stop_of_a_late_job_that_was_throttled_brings_the_event_back(harness: ControlHarness) -> None:
    late = launch_late(harness)
    harness.arm(attempt=2)
    harness.cloud.calls.inject(throttle("StopTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        harness.react(late)
    harness.react(late)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_a_foreign_job_under_the_name_of_a_refused_attempt_is_left_alone(harness: ControlHarness) -> None:
    late = launch_late(harness)
    tags = {"muster:run": RUN, "muster:rank": "0", "muster:attempt": "1", "muster:plan": "another"}
    assert harness.react(late.model_copy(update={"Tags": tags})).what == "dropped: the job does not belong to this run"
    assert harness.cloud.training.names("InProgress") == [harness.job()]


@pytest.mark.parametrize("status", ["InProgress", "Failed"])
def test_an_event_whose_tags_are_of_another_plan_is_dropped(harness: ControlHarness, status: str) -> None:
    harness.plan()
    harness.arm()
    before = harness.record()
    event = harness.last_event(harness.job()).model_copy(
        update={"TrainingJobStatus": status, "Tags": {"muster:run": RUN, "muster:rank": "0", "muster:attempt": "1"}}
    )
    assert harness.react(event).what == "dropped: the job does not belong to this run"
    assert harness.record() == before


def test_a_foreign_job_without_tags_in_its_event_is_dropped(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    record = harness.record(0)
    run.documents.update_record(1, lambda _: record.model_copy(update={"rank": 1}))
    assert (
        harness.react(change(TrainingJobName="muster-one-r1-a1")).what == "dropped: the job does not belong to this run"
    )


# --- tags, and what an event leaves out -----------------------------------------------------------


def test_tags_may_be_a_list_or_an_object(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    event = harness.last_event(harness.job())
    assert isinstance(event.Tags, dict)
    again = JobStateChange.model_validate({**event.model_dump(), "Tags": dict(event.Tags)})
    assert again.Tags == event.Tags
    assert harness.react(event).what == harness.react(again).what == "noted: InProgress/Starting"


def test_an_event_without_tags_is_held_to_the_job(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    event = harness.last_event(harness.job()).model_copy(update={"Tags": {}})
    harness.cloud.calls.reset()
    assert harness.react(event).what == "noted: InProgress/Starting"
    assert harness.cloud.calls.counts()["ListTags"] == 1
    # The record has a status now: an earlier look has proven the job to be ours.
    harness.react(event)
    assert harness.cloud.calls.counts()["ListTags"] == 1
    # So thousands of jobs that end at the same time cause no calls of SageMaker.
    harness.cloud.training.complete(harness.job())
    harness.cloud.calls.reset()
    assert harness.react(harness.last_event(harness.job()).model_copy(update={"Tags": {}})).what == "decided"
    assert not {call.operation for call in harness.cloud.calls.log if call.service == "sagemaker"}


def test_an_end_that_is_the_first_event_of_its_job_is_held_to_the_job(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    event = harness.last_event(harness.job()).model_copy(update={"Tags": {}})
    harness.cloud.calls.reset()
    assert harness.react(event).what == "decided"
    assert harness.cloud.calls.counts()["ListTags"] == 1


def test_what_cannot_be_read_of_an_event_counts_as_missing(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.cloud.clock.advance(9)
    broken: dict[str, Any] = {
        "TrainingJobArn": 7,
        "SecondaryStatus": None,
        "SecondaryStatusTransitions": "none",
        "FailureReason": [],
        "LastModifiedTime": "yesterday",
        "ResourceConfig": [],
        "ModelArtifacts": 1,
        "Tags": 3.5,
    }
    assert harness.react(change(TrainingJobStatus="Completed", **broken)).what == "decided"
    current = harness.record().current
    assert (current.status, current.artifacts, current.instance_type) == ("Completed", None, "ml.m5.large")
    assert current.ended_at == "2026-01-01T00:00:09.000Z"


def test_fields_and_statuses_that_are_not_known_are_kept_or_left_and_never_refused(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    event = {**harness.last_event(harness.job()).model_dump(), "TrainingJobStatus": "Deleting", "New": {"field": 1}}
    assert harness.react(JobStateChange.model_validate(event)).what == "noted: Deleting/Starting"
    assert harness.record().current.status == "Deleting"


@pytest.mark.parametrize("field", ["TrainingJobName", "TrainingJobStatus"])
def test_an_event_without_what_it_is_about_is_an_error(field: str) -> None:
    detail = {name: value for name, value in change().model_dump().items() if name != field}
    with pytest.raises(ValidationError, match=field):
        JobStateChange.model_validate(detail)


# --- order ----------------------------------------------------------------------------------------


def test_an_event_that_comes_late_takes_nothing_from_the_history(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.train(harness.job())
    starting, downloading, training = (
        JobStateChange.model_validate(event["detail"])
        for event in harness.cloud.notifications.drain()
        if event["source"] == "aws.sagemaker"
    )
    for event in (training, starting, downloading):
        harness.react(event)
        assert secondaries(harness) == ["Starting", "Downloading", "Training"]
        assert harness.record().current.secondary == "Training"


def test_an_event_that_comes_after_the_end_changes_nothing(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.cloud.notifications.pending.reverse()
    assert harness.deliver()[0] == "decided"
    current = harness.record().current
    assert (current.status, len(current.history)) == ("Completed", 5)


def test_events_that_come_after_the_job_was_looked_at_change_nothing(harness: ControlHarness) -> None:
    """The end was learnt by a re-arm, which reads no history: every late event has a longer one."""
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    harness.arm()
    before = harness.record()
    assert harness.deliver()[-1] == "announced again: the decision was already recorded"
    assert harness.record() == before


def test_an_end_that_comes_twice_is_announced_twice_and_decided_once(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job())
    token = harness.record().token
    harness.cloud.workflow.expire(token)
    first, second = harness.react(event), harness.react(event)
    assert (first.what, second.what) == ("decided", "announced again: the decision was already recorded")
    assert second.decision is None
    assert harness.emitted().count("Replica Rerun") == 1


def test_an_end_is_recorded_although_all_earlier_events_were_lost(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    harness.cloud.training.complete(harness.job())
    event = harness.last_event(harness.job())
    assert harness.react(event).what == "decided"
    assert secondaries(harness) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]


def test_a_history_without_end_stays_small(harness: ControlHarness) -> None:
    harness.plan()
    harness.arm()
    event = harness.last_event(harness.job())
    many = [{"Status": f"Interrupted{number}", "StartTime": 1_000.0 * number} for number in range(500)]
    harness.react(JobStateChange.model_validate({**event.model_dump(), "SecondaryStatusTransitions": many}))
    assert (len(secondaries(harness)), secondaries(harness)[-1]) == (200, "Interrupted499")


# --- the fence ------------------------------------------------------------------------------------


def test_a_job_that_appears_in_a_run_that_is_stopping_is_stopped(harness: ControlHarness) -> None:
    run = harness.plan()
    harness.arm()
    run.documents.raise_fence(
        Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="cancelled", at="t")
    )
    assert harness.deliver() == ["noted: InProgress/Starting, stopped: the run is stopping"]
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    # The events of the stop itself ask for no other one.
    harness.cloud.calls.reset()
    assert harness.deliver() == ["noted: Stopping/Stopping"]
    assert harness.cloud.calls.counts()["StopTrainingJob"] == 0
    harness.cloud.clock.advance(120)
    assert harness.deliver() == ["decided"]
    assert harness.record().current.failure_class is FailureClass.STOPPED_BY_MUSTER


def test_a_stop_that_was_throttled_brings_the_event_back(harness: ControlHarness) -> None:
    """Lambda delivers an event again after an error."""
    run = harness.plan()
    harness.arm()
    run.documents.raise_fence(Fence(verdict=Verdict.STOPPED, cause=FenceCause.EXECUTION_STOPPED, reason="", at="t"))
    event = harness.last_event(harness.job())
    harness.cloud.calls.inject(throttle("StopTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        harness.react(event)
    harness.react(event)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


@pytest.mark.parametrize("operation", ["DescribeTrainingJob", "ListTags"])
def test_minutes_of_throttling_lose_no_end(harness: ControlHarness, operation: str) -> None:
    """Thousands of jobs end at the same time, and no event has tags or shows whose its job is."""
    harness.plan()
    harness.arm()
    harness.cloud.training.fail(harness.job(), AGAIN)
    event = harness.last_event(harness.job()).model_copy(update={"Tags": {}})
    began = harness.cloud.clock.monotonic()
    storm = throttle(operation, None, when=lambda _: harness.cloud.clock.monotonic() - began < 240)
    harness.cloud.calls.inject(storm)
    harness.plane.allow(budget(285))
    assert harness.react(event).what == "decided"
    assert 240 <= harness.cloud.clock.monotonic() - began < 285
