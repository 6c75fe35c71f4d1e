"""What a client says of replicas in places."""

import json
from collections.abc import Callable, Iterator

import pytest

from muster.client.cli.dry_run_text import dry_run_lines
from muster.client.cli.status_table import status_lines
from muster.client.client_errors import ClientError, PlacedReplicaError
from muster.client.launch.dry_run import dry_run
from muster.client.launch.planned_places import KnownPlace, planned_places
from muster.client.runs.cancellation import cancel_replica
from muster.client.runs.observer import Observer
from muster.client.sdk import Run
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout
from muster.contract.spec.spec_reader import parse_spec
from muster.control.attempt_request import Launch
from muster.control.plan import make_plan
from tests.memory import ACCOUNT
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.memory.places import MemoryPlace
from tests.simulation.lives import commit
from tests.support.memory_client import client_of, muster_of

LADDER = {
    "ladder": [{"place": "oregon", "spot": True, "at_most": 1}, {"place": "tokyo", "instance_type": "ml.m5.xlarge"}]
}


@pytest.fixture
def placed() -> Iterator[ControlHarness]:
    with ControlHarness(places=True).installed() as harness:
        yield harness


def test_a_plan_says_what_each_place_needs_and_what_a_round_sends() -> None:
    spec = parse_spec({**SPEC, "image": "1.dkr.ecr.us-east-1.amazonaws.com/i:1", "replicas": 3, "places": LADDER})
    dry = dry_run(spec)
    assert [request["Environment"]["MUSTER_PLACE"] for request in dry.requests] == ["oregon", "tokyo", "tokyo"]  # type: ignore[index,call-overload]
    lines = list(dry_run_lines(dry))
    begin = lines.index("Places:")
    assert lines[begin + 1 : begin + 5] == [
        "  oregon: rung 0",
        "    ml.m5.large for spot training job usage: 1",
        "  tokyo: rung 1",
        "    ml.m5.xlarge for training job usage: 3",
    ]
    sent = "A round sends 2 sums to the bucket at home and as many means back: $0.08 for each GB of a mean"
    assert lines[begin + 5].strip().startswith(sent)


def test_what_goes_to_a_place_in_the_region_of_home_costs_nothing() -> None:
    known = {
        "home": KnownPlace(region="us-east-1", account="123456789012"),
        "team": KnownPlace(region="us-east-1", account="210987654321"),
        "oregon": KnownPlace(region="us-west-2", account="123456789012"),
    }
    for places, regions, usd in (
        ({"home": 1, "team": 1}, known, 0.0),
        ({"oregon": 1, "team": 1}, known, 0.04),
        ({"home": 1, "team": 1}, {}, 0.04),  # of what is not known, the bound
    ):
        planned = planned_places(parse_spec({**SPEC, "replicas": 2, "places": places}), regions, SHIPPED_PRICES)
        assert planned is not None
        assert planned.egress_usd_per_gb == usd


def test_a_rung_on_a_training_plan_needs_no_quota_for_spot() -> None:
    plan = "arn:aws:sagemaker:us-east-1:123456789012:training-plan/one"
    spec = parse_spec({**SPEC, "spot": True, "places": {"ladder": [{"training_plan": plan}, {"place": "oregon"}]}})
    planned = planned_places(spec, {}, SHIPPED_PRICES)
    assert planned is not None
    assert [[quota.name for quota in place.quotas] for place in planned.places] == [
        ["ml.m5.large for training job usage"],
        ["ml.m5.large for spot training job usage"],
    ]


def test_a_place_needs_quota_for_the_largest_replicas_that_may_be_on_its_rungs_at_once() -> None:
    ladder = [{"spot": True, "at_most": 3}, {"price_cap": 2.0}, {"at_most": 1}]
    spec = parse_spec(
        {**SPEC, "replicas": 4, "overrides": {"1-2": {"instance_count": 4}}, "places": {"ladder": ladder}}
    )
    planned = planned_places(spec, {}, SHIPPED_PRICES)
    assert planned is not None
    assert {quota.name: quota.instances for quota in planned.places[0].quotas} == {
        "ml.m5.large for spot training job usage": 9,
        "ml.m5.large for training job usage": 10,
    }


