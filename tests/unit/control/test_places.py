"""Replicas in places: launched, found, stopped and looked for where they are."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError

from muster.client.runs.observer import Observer
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.errors import SpecError
from muster.contract.layout import RunLayout
from muster.contract.run.commit import Commit
from muster.contract.run.notices import Notice, NoticeKind
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.run.run_cost import spent_usd
from muster.contract.run.training_pace import Pace
from muster.contract.spec.run_limits import Timer
from muster.contract.timestamps import seconds_between
from muster.control.active_run import ActiveRun
from muster.control.attempt_request import Launch
from muster.control.aws.aws_errors import is_transient
from muster.control.clear_up import ExecutionEnded, clear_up
from muster.control.cost_ceiling import reached_ceiling
from muster.control.jobs import PlaceSilentError
from muster.control.launch_failure import LaunchFailure, give_up_replica
from muster.control.react import JobStateChange
from muster.control.run_result import write_result
from muster.control.runtime import clock
from muster.control.settle import finish_run
from muster.control.stop import StillRunningError, StopRequest, stop_remaining, stop_run
from muster.control.sweep import SweepRequest, sweep
from muster.control.timer import fire
from muster.options.places.control import choice
from muster.options.places.control.missing_replicas import heed_notices
from tests.memory import AwsError, Call, Fault
from tests.memory.harness import RUN, ControlHarness, budget
from tests.memory.places import OUTPOSTS
from tests.simulation.lives import commit, manifest_archive
from tests.support.control_steps import FunctionEndedError
from tests.support.elastic_runs import ElasticRun
from tests.support.memory_client import client_of

SHARES = {"replicas": 2, "places": {"oregon": 1, "tokyo": 1}}
LADDER: dict[str, Any] = {
    "replicas": 2,
    "on_replica_failure": "continue",
    "min_replicas": 1,
    "places": {"ladder": [{"place": "oregon", "spot": True}, {"place": "tokyo", "instance_type": "ml.m5.xlarge"}]},
}
NO_QUOTA = AwsError("ResourceLimitExceeded", "The account-level service limit is 0 Instances")


@pytest.fixture
def placed(monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlHarness]:
    monkeypatch.setattr(choice, "_prices", {})
    with ControlHarness(places=True).installed() as harness:
        yield harness


def launched(placed: ControlHarness, **fields: Any) -> ActiveRun:
    run = placed.plan(**fields)
    for rank in range(run.plan.spec.replicas):
        assert placed.arm(rank) is Launch.CREATED
    return run


def jobs_in(placed: ControlHarness, name: str, *statuses: str) -> list[str]:
    return placed.place(name).training.names(*statuses)


def _complete(placed: ControlHarness, name: str, rank: int = 0) -> None:
    """Let the first job of a rank complete, and leave its manifest in the bucket of its place."""
    place, key = placed.place(name), f"output/{RUN}/{placed.job(rank)}/output/output.tar.gz"
    placed.cloud.s3.operations["PutObject"].effect({"Bucket": place.at.bucket, "Key": key, "Body": manifest_archive()})
    place.training.complete(placed.job(rank))


def refuse_in(placed: ControlHarness, region: str, count: int | None = 1) -> None:
    """The next jobs find no quota in a place."""
    bucket = next(at.bucket for at in OUTPOSTS.values() if at.region == region)
    output = f"s3://{bucket}/"
    placed.cloud.calls.inject(
        Fault(
            "CreateTrainingJob",
            NO_QUOTA,
            when=lambda call: call.parameters["OutputDataConfig"]["S3OutputPath"].startswith(output),
            count=count,
        )
    )


# --- launching ------------------------------------------------------------------------------------


def test_each_rank_of_a_share_is_launched_in_its_place_and_stays_there(placed: ControlHarness) -> None:
    launched(placed, **SHARES, reruns={"infrastructure": {"max_reruns": 1}})
    assert (jobs_in(placed, "oregon"), jobs_in(placed, "tokyo")) == ([placed.job(0)], [placed.job(1)])
    placed.deliver()
    placed.place("tokyo").training.fail(placed.job(1), "InternalServerError: broken")
    placed.deliver()
    assert placed.arm(1, 2) is Launch.CREATED
    assert jobs_in(placed, "tokyo") == [placed.job(1), placed.job(1, 2)]
    where = placed.record(1).current.where
    assert where is not None
    assert (where.place, where.why) == ("tokyo", "its share")


def test_the_request_is_that_of_the_place_and_its_job_finds_there_what_it_reads(placed: ControlHarness) -> None:
    source = f"source/{'a' * 64}.tar.gz"
    placed.plane.store.create(source, b"archive")
    image = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.3"
    placed.plan(replicas=1, places={"tokyo": 1}, image=image, source_dir=f"s3://bucket/{source}")
    placed.arm()
    tokyo = OUTPOSTS["tokyo"]
    [request] = placed.cloud.calls.of("CreateTrainingJob")
    variables = request["Environment"]
    assert request["RoleArn"] == tokyo.replica_role_arn
    assert request["AlgorithmSpecification"]["TrainingImage"].startswith("763104351884.dkr.ecr.ap-northeast-1.")
    assert request["OutputDataConfig"]["S3OutputPath"] == f"s3://{tokyo.bucket}/output/{RUN}"
    assert variables["MUSTER_PLACE"] == "tokyo"
    assert variables["MUSTER_NEAR_URI"] == f"s3://{tokyo.bucket}/rendezvous/{RUN}/"
    assert (variables["MUSTER_REGION"], variables["MUSTER_HOME_REGION"]) == ("ap-northeast-1", "us-east-1")
    uris = [one["DataSource"]["S3DataSource"]["S3Uri"] for one in request["InputDataConfig"]]
    there = placed.cloud.s3.objects(tokyo.bucket)
    read = [*uris, variables["MUSTER_DOCUMENT"]]
    assert all(uri.startswith(f"s3://{tokyo.bucket}/") for uri in read)
    assert {uri.removeprefix(f"s3://{tokyo.bucket}/") for uri in read} == there.keys()
    home = placed.cloud.s3.objects("bucket")
    assert all(there[key].body == home[key].body for key in there)
    assert placed.cloud.sts.creators[placed.job()]["MusterRun"] == RUN


def test_a_place_that_is_not_deployed_and_what_only_home_has_are_refused_at_once(placed: ControlHarness) -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/one"
    ladder = [{"place": "oregn"}, {"place": "oregon", "training_plan": plan}]
    with pytest.raises(SpecError) as refused:
        placed.plan(places={"ladder": ladder})
    text = str(refused.value)
    assert "places.ladder[0].place: found 'oregn'; places of the stack: home, oregon, tokyo" in text
    assert "places.ladder[1].training_plan: found" in text
    assert "in us-west-2" in text


def test_a_replica_without_quota_is_launched_on_the_next_rung_at_once(placed: ControlHarness) -> None:
    placed.plan(**LADDER)
    refuse_in(placed, "us-west-2")
    assert placed.arm(0) is Launch.CONCLUDED
    assert placed.record(0).current.failure_class is FailureClass.QUOTA
    decision = placed.record(0).decision
    assert decision is not None
    assert decision.delay_seconds == 0
    assert placed.arm(0, 2) is Launch.CREATED
    current = placed.record(0).current
    assert current.where is not None
    assert (current.where.place, current.where.rung, current.instance_type) == ("tokyo", 1, "ml.m5.xlarge")
    assert current.where.why == "rung 0 (oregon) refused 0 s ago"
    [_, request] = placed.cloud.calls.of("CreateTrainingJob")
    assert request["ResourceConfig"]["InstanceType"] == "ml.m5.xlarge"
    assert not request["EnableManagedSpotTraining"]


def test_a_replica_waits_for_spot_until_the_wait_could_make_its_run_late(placed: ControlHarness) -> None:
    rounds = Pace(rounds=1, round_seconds=1_000, longest_seconds=1_000, samples_per_second=1)
    done = Commit.from_json(commit(RUN), "").model_copy(update={"pace": rounds, "expected_rounds": 3})
    late = round(2_000 * 1.1 + 600 + 1.25 * 1_800)
    run = placed.plan(**LADDER | {"places": {**LADDER["places"], "by_seconds": late + 150}})
    placed.plane.store.create(run.plan.shared_layout.commit(1), done.to_json())
    refuse_in(placed, "us-west-2", count=None)
    assert [placed.arm(0), placed.arm(0, 2)] == [Launch.CONCLUDED, Launch.CONCLUDED]
    placed.cloud.clock.sleep(151)
    assert placed.arm(0, 3) is Launch.CREATED
    assert [one.where and one.where.place for one in placed.record(0).attempts] == ["oregon", "oregon", "tokyo"]


def test_the_time_of_a_ladder_counts_from_the_first_launch_however_long_the_run_was_queued(
    placed: ControlHarness,
) -> None:
    hour = 3_600
    run = placed.plan(**LADDER | {"places": {**LADDER["places"], "by_seconds": 2 * hour}})
    assert run.plan.created_at == clock.now()
    placed.cloud.clock.sleep(10 * hour)  # in the run queue
    refuse_in(placed, "us-west-2", count=None)
    assert [placed.arm(0), placed.arm(0, 2)] == [Launch.CONCLUDED, Launch.CONCLUDED]
    placed.cloud.clock.sleep(2 * hour)
    placed.arm(1)
    assert placed.arm(1, 2) is Launch.CREATED
    assert [one.where and one.where.place for one in placed.record(0).attempts] == ["oregon", "oregon"]


def test_a_rung_above_its_price_cap_is_passed_over_and_no_rung_is_a_shortage(placed: ControlHarness) -> None:
    placed.cloud.prices |= {("us-west-2", "ml.m5.large"): 0.2, ("ap-northeast-1", "ml.m5.large"): 0.1}
    ladder = [{"place": "oregon", "price_cap": 0.15}, {"place": "tokyo", "price_cap": 0.15}]
    placed.plan(replicas=1, places={"ladder": ladder})
    assert placed.arm() is Launch.CREATED
    where = placed.record().current.where
    assert where is not None
    assert (where.place, where.why) == (
        "tokyo",
        "rung 0 (oregon) costs $0.20 an hour on demand, as AWS lists it, above its cap of $0.15",
    )
    placed.cloud.clock.sleep(3_601)
    placed.cloud.prices["ap-northeast-1", "ml.m5.large"] = 0.3
    placed.plan("two", replicas=1, places={"ladder": ladder})
    assert placed.arm(run="two") is Launch.CONCLUDED
    record = placed.record(run="two")
    assert record.current.failure_class is FailureClass.CAPACITY
    assert record.current.reason.startswith("no rung is open: rung 0 (oregon) costs $0.20")


def test_no_more_replicas_are_on_a_rung_than_it_may_have_whatever_the_order(placed: ControlHarness) -> None:
    ladder = [{"place": "oregon", "at_most": 1}, {"place": "tokyo"}]
    placed.plan(replicas=3, places={"ladder": ladder})
    for rank in (2, 0, 1):
        placed.arm(rank)
    assert (jobs_in(placed, "oregon"), len(jobs_in(placed, "tokyo"))) == ([placed.job(0)], 2)


def test_a_seat_that_is_not_wanted_fills_no_rung(placed: ControlHarness) -> None:
    ladder = {"ladder": [{"place": "oregon", "at_most": 2}, {"place": "tokyo"}]}
    run = ElasticRun(placed, replicas={"min": 1, "start": 3, "max": 3}, places=ladder)
    oregon = placed.place("oregon")
    run.train()
    oregon.training.fail(placed.job(1), "something strange")
    placed.deliver()  # it waits for its rerun
    run.scale(2)
    assert run.seats.open == "0,2"
    placed.place("tokyo").training.fail(placed.job(2), "InternalServerError: broken")
    run.go_on()
    assert jobs_in(placed, "oregon", "InProgress") == [placed.job(0), placed.job(2, 2)]


def _chosen_at_the_same_time(placed: ControlHarness, first: int, meanwhile: Callable[[], object]) -> Launch:
    """Replica `first` chooses the only place of a rung, and `meanwhile`, before that is recorded, so does the other."""
    placed.cloud.prices["us-west-2", "ml.m5.large"] = 0.2
    ladder = [{"place": "oregon", "price_cap": 0.15, "at_most": 1}, {"place": "tokyo"}]
    launched(placed, replicas=2, places={"ladder": ladder})
    placed.deliver()
    placed.cloud.prices["us-west-2", "ml.m5.large"] = 0.1
    placed.cloud.clock.sleep(3_601)
    for rank in range(2):
        placed.place("tokyo").training.fail(placed.job(rank), "InternalServerError: broken")
        # Its end is decided, and not yet in the roll-up.
        placed.cloud.calls.inject(Fault("PutObject", FunctionEndedError(), when=_is_in_the_roll_up))
        with pytest.raises(FunctionEndedError):
            placed.deliver()

    def later() -> None:
        placed.cloud.clock.sleep(0.05)
        meanwhile()

    recorded = f"/replicas/{first}.json"
    placed.cloud.calls.inject(
        Fault("PutObject", when=lambda call: call.parameters["Key"].endswith(recorded), action=later)
    )
    return placed.arm(first, 2)


def _is_in_the_roll_up(call: Call) -> bool:
    return "/rollup/" in call.parameters["Key"]


@pytest.mark.parametrize("slow", [0, 1])
def test_of_two_that_choose_the_last_place_of_a_rung_at_the_same_time_one_is_launched_there(
    placed: ControlHarness, slow: int
) -> None:
    fast = 1 - slow
    # The slow one chooses first, and records it when the job of the fast one exists.
    assert _chosen_at_the_same_time(placed, slow, lambda: placed.arm(fast, 2)) is Launch.CONCLUDED
    assert jobs_in(placed, "oregon") == [placed.job(fast, 2)]
    assert placed.record(slow).current.reason == "rung 0 (oregon) now has 1, as many as it may have"
    assert placed.arm(slow, 3) is Launch.CREATED
    assert placed.job(slow, 3) in jobs_in(placed, "tokyo")


@pytest.mark.parametrize("slow", [0, 1])
def test_of_two_that_see_each_other_on_the_last_place_of_a_rung_the_lower_rank_is_launched_there(
    placed: ControlHarness, slow: int
) -> None:
    fast, answers = 1 - slow, dict[int, Launch]()

    def records() -> None:
        """The fast one ends before it looks; where it is the higher rank, it is tried again at the second look."""
        placed.cloud.calls.inject(Fault("PutObject", FunctionEndedError(), after_effect=True, when=_is_in_the_roll_up))
        with pytest.raises(FunctionEndedError):
            placed.arm(fast, 2)
        again = Fault("GetObject", when=_is_in_the_roll_up, skip=1 + 2, action=lambda: arm(fast))
        placed.cloud.calls.inject(*([again] if fast > slow else []))

    def arm(rank: int) -> None:
        answers[rank] = placed.arm(rank, 2)

    answers[slow] = _chosen_at_the_same_time(placed, slow, records)
    if fast < slow:
        arm(fast)
    assert answers == {0: Launch.CREATED, 1: Launch.CONCLUDED}
    assert jobs_in(placed, "oregon") == [placed.job(0, 2)]
    left = placed.record(1).current
    assert left.ended_at is not None
    assert seconds_between(left.launched_at, left.ended_at) < 2  # it does not wait: the other one does


# --- money ----------------------------------------------------------------------------------------


def test_what_goes_between_places_counts_for_the_ceiling_and_in_the_bill(placed: ControlHarness) -> None:
    moved = Commit.from_json(commit(RUN), "").model_copy(update={"crossed_bytes": 100e9})
    run = launched(placed, **SHARES, cost_ceiling_usd=2.0)
    assert reached_ceiling(run) is None
    placed.plane.store.create(run.plan.shared_layout.commit(1), moved.to_json())
    assert reached_ceiling(run) == "the cost ceiling of $2.00 is reached (about $2.00 spent, at prices of us-west-2)"
    for rank, name in enumerate(("oregon", "tokyo")):
        _complete(placed, name, rank)
        placed.deliver()
    result = write_result(run, budget())
    assert result.egress_usd == pytest.approx(2)
    assert result.usd == pytest.approx(2 + sum(replica.usd or 0 for replica in result.replicas))


def _left_in_the_dark(placed: ControlHarness) -> ActiveRun:
    """Rank 1 has left its job in oregon, which is silent, after an hour; its run has a ceiling."""
    run = placed.plan(**LADDER, cost_ceiling_usd=100.0)
    for rank in range(2):
        placed.arm(rank)
        placed.place("oregon").training.train(placed.job(rank))
    placed.deliver()
    placed.cloud.clock.sleep(3_600)
    placed.place("oregon").go_silent()
    placed.plane.store.create(run.plan.shared_layout.commit(1), commit(RUN))
    assert placed.arm(1) is Launch.CONCLUDED
    return run


def _spent(placed: ControlHarness, run: ActiveRun) -> float:
    """What the ceiling counts for the first job of rank 1."""
    marks = run.documents.store.listed(f"{run.documents.layout.spent}1-1-")
    return spent_usd(marks, clock.utc_now(), run.plan.spec.prices)


def test_a_job_in_a_silent_place_counts_for_the_ceiling_until_its_end_is_known(placed: ControlHarness) -> None:
    run = _left_in_the_dark(placed)
    assert _spent(placed, run) == pytest.approx(0.115)
    assert placed.arm(1, 2) is Launch.CREATED
    placed.cloud.clock.sleep(9 * 3_600)
    assert _spent(placed, run) == pytest.approx(1.15)
    placed.place("oregon").answer_again()
    placed.arm(1, 2)  # stops it
    placed.cloud.clock.sleep(120)
    placed.deliver()
    bill = _spent(placed, run)
    assert bill == pytest.approx(0.115 * (10 + 120 / 3_600), rel=1e-3)
    placed.cloud.clock.sleep(3_600)
    assert _spent(placed, run) == bill


def test_a_job_that_ended_in_a_silent_place_counts_for_the_ceiling_as_it_is_billed_though_its_event_is_lost(
    placed: ControlHarness,
) -> None:
    run = _left_in_the_dark(placed)
    placed.arm(1, 2)
    placed.cloud.clock.sleep(3_600)
    placed.place("oregon").training.fail(placed.job(1), "InternalServerError: broken")
    placed.cloud.clock.sleep(50 * 3_600)
    placed.place("oregon").answer_again()
    placed.cloud.notifications.drain()
    placed.arm(1, 2)
    assert _spent(placed, run) == pytest.approx(0.23)


@pytest.mark.parametrize("is_created", [True, False])
def test_a_job_that_may_have_been_created_counts_for_the_ceiling_until_its_place_answers(
    placed: ControlHarness, *, is_created: bool
) -> None:
    run = placed.plan(**LADDER, cost_ceiling_usd=100.0)
    failed = AwsError("InternalFailure", "", 500)
    placed.cloud.calls.inject(Fault("CreateTrainingJob", failed, after_effect=is_created))
    with pytest.raises(PlaceSilentError):
        placed.arm(1)
    placed.place("oregon").go_silent()
    placed.cloud.clock.sleep(30)
    assert [placed.arm(1), placed.arm(1, 2)] == [Launch.CONCLUDED, Launch.CREATED]
    placed.cloud.clock.sleep(10 * 3_600)
    assert _spent(placed, run) == pytest.approx(1.15)
    placed.place("oregon").answer_again()
    placed.arm(1, 2)  # a re-arm of the attempt that trains now: it stops the first job, if there is one
    placed.cloud.clock.sleep(120)
    placed.deliver()
    placed.cloud.clock.sleep(10 * 3_600)
    assert _spent(placed, run) == 0.0  # it never had an instance


# --- events ---------------------------------------------------------------------------------------


def test_only_events_of_the_attempts_place_count(placed: ControlHarness) -> None:
    launched(placed, **SHARES)
    placed.deliver()
    placed.place("tokyo").training.fail(placed.job(1), "InternalServerError: broken")
    event = placed.last_event(placed.job(1))
    for origin in ({"account": "123456789012"}, {"region": "us-east-1"}):
        forged = {"account": "210987654321", "region": "ap-northeast-1", "detail": event.model_dump(mode="json")}
        change = JobStateChange.of({**forged, **origin})
        assert placed.react(change).what == "dropped: the job does not belong to this run"
    assert placed.record(1).decision is None
    assert placed.react(event).what == "decided"


def test_an_event_of_an_outpost_says_nothing_about_a_job_at_home(placed: ControlHarness) -> None:
    placed.plan()
    placed.arm()
    placed.cloud.training.fail(placed.job(), "InternalServerError: broken")
    event = placed.last_event(placed.job())
    there = {"account": "210987654321", "region": "ap-northeast-1", "detail": event.model_dump(mode="json")}
    assert placed.react(JobStateChange.of(there)).what == "dropped: the job does not belong to this run"


def test_a_lost_event_of_a_place_is_found_by_the_re_arm(placed: ControlHarness) -> None:
    launched(placed, **SHARES)
    placed.deliver()
    placed.place("tokyo").training.complete(placed.job(1))
    placed.cloud.notifications.drain()
    assert placed.arm(1) is Launch.CONCLUDED
    assert placed.record(1).current.status == "Completed"


# --- a place that does not answer ------------------------------------------------------------------


def test_a_replica_whose_place_refuses_connections_goes_to_the_next_rung_at_once(placed: ControlHarness) -> None:
    placed.plan(**LADDER)
    placed.place("oregon").go_silent()
    assert placed.arm(0) is Launch.CONCLUDED
    assert placed.record(0).current.reason == "oregon (us-west-2) does not answer; the next rung is tried"
    assert placed.arm(0, 2) is Launch.CREATED
    assert jobs_in(placed, "tokyo") == [placed.job(0, 2)]


def test_a_replica_with_a_share_waits_for_its_place(placed: ControlHarness) -> None:
    placed.plan(**SHARES)
    placed.place("oregon").go_silent()
    assert placed.arm(0) is Launch.SILENT
    placed.place("oregon").answer_again()
    placed.cloud.clock.sleep(300)
    assert placed.arm(0) is Launch.CREATED


def test_a_launch_that_may_have_come_through_is_tried_again_before_it_is_given_up(placed: ControlHarness) -> None:
    placed.plan(**LADDER)
    placed.place("oregon").answers_nothing = True
    placed.cloud.calls.inject(
        Fault("CreateTrainingJob", AwsError("InternalFailure", "", 500), after_effect=True),
    )
    with pytest.raises(PlaceSilentError):
        placed.arm(0)
    placed.place("oregon").go_silent()
    placed.cloud.clock.sleep(30)
    assert placed.arm(0) is Launch.CONCLUDED
    left = placed.record(0).current
    assert left.where is not None
    assert left.where.may_run
    placed.arm(0, 2)
    assert jobs_in(placed, "tokyo") == [placed.job(0, 2)]
    placed.cloud.clock.sleep(30)
    placed.place("oregon").answer_again()
    assert jobs_in(placed, "oregon", "InProgress") == [placed.job(0)]
    placed.arm(0, 2)  # a re-arm of the attempt that trains now
    assert jobs_in(placed, "oregon", "InProgress") == []
    found = placed.record(0).attempts[0].where
    assert found is not None
    assert not found.may_run


def test_a_launch_may_have_come_through_in_a_try_before_the_last_one_of_the_sdk() -> None:
    with ControlHarness(places=True, tries=3).installed() as placed:
        placed.plan(**LADDER)
        placed.cloud.calls.inject(
            Fault("CreateTrainingJob", ReadTimeoutError(endpoint_url="oregon"), after_effect=True),
            Fault("CreateTrainingJob", ConnectTimeoutError(endpoint_url="oregon"), count=2),
        )
        with pytest.raises(PlaceSilentError):
            placed.arm(0)
        placed.place("oregon").go_silent()
        placed.cloud.clock.sleep(30)
        assert placed.arm(0) is Launch.CONCLUDED
        left = placed.record(0).current.where
        assert left is not None
        assert left.may_run
        assert placed.arm(0, 2) is Launch.CREATED
        placed.place("oregon").answer_again()
        placed.cloud.clock.sleep(30)
        assert jobs_in(placed, "oregon", "InProgress") == [placed.job(0)]
        placed.arm(0, 2)  # a re-arm of the attempt that trains now
        assert jobs_in(placed, "oregon", "InProgress") == []


def test_a_job_may_run_that_was_created_before_its_place_refused_connections(placed: ControlHarness) -> None:
    placed.plan(**LADDER)
    assert placed.arm(0) is Launch.CREATED
    placed.cloud.notifications.drain()
    placed.place("oregon").go_silent()
    assert placed.arm(0) is Launch.CONCLUDED
    placed.arm(0, 2)
    placed.place("oregon").answer_again()
    placed.cloud.clock.sleep(30)
    placed.arm(0, 2)  # a re-arm of the attempt that trains now
    assert jobs_in(placed, "oregon", "InProgress") == []


def test_a_replica_trains_elsewhere_before_the_place_that_it_has_left_is_asked_again(placed: ControlHarness) -> None:
    placed.plan(**LADDER)
    placed.arm(0)
    placed.place("oregon").go_silent()
    placed.arm(0)
    placed.place("oregon").answer_again()
    placed.cloud.clock.sleep(30)
    placed.cloud.calls.log.clear()
    assert placed.arm(0, 2) is Launch.CREATED
    calls = [one.operation for one in placed.cloud.calls.log]
    # A place that is still silent would take seconds to be found so.
    assert calls.index("CreateTrainingJob") < calls.index("StopTrainingJob")


SLOW_DOWN = AwsError("SlowDown", "Please reduce your request rate.", 503)


def _in_bucket(name: str) -> Callable[[Call], bool]:
    return lambda call: call.parameters["Bucket"] == name


@pytest.mark.parametrize(
    ("operation", "bucket", "error"),
    [
        ("GetObject", "bucket", ConnectTimeoutError(endpoint_url="home")),
        ("GetObject", "bucket", AwsError("InternalError", "We encountered an internal error.", 500)),
        ("PutObject", OUTPOSTS["oregon"].bucket, SLOW_DOWN),
        ("[HG]e*Object", OUTPOSTS["oregon"].bucket, SLOW_DOWN),
    ],
)
def test_errors_of_s3_at_home_and_its_throttling_are_no_silence_of_a_place(
    placed: ControlHarness, operation: str, bucket: str, error: AwsError | ConnectTimeoutError
) -> None:
    source = f"source/{'a' * 64}.tar.gz"
    placed.plane.store.create(source, b"archive")
    placed.plan(**LADDER, source_dir=f"s3://bucket/{source}")
    is_there = _in_bucket(bucket)
    fault = Fault(
        operation,
        error,
        when=lambda call: is_there(call) and (bucket != "bucket" or call.parameters["Key"] == source),
        count=None,
    )
    placed.cloud.calls.inject(fault)
    with pytest.raises((ConnectTimeoutError, ClientError)) as raised:
        placed.arm(0)
    assert is_transient(raised.value)  # the workflow calls attempt again
    fault.count = 0
    assert placed.arm(0) is Launch.CREATED
    assert jobs_in(placed, "oregon") == [placed.job(0)]


def test_a_place_whose_s3_fails_is_silent(placed: ControlHarness) -> None:
    failed = AwsError("ServiceUnavailable", "Service is unable to handle request.", 503)
    placed.plan(**LADDER)
    placed.cloud.calls.inject(Fault("*Object", failed, when=_in_bucket(OUTPOSTS["oregon"].bucket), count=None))
    assert placed.arm(0) is Launch.CONCLUDED
    left = placed.record(0).current
    assert left.reason == "oregon (us-west-2) does not answer; the next rung is tried"
    assert left.where is not None
    assert not left.where.may_run


def _tags_are_not_told_in(placed: ControlHarness, name: str) -> None:
    """From now on ListTags, and nothing else, does not answer in a place."""
    region = f":{placed.place(name).at.region}:"
    placed.cloud.calls.inject(
        Fault(
            "ListTags",
            ReadTimeoutError(endpoint_url=name),
            when=lambda call: region in call.parameters["ResourceArn"],
            count=None,
        )
    )


def test_jobs_in_other_places_are_stopped_though_one_does_not_tell_the_tags_of_its_own(placed: ControlHarness) -> None:
    run = launched(placed, **SHARES)
    placed.cloud.notifications.drain()
    _tags_are_not_told_in(placed, "oregon")
    begin, within = placed.cloud.clock.monotonic(), budget()
    placed.plane.allow(within)
    with pytest.raises(PlaceSilentError, match="oregon"):
        stop_remaining(run, within)
    assert jobs_in(placed, "tokyo", "InProgress") == []
    assert placed.cloud.clock.monotonic() == begin  # nothing is tried again until the time is spent


def test_a_replica_trains_on_though_the_place_that_it_has_left_does_not_tell_the_tags_of_its_job(
    placed: ControlHarness,
) -> None:
    placed.plan(**LADDER)
    placed.arm(0)
    placed.place("oregon").go_silent()
    assert [placed.arm(0), placed.arm(0, 2)] == [Launch.CONCLUDED, Launch.CREATED]
    placed.place("oregon").answer_again()
    placed.cloud.clock.sleep(30)
    _tags_are_not_told_in(placed, "oregon")
    assert placed.arm(0, 2) is Launch.ADOPTED


def _dark(placed: ControlHarness) -> ActiveRun:
    """Rank 0 trains in oregon, which falls silent, rank 1 in tokyo; round 1 was committed by rank 0 alone."""
    run = placed.plan(**{**LADDER, "places": {"ladder": [*LADDER["places"]["ladder"], {"place": "home"}]}})
    for rank in range(2):
        placed.arm(rank)
        placed.place("oregon").training.train(placed.job(rank))
    placed.deliver()
    placed.place("oregon").go_silent()
    return run


def test_a_notice_moves_a_replica_at_once_whose_place_is_silent_and_no_other(placed: ControlHarness) -> None:
    run = _dark(placed)
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    missing = [Notice(RUN, NoticeKind.MISSING, rank, None, "1") for rank in (0, 1, 7)]
    said = [one.what for one in heed_notices(placed.plane, missing)]
    # Replica 0 is in the round.
    assert said[0] == "oregon (us-west-2) does not answer, and the replica waits"
    assert said[1:] == ["decided", "dropped: no such replica in a place"]
    assert placed.answer(1) is not None
    assert placed.arm(1, 2) is Launch.CREATED
    assert jobs_in(placed, "tokyo") == [placed.job(1, 2)]
    placed.place("tokyo").training.train(placed.job(1, 2))
    placed.deliver()
    [again] = heed_notices(placed.plane, missing[1:2])
    assert again.what == "its job has not ended"
    placed.place("tokyo").training.complete(placed.job(1, 2))
    [ended] = heed_notices(placed.plane, missing[1:2])  # its event is late
    assert ended.what == "decided"
    [late] = heed_notices(placed.plane, missing[1:2])
    assert late.what == "dropped: no attempt of it is running"
    assert run.replica(1).record().record.current.status == "Completed"


def test_a_replica_that_is_in_no_round_leaves_its_silent_place(placed: ControlHarness) -> None:
    run = _dark(placed)
    assert placed.arm(1) is Launch.SILENT  # nothing says that it trains no more
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    placed.cloud.clock.sleep(300)
    assert placed.arm(0) is Launch.SILENT  # it was in the last round
    assert placed.arm(1) is Launch.CONCLUDED
    left = placed.record(1).current
    assert (left.failure_class, left.reason) == (
        FailureClass.INFRASTRUCTURE,
        "oregon (us-west-2) does not answer; round 1 was committed without it",
    )
    assert placed.arm(1, 2) is Launch.CREATED
    assert jobs_in(placed, "tokyo") == [placed.job(1, 2)]
    assert run.plan.run == RUN


def _commit_of_both(placed: ControlHarness, run: ActiveRun, round_: int, longest: float | None = None) -> None:
    """Both replicas are in a round, by which the longest of the last ones took so many seconds."""
    one = Commit.from_json(commit(RUN), "")
    members = tuple(one.members[0].model_copy(update={"rank": rank}) for rank in range(2))
    named = one.model_copy(update={"round": round_, "members": members, "epochs": (1, 1)})
    if longest is not None:
        paced = Pace(rounds=1, round_seconds=longest, longest_seconds=longest, samples_per_second=1)
        named = named.model_copy(update={"pace": paced})
    placed.plane.store.create(run.plan.shared_layout.commit(round_), named.to_json())


@pytest.mark.parametrize(("longest", "patience"), [(10.0, 3_630), (5_000.0, 18_600), (None, 14_400)])
def test_replicas_leave_a_silent_place_without_which_no_round_is_made_once_the_next_is_overdue(
    placed: ControlHarness, longest: float | None, patience: int
) -> None:
    run = launched(placed, replicas=2, places=LADDER["places"])
    placed.deliver()
    placed.cloud.clock.sleep(100_000)
    _commit_of_both(placed, run, 1, longest)
    placed.place("oregon").go_silent()
    placed.cloud.clock.sleep(patience - 60)
    assert [placed.arm(rank) for rank in range(2)] == [Launch.SILENT, Launch.SILENT]
    _commit_of_both(placed, run, 2, longest)
    placed.cloud.clock.sleep(patience - 60)
    assert [placed.arm(rank) for rank in range(2)] == [Launch.SILENT, Launch.SILENT]  # they have trained meanwhile
    placed.cloud.clock.sleep(120)
    assert [placed.arm(rank) for rank in range(2)] == [Launch.CONCLUDED, Launch.CONCLUDED]
    left = placed.record(0).current
    assert left.failure_class is FailureClass.INFRASTRUCTURE
    assert left.reason.startswith("oregon (us-west-2) does not answer; no round was committed for ")
    assert [placed.arm(rank, 2) for rank in range(2)] == [Launch.CREATED, Launch.CREATED]
    assert len(jobs_in(placed, "tokyo")) == 2


def test_a_replica_whose_run_has_no_round_yet_leaves_a_silent_place_long_after_its_launch(
    placed: ControlHarness,
) -> None:
    _dark(placed)
    placed.cloud.clock.sleep(14_000)
    assert placed.arm(0) is Launch.SILENT
    placed.cloud.clock.sleep(500)
    assert placed.arm(0) is Launch.CONCLUDED
    assert placed.arm(0, 2) is Launch.CREATED
    placed.place("tokyo").training.train(placed.job(0, 2))
    placed.deliver()
    placed.place("tokyo").go_silent()
    assert placed.arm(0, 2) is Launch.SILENT  # it was launched just now


def test_a_round_from_before_its_launch_does_not_say_that_a_replica_trains_no_more(placed: ControlHarness) -> None:
    launched(placed, **LADDER)
    oregon = placed.place("oregon")
    placed.deliver()
    oregon.training.fail(placed.job(1), "InternalServerError: broken")
    placed.deliver()
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))  # without replica 1
    placed.cloud.clock.sleep(30)
    assert placed.arm(1, 2) is Launch.CREATED
    placed.deliver()
    oregon.go_silent()
    placed.cloud.clock.sleep(60)
    assert placed.arm(1, 2) is Launch.SILENT


def test_the_job_of_a_closed_seat_is_stopped_when_its_place_answers(placed: ControlHarness) -> None:
    ladder = {"ladder": LADDER["places"]["ladder"]}
    run = ElasticRun(placed, replicas={"min": 1, "start": 2, "max": 2}, places=ladder)
    oregon = placed.place("oregon")
    for rank in range(2):
        oregon.training.train(placed.job(rank))
    run.go_on()
    oregon.go_silent()
    with pytest.raises(PlaceSilentError):
        run.scale(1)
    run.arm(1)
    run.go_on()
    left = placed.record(1).current
    assert (left.failure_class, left.reason) == (
        FailureClass.STOPPED_BY_MUSTER,
        "oregon (us-west-2) does not answer; its seat is not wanted",
    )
    oregon.answer_again()
    placed.cloud.clock.sleep(60)
    run.arm(1)
    assert (jobs_in(placed, "oregon", "Stopping"), sorted(run.tokens)) == ([placed.job(1)], [0, 1])


def test_a_launch_gate_counts_no_replica_whose_place_is_silent_before_it_trains(placed: ControlHarness) -> None:
    run = placed.plan(**SHARES, launch_gate={"replicas": 2, "within_seconds": 60})
    placed.place("tokyo").go_silent()
    assert [placed.arm(0), placed.arm(1)] == [Launch.CREATED, Launch.SILENT]
    placed.place("oregon").training.train(placed.job(0))
    placed.deliver()
    with pytest.raises(PlaceSilentError):  # it is called again, and cannot stop what may be there
        fire(placed.plane, run, Timer.LAUNCH_GATE, budget())
    fence = run.documents.fence()
    assert fence is not None
    assert "only 1 of the required 2 replicas" in fence.reason
    assert jobs_in(placed, "oregon", "Stopping") == [placed.job(0)]


def test_a_job_that_was_left_behind_is_stopped_by_its_event_when_its_place_answers(placed: ControlHarness) -> None:
    _dark(placed)
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    placed.arm(1)
    placed.arm(1, 2)
    placed.place("oregon").training.say(placed.job(1), "still training")
    placed.cloud.clock.sleep(60)
    placed.place("oregon").answer_again()
    assert "InProgress/Training, stopped: its place did not answer" in placed.deliver()
    assert jobs_in(placed, "oregon", "Stopping") == [placed.job(1)]
    placed.cloud.clock.sleep(120)
    assert "noted: Stopped, of a job whose place did not answer" in placed.deliver()
    first = placed.record(1).attempts[0]
    assert first.where is not None
    assert (first.where.may_run, first.failure_class) == (False, FailureClass.INFRASTRUCTURE)
    assert placed.record(1).current.attempt == 2


@pytest.mark.parametrize("is_known", [True, False])
def test_the_sweep_stops_a_job_that_a_lost_replica_has_left_when_its_place_answers(
    placed: ControlHarness, is_known: bool
) -> None:
    run = placed.plan(**LADDER, reruns={"infrastructure": {"max_reruns": 0}, "capacity": {"max_reruns": 0}})
    for rank in range(2):
        placed.arm(rank)
        placed.place("oregon").training.train(placed.job(rank))
    if is_known:
        placed.deliver()
    placed.cloud.notifications.drain()
    placed.plane.store.create(run.plan.shared_layout.commit(1), commit(RUN))
    placed.place("oregon").go_silent()
    assert placed.arm(1) is Launch.CONCLUDED
    decision = placed.record(1).decision
    assert decision is not None
    assert decision.lost
    placed.cloud.clock.sleep(3_600)
    swept = sweep(placed.plane, placed.executions, SweepRequest(), budget())
    assert swept.stopped == ()
    placed.place("oregon").answer_again()
    placed.cloud.notifications.drain()
    placed.cloud.clock.sleep(3_600)
    swept = sweep(placed.plane, placed.executions, SweepRequest(), budget())
    assert (swept.stopped, swept.errors) == ((placed.job(1),), ())
    placed.cloud.clock.sleep(120)
    placed.deliver()
    assert jobs_in(placed, "oregon", "InProgress") == [placed.job(0)]
    assert Observer(client_of(placed.cloud), RUN).look().remarks == ()


def test_an_event_that_its_replica_overtakes_on_its_way_elsewhere_stops_the_job_that_is_left(
    placed: ControlHarness,
) -> None:
    placed.plan(**LADDER)
    placed.arm(0)
    oregon = placed.place("oregon")
    oregon.training.train(placed.job(0))

    def leave() -> None:
        oregon.go_silent()
        assert placed.arm(0) is Launch.CONCLUDED
        assert placed.arm(0, 2) is Launch.CREATED
        oregon.answer_again()
        placed.cloud.clock.sleep(30)

    recorded = RunLayout(RUN).record(0)
    placed.cloud.calls.inject(Fault("PutObject", when=lambda call: call.parameters["Key"] == recorded, action=leave))
    what = placed.react(placed.last_event(placed.job(0))).what
    assert what == "InProgress/Training, stopped: its launch was recorded as refused"
    assert jobs_in(placed, "oregon", "InProgress") == []
    assert jobs_in(placed, "tokyo") == [placed.job(0, 2)]


def _trained_to_the_end(placed: ControlHarness) -> ElasticRun:
    """Rank 1 is parked, because oregon did not answer and tokyo had no quota; then both jobs in oregon complete."""
    ladder, span = {"ladder": LADDER["places"]["ladder"]}, {"min": 2, "start": 2, "max": 2}
    run = ElasticRun(placed, replicas=span, elastic={"park_after_seconds": 0}, places=ladder)
    oregon = placed.place("oregon")
    for rank in range(2):
        oregon.training.train(placed.job(rank))
    run.go_on()
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    oregon.go_silent()
    refuse_in(placed, "ap-northeast-1", count=None)
    placed.cloud.clock.sleep(300)
    run.arm(1)
    run.go_on()
    assert run.parked(1).attempt > 2
    for rank in range(2):
        _complete(placed, "oregon", rank)
    placed.cloud.clock.sleep(60)
    return run


def test_a_job_that_was_left_behind_and_has_trained_to_the_end_counts_where_no_other_was_launched(
    placed: ControlHarness,
) -> None:
    run = _trained_to_the_end(placed)
    placed.place("oregon").answer_again()
    run.go_on()
    assert run.tokens == {}
    result = finish_run(placed.plane, run.run, budget()).result
    assert (result.verdict, result.reason) == (Verdict.SUCCEEDED, "2 of 2 replicas succeeded")
    found = result.replicas[1]
    assert (found.round, found.problem) == (1, None)
    given_up, last = found.attempts[0], found.attempts[-1]
    assert (given_up.failure_class, last.job) == (FailureClass.INFRASTRUCTURE, given_up.job)
    assert (last.status, last.failure_class, last.billable_seconds) == ("Completed", None, 0)
    placed.cloud.workflow.succeed(RUN, {})
    observer = Observer(client_of(placed.cloud), RUN)
    replica = observer.look().replicas[1]
    assert (replica.status, replica.job, replica.reason) == ("Completed", last.job, "attempt 1 has completed after all")
    assert observer.attempts[1][-1].failure_class is None


@pytest.mark.parametrize("denied", [None, "AccessDenied", "AccessDeniedException"])
def test_what_a_silent_place_hides_at_the_settlement_does_not_count(placed: ControlHarness, denied: str | None) -> None:
    run = _trained_to_the_end(placed)
    if denied is not None:
        placed.place("oregon").answer_again()
        run.go_on()
        placed.cloud.calls.inject(Fault("DescribeTrainingJob", AwsError(denied, "no", 403), count=None))
    found = finish_run(placed.plane, run.run, budget()).result.replicas[1]
    assert found.outcome is ReplicaOutcome.PARKED


def test_a_job_that_was_left_behind_does_not_count_where_another_was_launched(placed: ControlHarness) -> None:
    run = _dark(placed)
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    placed.arm(1)
    placed.arm(1, 2)
    placed.place("tokyo").training.fail(placed.job(1, 2), "AlgorithmError: broken, exit code: 1")
    _complete(placed, "oregon", 1)
    placed.cloud.clock.sleep(60)
    placed.place("oregon").answer_again()
    placed.deliver()
    found = finish_run(placed.plane, run, budget()).result.replicas[1]
    assert (found.outcome, found.attempts[-1].job) == (ReplicaOutcome.FAILED, placed.job(1, 2))


def test_a_cancel_reaches_the_other_places_and_the_silent_one_when_it_answers(placed: ControlHarness) -> None:
    run = launched(placed, **SHARES)
    placed.deliver()
    placed.place("tokyo").go_silent()
    placed.cloud.client("stepfunctions").stop_execution(executionArn=run.plan.execution_arn)
    ended = ExecutionEnded(
        execution_arn=run.plan.execution_arn, name=RUN, status="ABORTED", started_at=run.plan.created_at
    )
    with pytest.raises(StillRunningError, match=r"tokyo .* does not answer: jobs of one may still run there"):
        clear_up(placed.plane, run, ended, budget())
    assert jobs_in(placed, "oregon", "InProgress") == []
    result = placed.result()
    assert result is not None
    assert result.verdict is Verdict.STOPPED
    [near, far] = result.replicas
    assert (near.outcome, far.outcome) == (ReplicaOutcome.STOPPED, ReplicaOutcome.STOPPED)
    assert far.attempts[-1].where is not None
    assert far.attempts[-1].where.may_run
    record = placed.record(1).current.where
    assert record is not None
    assert record.may_run
    placed.cloud.clock.sleep(3_600)
    swept = sweep(placed.plane, placed.executions, SweepRequest(), budget())
    assert any("tokyo" in error for error in swept.errors)
    placed.place("tokyo").answer_again()
    placed.cloud.clock.sleep(3_600)
    swept = sweep(placed.plane, placed.executions, SweepRequest(), budget())
    assert (swept.errors, swept.settled) == ((), (RUN,))
    assert jobs_in(placed, "tokyo", "InProgress") == []


def test_a_run_that_stops_while_a_place_is_silent_does_not_wait_for_it(placed: ControlHarness) -> None:
    run = launched(placed, **SHARES)
    placed.deliver()
    placed.place("tokyo").go_silent()
    with pytest.raises(PlaceSilentError):
        stop_run(placed.plane, StopRequest(run=RUN, reason="lost"), budget())
    assert placed.arm(1) is Launch.CONCLUDED
    assert placed.record(1).current.failure_class is FailureClass.STOPPED_BY_MUSTER
    finished = finish_run(placed.plane, run, budget())
    assert any("tokyo" in step for step in finished.left)
    placed.place("tokyo").answer_again()
    placed.cloud.clock.sleep(3_600)
    placed.cloud.workflow.fail(RUN, "States.TaskFailed", "")
    assert sweep(placed.plane, placed.executions, SweepRequest(), budget()).errors == ()
    assert jobs_in(placed, "tokyo", "InProgress") == []


def _deny(placed: ControlHarness, name: str, sessions: str) -> None:
    """An account denies its place to the sessions of the launcher role: those that are open, or new ones alone."""
    place = placed.place(name)
    place.deny_access()
    if sessions == "new":
        place.denies = False
        placed.cloud.clock.sleep(3_600)


SESSIONS = pytest.mark.parametrize("sessions", ["open", "new"])


@SESSIONS
def test_a_run_whose_replicas_are_done_has_its_result_though_a_place_denies_access(
    placed: ControlHarness, sessions: str
) -> None:
    run = launched(placed, **SHARES)
    for rank, name in enumerate(("oregon", "tokyo")):
        _complete(placed, name, rank)
    placed.deliver()
    _deny(placed, "tokyo", sessions)
    finished = finish_run(placed.plane, run, budget())
    [near, far] = finished.result.replicas
    assert finished.result.verdict is Verdict.SUCCEEDED
    assert (near.round, near.problem) == (1, None)
    assert far.problem is not None
    assert "AccessDenied" in far.problem or far.problem == "tokyo denies access, so its manifest was not read"
    assert any("tokyo denies access" in step for step in finished.left)


@SESSIONS
def test_a_cancelled_run_has_its_result_though_a_place_denies_access_and_its_jobs_are_stopped_later(
    placed: ControlHarness, sessions: str
) -> None:
    run = launched(placed, **SHARES)
    placed.deliver()
    _deny(placed, "tokyo", sessions)
    placed.cloud.client("stepfunctions").stop_execution(executionArn=run.plan.execution_arn)
    ended = ExecutionEnded(
        execution_arn=run.plan.execution_arn, name=RUN, status="ABORTED", started_at=run.plan.created_at
    )
    with pytest.raises(StillRunningError, match="tokyo denies access: jobs of one may still run there"):
        clear_up(placed.plane, run, ended, budget())
    result = placed.result()
    assert result is not None
    assert result.verdict is Verdict.STOPPED
    assert [one.outcome for one in result.replicas] == [ReplicaOutcome.STOPPED, ReplicaOutcome.STOPPED]
    far = result.replicas[1].attempts[-1].where
    assert far is not None
    assert far.may_run
    assert jobs_in(placed, "oregon", "InProgress") == []
    placed.place("tokyo").allow_access()
    placed.cloud.clock.sleep(3_600)
    assert sweep(placed.plane, placed.executions, SweepRequest(), budget()).settled == (RUN,)
    assert jobs_in(placed, "tokyo", "InProgress") == []


@SESSIONS
def test_a_replica_trains_on_though_the_place_that_it_has_left_denies_access(
    placed: ControlHarness, sessions: str
) -> None:
    _dark(placed)
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    assert [placed.arm(1), placed.arm(1, 2)] == [Launch.CONCLUDED, Launch.CREATED]
    placed.place("oregon").answer_again()
    placed.deliver()
    placed.cloud.clock.sleep(60)
    _deny(placed, "oregon", sessions)
    assert placed.arm(1, 2) is Launch.ADOPTED
    left = placed.record(1).attempts[0].where
    assert left is not None
    assert left.may_run


@SESSIONS
def test_a_replica_in_a_place_that_denies_access_waits_while_it_trains_and_then_goes_elsewhere(
    placed: ControlHarness, sessions: str
) -> None:
    _dark(placed)
    placed.place("oregon").answer_again()
    placed.deliver()
    _deny(placed, "oregon", sessions)
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    assert placed.arm(0) is Launch.SILENT  # it is in the last round
    assert placed.arm(1) is Launch.CONCLUDED
    assert placed.record(1).current.reason == "oregon denies access; round 1 was committed without it"
    assert placed.arm(1, 2) is Launch.CREATED


@SESSIONS
def test_an_end_counts_by_its_times_for_the_ceiling_if_its_place_denies_the_bill(
    placed: ControlHarness, sessions: str
) -> None:
    run = launched(placed, **LADDER, cost_ceiling_usd=10)
    placed.place("oregon").training.train(placed.job(1))
    placed.deliver()
    placed.cloud.clock.sleep(3_600)
    _deny(placed, "oregon", sessions)
    placed.cloud.clock.sleep(3_600)
    placed.place("oregon").training.complete(placed.job(1))
    assert "decided" in placed.deliver()
    [mark] = [key for key in placed.keys(run.documents.layout.spent) if "cost" in key]
    assert mark == f"1-1-cost-{(7_200 if sessions == 'open' else 10_800) * 115_000 // 3_600}"


def _deny_launch(placed: ControlHarness, what: str) -> None:
    """Oregon denies one thing that a launch needs there."""
    place = placed.place("oregon")
    if what == "session":
        place.deny_access()
    elif what == "bucket":
        denied = AwsError("AccessDenied", "no", 403)
        placed.cloud.calls.inject(Fault("PutObject", denied, when=_in_bucket(place.at.bucket), count=None))
    else:
        output = f"s3://{place.at.bucket}/"
        denied = AwsError("AccessDeniedException", "no", 400)

        def is_there(call: Call) -> bool:
            return call.parameters["OutputDataConfig"]["S3OutputPath"].startswith(output)

        placed.cloud.calls.inject(Fault("CreateTrainingJob", denied, when=is_there, count=None))


DENIALS = pytest.mark.parametrize(
    ("what", "words"),
    [
        ("session", "AccessDenied: not authorized to perform: sts:AssumeRole (the launcher role, in which"),
        ("bucket", f"AccessDenied: no (s3://{OUTPOSTS['oregon'].bucket}, where its jobs read)"),
        ("job", "AccessDeniedException: no"),
    ],
)


@DENIALS
def test_a_launch_that_a_place_denies_says_so(placed: ControlHarness, what: str, words: str) -> None:
    placed.plan(**SHARES)
    _deny_launch(placed, what)
    assert placed.arm(0) is Launch.CONCLUDED
    current = placed.record(0).current
    assert current.failure_class is FailureClass.INVALID_REQUEST
    assert current.reason.startswith(words)


@DENIALS
def test_a_replica_whose_launch_a_place_denies_goes_to_a_rung_elsewhere_at_once(
    placed: ControlHarness, what: str, words: str
) -> None:
    rungs = LADDER["places"]["ladder"]
    placed.plan(**LADDER | {"places": {"ladder": [rungs[0], {"place": "oregon"}, rungs[1]]}})
    _deny_launch(placed, what)
    assert placed.arm(0) is Launch.CONCLUDED
    left, decision = placed.record(0).current, placed.record(0).decision
    assert left.failure_class is FailureClass.CAPACITY
    assert left.reason.startswith(f"oregon denies access: {words}")
    assert left.reason.endswith("; the next rung is tried")
    assert left.where is not None
    assert not left.where.may_run
    assert decision is not None
    assert decision.delay_seconds == 0
    assert placed.arm(0, 2) is Launch.CREATED
    assert jobs_in(placed, "tokyo") == [placed.job(0, 2)]


def test_a_denial_of_the_bucket_at_home_says_nothing_of_a_place(placed: ControlHarness) -> None:
    source = f"source/{'a' * 64}.tar.gz"
    placed.plane.store.create(source, b"archive")
    placed.plan(**LADDER, source_dir=f"s3://bucket/{source}")
    denied = AwsError("AccessDenied", "no", 403)
    placed.cloud.calls.inject(Fault("GetObject", denied, when=lambda call: call.parameters["Key"] == source))
    with pytest.raises(ClientError, match="AccessDenied"):
        placed.arm(0)


def test_a_replica_that_could_not_be_launched_is_lost_though_its_place_is_silent(placed: ControlHarness) -> None:
    placed.plan(**SHARES)
    placed.place("oregon").go_silent()
    placed.arm(0)
    with suppress(PlaceSilentError):
        give_up_replica(placed.plane, LaunchFailure(run=RUN, rank=0, attempt=1, reason="it failed for hours"))
    decision = placed.record(0).decision
    assert decision is not None
    assert decision.lost


def test_orphans_in_a_place_are_stopped(placed: ControlHarness) -> None:
    launched(placed, **SHARES)
    placed.cloud.workflow.succeed(RUN, {})
    placed.cloud.clock.sleep(3_600)
    swept = sweep(placed.plane, placed.executions, SweepRequest(), budget())
    assert set(swept.stopped) == {placed.job(0), placed.job(1)}
    assert jobs_in(placed, "oregon", "InProgress") == jobs_in(placed, "tokyo", "InProgress") == []


def test_the_manifest_of_a_job_is_read_in_its_place(placed: ControlHarness) -> None:
    run = launched(placed, **{**SHARES, "replicas": 1, "places": {"tokyo": 1}})
    _complete(placed, "tokyo")
    placed.deliver()
    [replica] = finish_run(placed.plane, run, budget()).result.replicas
    assert (replica.outcome, replica.round, replica.problem) == (ReplicaOutcome.SUCCEEDED, 1, None)
