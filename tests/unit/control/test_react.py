"""React: events may come twice, late, out of order or not at all; only the name is trusted, and only after the tags."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.roll_up import ReplicaEntry
from muster.control.attempt_request import Launch
from muster.control.react import JobStateChange
from tests.memory import AwsError, Fault, server_error, throttle
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import (
    AGAIN,
    CANCELLED,
    FunctionEndedError,
    Row,
    create_job,
    entries,
    launched,
    refuse,
)

SPENT = f"control/{RUN}/spent/"
NOT_OURS = "dropped: the job does not belong to this run"
KNOWN = "announced again: the decision was already recorded"


def change(**fields: Any) -> JobStateChange:
    values = {"TrainingJobName": "muster-one-r0-a1", "TrainingJobStatus": "InProgress", "SecondaryStatus": "Training"}
    return JobStateChange.model_validate({**values, **fields})


def failed(harness: ControlHarness) -> JobStateChange:
    """The event of the end of the first job, after which a rerun follows."""
    launched(harness)
    harness.cloud.training.fail(harness.job(), AGAIN)
    return harness.last_event(harness.job())


def secondaries(harness: ControlHarness) -> list[str]:
    return [step.secondary for step in harness.record().current.history]


def test_the_chosen_type_counts_although_the_entry_in_the_roll_up_could_not_be_written(harness: ControlHarness) -> None:
    types = [{"instance_type": name} for name in ("ml.p5.48xlarge", "ml.g5.2xlarge")]
    run = launched(harness, cost_ceiling_usd=100.0, instance_type=None, instance_preferences=types)
    before, shard = harness.keys(SPENT), run.documents.layout.roll_up_shard(0)
    down = Fault("PutObject", server_error("PutObject").error, when=lambda call: call.parameters["Key"] == shard)
    harness.cloud.calls.inject(down)
    chosen = change(ResourceConfig={"SelectedInstanceType": "ml.g5.2xlarge"})
    with pytest.raises(ClientError):
        harness.react(chosen)
    harness.react(chosen)
    assert (down.fired, len(harness.keys(SPENT))) == (1, len(before) + 1)


# --- dropped --------------------------------------------------------------------------------------


def test_an_event_about_no_attempt_of_a_replica_is_dropped(row: Row) -> None:
    no_form, no_replica = "dropped: the job's name does not have Muster's form", "dropped: no such replica"
    for name, words in (
        ("other-one-r0-a1", no_form),
        ("muster-one", no_form),
        ("muster-one-r0-a01", no_form),
        ("muster-other-r0-a1", no_replica),
        ("muster-one-r7-a1", no_replica),
        ("muster-one-r1-a1", no_replica),
        ("muster-one-r0-a2", "dropped: attempt 2 is not the current one"),
    ):
        with row(name) as harness:
            harness.plan(replicas=2)
            harness.arm()
            harness.cloud.calls.reset()
            assert harness.react(change(TrainingJobName=name)).what == words
            assert words != no_form or harness.cloud.calls.log == []


def test_an_end_of_an_attempt_that_is_succeeded_while_it_is_recorded_is_dropped(harness: ControlHarness) -> None:
    """Another function handles a copy of the event, and the next attempt is launched, in between look and write."""
    event = failed(harness)

    def overtake() -> None:
        harness.react(event)
        harness.arm(attempt=2)

    harness.cloud.calls.inject(Fault("PutObject", action=overtake))
    assert harness.react(event).what == "dropped: a newer attempt is the current one"
    assert (harness.record().current.attempt, harness.answer()) == (2, None)


# --- a job that SageMaker has created after it refused ---------------------------------------------


def launch_late(harness: ControlHarness, reruns: int = 1, **fields: Any) -> JobStateChange:
    """Attempt 1 is refused and not found, and then its job is there: its first event. Attempt 2 may be launched."""
    harness.plan(reruns={"quota": {"max_reruns": reruns, "delay_seconds": 0}}, **fields)
    harness.cloud.calls.inject(Fault("CreateTrainingJob", AwsError("ResourceLimitExceeded", "no")))
    assert harness.arm() is Launch.CONCLUDED
    create_job(harness, harness.job())
    return harness.last_event(harness.job())


def test_a_job_that_appears_after_its_refusal_is_stopped_and_billed_and_the_newer_attempt_trains_on(
    harness: ControlHarness,
) -> None:
    late = launch_late(harness, cost_ceiling_usd=100.0)
    assert harness.arm(attempt=2) is Launch.CREATED
    harness.deliver()
    before, spent = harness.record(), len(harness.keys(SPENT))
    harness.cloud.training.train(harness.job())
    assert harness.react(late).what.endswith("stopped: its launch was recorded as refused")
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    assert harness.cloud.training.names("InProgress") == [harness.job(attempt=2)]
    assert harness.record() == before
    assert "0-1-on-ml.m5.large" in harness.keys(SPENT)
    harness.cloud.clock.advance(120)
    assert "noted: Stopped, of a job whose launch was recorded as refused" in harness.deliver()
    first, second = harness.record().attempts
    assert (first.status, first.failure_class, first.billable_seconds) == ("Stopped", FailureClass.QUOTA, 120)
    assert first.reason == "ResourceLimitExceeded: no"
    assert (second, harness.record().decision, harness.answer()) == (before.current, None, None)
    assert len(harness.keys(SPENT)) == spent + 2


def test_what_a_late_job_said_enters_the_record_without_values_of_the_environment(harness: ControlHarness) -> None:
    late = launch_late(harness, environment={"TOKEN": "hunter2canary"})
    assert harness.arm(attempt=2) is Launch.CREATED
    harness.react(late)
    harness.cloud.training.say(harness.job(), "could not log in with hunter2canary")
    harness.cloud.clock.advance(120)
    harness.deliver()
    first = harness.record().attempts[0]
    assert "could not log in with (TOKEN, not shown)" in [step.message for step in first.history]


def test_an_end_of_a_late_job_that_was_recorded_and_not_rolled_up_is_rolled_up_by_the_next_call(
    harness: ControlHarness,
) -> None:
    late = launch_late(harness)
    assert harness.arm(attempt=2) is Launch.CREATED
    harness.react(late)
    harness.cloud.clock.advance(120)
    ended = harness.last_event(harness.job())
    is_shard = Fault("PutObject", FunctionEndedError(), when=lambda call: "/rollup/" in call.parameters["Key"])
    harness.cloud.calls.inject(is_shard)
    with pytest.raises(FunctionEndedError):
        harness.react(ended)
    harness.react(ended)
    assert entries(harness.cloud, RUN)[0].says_the_same(ReplicaEntry.of(harness.record()))


def test_a_job_that_appears_after_its_replica_was_lost_is_stopped(harness: ControlHarness) -> None:
    late = launch_late(harness, reruns=0)
    decided = harness.record().decision
    harness.react(late)
    assert harness.cloud.training.names("Stopping") == [harness.job()]
    harness.cloud.clock.advance(120)
    harness.deliver()
    assert harness.record().decision == decided


# --- tags, and what an event leaves out -----------------------------------------------------------


def test_only_an_event_with_the_tags_of_the_plan_is_believed_and_they_may_be_a_list_or_an_object(
    harness: ControlHarness,
) -> None:
    launched(harness, tags={"owner": "me"})
    before, event = harness.record(), harness.last_event(harness.job())
    tags = {"muster:run": RUN, "muster:rank": "0", "muster:attempt": "1"}
    for status in ("InProgress", "Failed"):
        foreign = event.model_copy(update={"TrainingJobStatus": status, "Tags": tags})
        assert harness.react(foreign).what == NOT_OURS, status
        assert harness.record() == before, status
    assert event.Tags
    # The user's own tags may change.
    changed = {**event.Tags, "owner": "ME"}
    for known in (changed, [{"Key": key, "Value": value} for key, value in event.Tags.items()]):
        again = JobStateChange.model_validate({**event.model_dump(), "Tags": known})
        assert harness.react(again).what == "noted: InProgress/Starting", known


def test_an_event_without_tags_is_held_to_the_job_until_that_is_proven_to_be_ours(harness: ControlHarness) -> None:
    """So thousands of jobs that end at the same time cause no calls of SageMaker."""
    record = launched(harness, 2) and harness.record()
    documents = harness.plane.runs.require(RUN).documents
    documents.update_record(1, lambda _: record.model_copy(update={"rank": 1}))
    assert harness.react(change(TrainingJobName="muster-one-r1-a1")).what == NOT_OURS
    harness.cloud.calls.reset()
    for _ in range(2):
        assert harness.react(change(Tags={})).what == "noted: InProgress/Training"
        assert harness.cloud.calls.counts()["ListTags"] == 1
    harness.cloud.training.complete(harness.job())
    harness.cloud.calls.reset()
    ended = harness.last_event(harness.job()).model_copy(update={"Tags": {}})
    assert harness.react(ended).what == "decided"
    assert not {call.operation for call in harness.cloud.calls.log if call.service == "sagemaker"}


def test_what_is_not_known_of_an_event_is_kept_or_left_and_what_cannot_be_read_counts_as_missing(
    harness: ControlHarness,
) -> None:
    launched(harness)
    event = {**harness.last_event(harness.job()).model_dump(), "TrainingJobStatus": "Deleting", "New": {"field": 1}}
    assert harness.react(JobStateChange.model_validate(event)).what == "noted: Deleting/Starting"
    assert harness.record().current.status == "Deleting"
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


# --- order ----------------------------------------------------------------------------------------


def test_an_event_that_comes_late_takes_nothing_from_the_history(harness: ControlHarness) -> None:
    launched(harness)
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


def test_events_that_come_after_the_job_was_looked_at_change_nothing(harness: ControlHarness) -> None:
    """The end was learnt by a re-arm, which reads no history: every late event has a longer one."""
    launched(harness)
    harness.cloud.training.complete(harness.job())
    harness.arm()
    before = harness.record()
    assert harness.deliver()[-1] == KNOWN
    assert harness.record() == before


def test_an_end_that_comes_twice_is_announced_twice_and_decided_once(harness: ControlHarness) -> None:
    event = failed(harness)
    harness.cloud.workflow.expire(harness.record().token)
    first, second = harness.react(event), harness.react(event)
    assert (first.what, second.what, second.decision) == ("decided", KNOWN, None)
    assert harness.emitted().count("Replica Rerun") == 1


def test_an_end_is_recorded_although_all_earlier_events_were_lost(harness: ControlHarness) -> None:
    launched(harness)
    harness.cloud.clock.advance(42)
    harness.cloud.training.complete(harness.job())
    event = harness.last_event(harness.job())
    # The event is late; the attempt ended when SageMaker says.
    harness.cloud.clock.advance(30)
    assert harness.react(event).what == "decided"
    assert secondaries(harness) == ["Starting", "Downloading", "Training", "Uploading", "Completed"]
    current = harness.record().current
    assert (current.status, current.ended_at) == ("Completed", "2026-01-01T00:00:42.000Z")
    assert current.artifacts == "s3://bucket/output/one/muster-one-r0-a1/output/model.tar.gz"


def test_a_history_without_end_stays_small(harness: ControlHarness) -> None:
    launched(harness)
    event = harness.last_event(harness.job())
    many = [{"Status": f"Interrupted{number}", "StartTime": 1_000.0 * number} for number in range(500)]
    for late in (0, 100):
        changed = {"SecondaryStatusTransitions": many[: 500 - late], "SecondaryStatus": f"Interrupted{499 - late}"}
        harness.react(JobStateChange.model_validate({**event.model_dump(), **changed}))
        assert (len(secondaries(harness)), secondaries(harness)[-1]) == (200, "Interrupted499")
        assert harness.record().current.secondary == "Interrupted499"


# --- the fence ------------------------------------------------------------------------------------


def test_a_job_that_appears_in_a_run_that_is_stopping_is_stopped(harness: ControlHarness) -> None:
    launched(harness).documents.raise_fence(CANCELLED)
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
    launched(harness).documents.raise_fence(CANCELLED)
    event = harness.last_event(harness.job())
    harness.cloud.calls.inject(throttle("StopTrainingJob"))
    with pytest.raises(ClientError, match="ThrottlingException"):
        harness.react(event)
    harness.react(event)
    assert harness.cloud.training.names("Stopping") == [harness.job()]


def test_minutes_of_throttling_lose_no_end(row: Row) -> None:
    """Thousands of jobs end at the same time, and no event has tags or shows whose its job is."""
    for operation in ("DescribeTrainingJob", "ListTags"):
        with row(operation) as harness:
            event = failed(harness).model_copy(update={"Tags": {}})
            began = harness.cloud.clock.monotonic()
            refuse(harness, operation, 240)
            harness.plane.allow(budget(285))
            assert harness.react(event).what == "decided"
            assert 240 <= harness.cloud.clock.monotonic() - began < 285