def test_a_quota_that_service_quotas_does_not_list_is_unknown_and_not_zero() -> None:
    granted = {"ml.m5.large for training job usage": 1.0}
    spec = parse_spec({**SPEC, "replicas": 3, "instance_type": "ml.m5.large", "places": LADDER})
    known = {name: KnownPlace(region="us-west-2", account=ACCOUNT, granted=granted) for name in ("oregon", "tokyo")}
    places = planned_places(spec, known, SHIPPED_PRICES)
    assert places is not None
    assert [quota.granted for place in places.places for quota in place.quotas] == [None, None]
    home = parse_spec({**SPEC, "replicas": 3, "instance_type": "ml.m5.large", "places": {"tokyo": 3}})
    places = planned_places(home, known, SHIPPED_PRICES)
    assert places is not None
    assert [quota.granted for quota in places.places[0].quotas] == [1.0]


def test_status_and_events_say_where_each_attempt_runs_why_and_what_may_still_run(placed: ControlHarness) -> None:
    placed.plan(replicas=2, places=LADDER)
    for rank in range(2):
        placed.arm(rank)
    placed.place("tokyo").training.train(placed.job(1))
    placed.deliver()
    cloud = client_of(placed.cloud)
    observer = Observer(cloud, RUN)
    shown = [line.text for line in status_lines(observer.look(), 120, None)]
    assert any(line.split()[:3] == ["0", "oregon,", "spot"] for line in shown)
    assert any(line.split()[:2] == ["1", "tokyo"] for line in shown)
    assert "place" in shown[1]
    told = [entry.text for entry in observer.event_log()]
    why = "rung 0 (oregon) has 1, as many as it may have"
    assert f"replica 1 attempt 1 was launched in tokyo ({why})" in told
    assert placed.cloud.events.entries[-1].detail["why"] == why

    placed.place("tokyo").go_silent()
    placed.plane.store.create(RunLayout(RUN).commit(1), commit(RUN))
    assert placed.arm(1) is Launch.CONCLUDED
    [remark] = Observer(cloud, RUN).look().remarks
    assert remark.startswith("A job of replica 1 may still run in tokyo, silent since 20")


def test_a_replica_elsewhere_is_not_cancelled_by_a_client(placed: ControlHarness) -> None:
    placed.plan(places={"tokyo": 1})
    placed.arm()
    placed.deliver()
    with pytest.raises(PlacedReplicaError, match=r"in tokyo, .* `muster cancel one`"):
        cancel_replica(client_of(placed.cloud), RUN, 0, 0.0)


def test_lines_come_from_the_regions_of_the_jobs_and_those_of_another_account_are_named(placed: ControlHarness) -> None:
    spec = {**SPEC, "replicas": 2, "places": {"oregon": 1, "tokyo": 1}}
    placed.executions.start(RUN, json.dumps(spec))
    make_plan(placed.plane, placed.deployment, placed.plan_request(**spec))
    for rank, name in enumerate(("oregon", "tokyo")):
        placed.arm(rank)
        placed.place(name).training.train(placed.job(rank))
        placed.place(name).logs.write(placed.job(rank), f"trained in {name}")
    placed.deliver()
    lines = Run(muster_of(placed.cloud), RUN).logs()
    assert next(iter(lines)).message == "trained in oregon"
    with pytest.raises(ClientError, match="in tokyo are in account 210987654321"):
        list(lines)


@pytest.mark.parametrize("fail", [MemoryPlace.go_silent, MemoryPlace.deny_access])
def test_the_lines_of_a_region_that_does_not_answer_keep_no_others_away(
    placed: ControlHarness, fail: Callable[[MemoryPlace], None]
) -> None:
    spec = {**SPEC, "replicas": 2, "places": {"home": 1, "oregon": 1}}
    placed.executions.start(RUN, json.dumps(spec))
    make_plan(placed.plane, placed.deployment, placed.plan_request(**spec))
    for rank in range(2):
        placed.arm(rank)
    placed.cloud.logs.write(placed.job(0), "trained at home")
    placed.place("oregon").training.train(placed.job(1))
    placed.deliver()
    fail(placed.place("oregon"))
    lines = Run(muster_of(placed.cloud), RUN).logs()
    assert next(iter(lines)).message == "trained at home"
    with pytest.raises(ClientError, match="The lines from us-west-2 are missing"):
        list(lines)
