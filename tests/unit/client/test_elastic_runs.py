"""Elastic runs as users see them: `muster scale`, status, watch, events, list, result and plan."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from muster import DryRun, RunStatus, ScaleError, ScalePendingError
from muster.client.cli.dry_run_text import dry_run_lines
from muster.client.cli.plain_text import result_lines
from muster.client.cli.run_table import list_lines
from muster.client.cli.status_table import status_lines
from muster.client.launch.dry_run import DeploymentContext, dry_run
from muster.client.runs.event_log import EventKind
from muster.client.runs.observer import Observer
from muster.client.runs.run_status import RunState
from muster.client.runs.status_text import changes
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.roll_up import ReplicaEntry, RollUpShard
from muster.contract.spec.spec_reader import parse_spec
from muster.control.active_run import ActiveRun
from muster.control.ended_runs import ended_run
from muster.control.plan import make_plan
from muster.options.elastic.client import scaling
from muster.options.elastic.client.scale_command import _lines
from muster.options.elastic.contract.seats import Scaling, Seats, seats_key
from muster.options.elastic.control.seat_changes import ScaleRequest
from muster.options.elastic.control.seat_changes import scale as carry_out
from tests.memory.harness import BUS, RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import CANCELLED
from tests.support.elastic_run import TYPE, at, records, seats
from tests.support.memory_client import client_of, muster_of, put
from tests.support.round_commits import commit_of

ELASTIC = {"min": 2, "start": 4, "max": 32}


def planned(harness: ControlHarness, **fields: Any) -> ActiveRun:
    """A run whose execution has the spec as its input."""
    harness.executions.start(RUN, json.dumps({**SPEC, **fields}))
    make_plan(harness.plane, harness.deployment, harness.plan_request(RUN, **fields))
    return harness.plane.runs.require(RUN)


def write(harness: ControlHarness, found: Seats) -> None:
    put(harness.cloud, seats_key(RUN), found.model_copy(update={"run": RUN}).to_json())


def half_way(harness: ControlHarness, most: int = 32) -> None:
    """The sample of an elastic run, as the control plane has recorded it."""
    planned(harness, replicas={**ELASTIC, "max": most}, instance_type=TYPE)
    write(harness, seats())
    entries = [
        ReplicaEntry(rank=rank, revision=1, attempts=tuple(found.attempts), decision=found.decision)
        for rank, found in records().items()
    ]
    put(harness.cloud, RunLayout(RUN).roll_up_shard(0), RollUpShard(run=RUN, replicas=tuple(entries)).to_json())


def scaled(before: Seats, replicas: int, opened: str, by: str, closed: str = "") -> Seats:
    more: dict[str, Any] = {"revision": before.revision + 1, "before": before.wanted, "per_second": 10}
    return before.scaled(Scaling(at=at(0), replicas=replicas, opened=opened, closed=closed, by=by, **more))


@pytest.fixture
def answer(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the control plane do something while the client waits."""

    def answered(*steps: Callable[[], None]) -> None:
        left = itertools.chain(steps, itertools.repeat(lambda: None))
        monkeypatch.setattr(scaling.time, "sleep", lambda _: next(left)())

    return answered


def test_another_number_is_asked_for_on_the_bus_and_the_answer_says_who_comes(
    harness: ControlHarness, answer: Callable[..., None]
) -> None:
    planned(harness, replicas=ELASTIC)
    muster = muster_of(harness.cloud)
    event = f"{len(harness.cloud.events.entries) + 1:08}-0000-4000-8000-000000000000"
    request = ScaleRequest(run=RUN, replicas=16, by=event)
    answer(lambda: None, lambda: carry_out(harness.plane, request, 10, budget()))
    found = muster.scale(RUN, 16)
    [entry] = [one for one in harness.cloud.events.entries if one.detail_type == "Scale Requested"]
    assert (entry.bus, entry.detail, found.request) == (BUS, {"run": RUN, "replicas": 16}, event)
    assert list(_lines(found)) == [
        "one: 16 replicas wanted instead of 4: ranks 4-15 open.",
        "Watch them with `muster status one --watch`.",
    ]


def test_a_number_that_is_wanted_already_is_asked_for_again_without_a_wait(harness: ControlHarness) -> None:
    planned(harness, replicas=ELASTIC)
    found = muster_of(harness.cloud).scale(RUN, 4)
    assert (found.before, found.opened, found.closed) == (4, "", "")
    assert next(iter(_lines(found))) == "one: 4 replicas wanted, as before."
    assert harness.cloud.events.of("Scale Requested") == [{"run": RUN, "replicas": 4}]


def test_an_answer_says_where_the_budget_pays_for_fewer_than_were_asked_for(
    harness: ControlHarness, answer: Callable[..., None]
) -> None:
    budgeted = {"elastic": {"budget_usd_per_hour": 20}, "instance_type": "ml.c5.xlarge"}
    planned(harness, replicas=ELASTIC, usd_per_hour={"ml.c5.xlarge": 2}, **budgeted)
    event = f"{len(harness.cloud.events.entries) + 1:08}-0000-4000-8000-000000000000"
    answer(lambda: carry_out(harness.plane, ScaleRequest(run=RUN, replicas=16, by=event), 10, budget()))
    assert list(_lines(muster_of(harness.cloud).scale(RUN, 16)))[:2] == [
        "one: 10 replicas wanted instead of 4: ranks 4-9 open.",
        "elastic.budget_usd_per_hour pays for no more; 16 were asked for.",
    ]


def test_a_wait_ends_when_all_have_come_and_left(harness: ControlHarness, answer: Callable[..., None]) -> None:
    half_way(harness)
    write(harness, scaled(seats(), 5, "", "x", closed="5-7"))
    leaving = records()[5].attempts[-1]
    gone = leaving.model_copy(update={"ended_at": at(5_400), "status": "Stopped", "secondary": "Stopped"})
    shard = RollUpShard(run=RUN, replicas=(ReplicaEntry(rank=5, revision=2, attempts=(gone,)),))
    left: list[bool] = []

    def leave() -> None:
        put(harness.cloud, RunLayout(RUN).roll_up_shard(5), shard.to_json())
        left.append(True)

    answer(lambda: None, leave)
    found = muster_of(harness.cloud).scale(RUN, 5, wait=True)
    assert left
    assert list(_lines(found))[1:] == ["seats: 5 of 5 wanted, 27 parked", "ranks 5-31: parked, not wanted"]


@pytest.mark.parametrize(
    ("replicas", "spec", "words"),
    [
        (1, ELASTIC, "1 replicas were asked for; 2 to 32 are allowed, replicas.min to replicas.max of its spec"),
        (33, ELASTIC, "name another number"),
        (2, 1, "its number of replicas is fixed (1); launch it with `replicas: {min: …, start: …, max: …}`"),
    ],
)
def test_what_a_run_cannot_have_is_said_before_anything_is_sent(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, replicas: int, spec: Any, words: str
) -> None:
    monkeypatch.setattr(scaling, "CARRIED_OUT_SECONDS", 0.0)
    planned(harness, replicas=spec)
    with pytest.raises(ScaleError) as caught:
        muster_of(harness.cloud).scale(RUN, replicas)
    assert str(caught.value).startswith("The run one was not scaled: ")
    assert words in str(caught.value)
    assert harness.cloud.events.of("Scale Requested") == []


def test_a_run_that_trains_no_more_is_not_scaled(harness: ControlHarness) -> None:
    planned(harness, replicas=ELASTIC)
    muster = muster_of(harness.cloud)
    write(harness, Seats.first(RUN, 4).model_copy(update={"ended": "replica 0 has finished"}))
    with pytest.raises(ScaleError, match="was not scaled: replica 0 has finished; see `muster status one`"):
        muster.scale(RUN, 8)
    harness.cloud.workflow.succeed(RUN)
    with pytest.raises(ScaleError, match="it has ended; `muster continue one` continues it"):
        muster.scale(RUN, 8)
    harness.executions.start("young", "{}")
    with pytest.raises(ScaleError, match="it has just started"):
        muster.scale("young", 8)
    assert harness.cloud.events.of("Scale Requested") == []


def test_a_request_that_nobody_carries_out_is_given_up_and_one_that_comes_too_late_is_refused(
    harness: ControlHarness, answer: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(harness, replicas=ELASTIC)
    muster = muster_of(harness.cloud)
    monkeypatch.setattr(scaling, "CARRIED_OUT_SECONDS", 0.0)
    with pytest.raises(ScalePendingError, match="has not been scaled within"):
        muster.scale(RUN, 8)
    monkeypatch.undo()
    late = Seats.first(RUN, 4).model_copy(update={"ended": "the run is being stopped"})
    answer(lambda: write(harness, late))
    with pytest.raises(ScaleError, match="being stopped"):
        muster.scale(RUN, 8)


def test_a_request_that_the_control_plane_refuses_is_answered_with_its_reason(
    harness: ControlHarness, answer: Callable[..., None]
) -> None:
    run = planned(harness, replicas=ELASTIC)
    event = f"{len(harness.cloud.events.entries) + 1:08}-0000-4000-8000-000000000000"
    request = ScaleRequest(run=RUN, replicas=8, by=event)

    def refuse() -> None:
        run.documents.raise_fence(CANCELLED)
        assert carry_out(harness.plane, request, 10, budget()).startswith("refused")

    answer(refuse)
    with pytest.raises(ScaleError, match="was not scaled: the run has ended, or is being stopped"):
        muster_of(harness.cloud).scale(RUN, 8)


def look(harness: ControlHarness) -> RunStatus:
    return Observer(client_of(harness.cloud), RUN).look()


def test_parked_seats_are_one_line_however_many_there_are_and_cost_one_get(harness: ControlHarness) -> None:
    half_way(harness, most=10_000)
    observer = Observer(client_of(harness.cloud), RUN)
    status = observer.look()
    harness.cloud.calls.reset()
    observer.look()
    assert harness.cloud.calls.counts() == {"DescribeExecution": 1, "ListObjectsV2": 2, "GetObject": 1}
    assert [one.rank for one in status.replicas] == list(range(10)), "those that were never launched have no row"
    text = [line.text for line in status_lines(status, 120, None)]
    assert "seats: 6 of 8 wanted, 2 waiting for ml.p5.48xlarge, 9,992 parked" in text
    assert "ranks 6-7: waiting for ml.p5.48xlarge, next look 04:50 UTC" in text
    assert "ranks 8-9999: parked, not wanted" in text
    assert len(text) == 14


def test_a_seat_that_was_parked_and_opened_again_is_no_rerun(harness: ControlHarness) -> None:
    half_way(harness)
    # Ranks 5 to 7 have a second job after they were parked, rank 2 after it was lost.
    assert look(harness).reruns == 1


def test_a_watch_says_who_comes_and_leaves_and_so_do_the_events(harness: ControlHarness) -> None:
    half_way(harness)
    status = look(harness)
    assert status.seats is not None
    before = status.model_copy(update={"seats": status.seats.model_copy(update={"changes": status.seats.changes[:2]})})
    assert list(changes(before, status)) == ["8 replicas are wanted: ranks 5-7 open"]
    put(harness.cloud, f"{RunLayout(RUN).commits}{1:08d}.json", commit_of([0, 1], run=RUN).to_json())
    assert "round 1: 2 of 8 replicas" in list(changes(status, look(harness)))
    events = Observer(client_of(harness.cloud), RUN).event_log()
    assert next(one.text for one in events if one.kind is EventKind.RUN_STARTED) == "the run started with 4 replicas"
    assert [one.text for one in events if one.kind is EventKind.RUN_SCALED] == [
        "10 replicas are wanted: ranks 4-9 open (by event 3f0c1d6e)",
        "5 replicas are wanted: ranks 5-9 leave (by its schedule)",
        "8 replicas are wanted: ranks 5-7 open (by event 9a77b2c4)",
    ]
    parked = [one.text for one in events if one.kind is EventKind.REPLICA_PARKED]
    assert parked[:3] == [
        "replica 8 is parked: no capacity for ml.p5.48xlarge",
        "replica 9 is parked: no capacity for ml.p5.48xlarge",
        "replica 5 is parked",
    ]


def test_the_outcome_of_an_elastic_run_counts_those_that_were_wanted(harness: ControlHarness) -> None:
    run = planned(harness, replicas={"min": 2, "start": 4, "max": 8})
    outcomes = [*[ReplicaOutcome.SUCCEEDED] * 4, *[ReplicaOutcome.FAILED] * 2, *[ReplicaOutcome.PARKED] * 2]
    replicas = tuple(ReplicaResult(rank=rank, outcome=one, usd=0.0) for rank, one in enumerate(outcomes))
    result = Result(run=RUN, verdict=Verdict.SUCCEEDED, reason="", settled_at=at(60), replicas=replicas, reruns=0)
    lines = list(result_lines(result, SHIPPED_PRICES))
    assert lines[1] == "replicas: 4 of 6 succeeded, 2 parked"
    assert lines[-1] == "ranks 6-7: parked"
    assert len(lines) == 2 + 6 + 1
    shown = muster_of(harness.cloud).list()
    assert [one.replicas for one in shown] == [4], "how many are wanted now"
    write(harness, seats())
    assert [one.replicas for one in muster_of(harness.cloud).list()] == [8]
    entry = ended_run(run.plan, result, None)
    listed = shown[0].model_copy(
        update={"replicas": entry.replicas, "parked": entry.parked, "state": RunState.SUCCEEDED}
    )
    assert "6 (2 parked)" in list(list_lines([listed], more=False, width=None))[1]


def plan(granted: dict[str, float] | None = None, **fields: Any) -> DryRun:
    document = {
        "replicas": {**ELASTIC, "start": 8},
        "trainer": "a.b:c",
        "image": "i:1",
        "source_dir": "s3://b/c.tar.gz",
    }
    context = DeploymentContext.placeholders()
    context = DeploymentContext(context.place, context.defaults, context.prices, context.state_machine_arn, (), granted)
    return dry_run(parse_spec({**document, "instance_type": TYPE, **fields}), context)


def test_a_plan_says_what_the_fewest_the_first_and_the_most_cost_and_need() -> None:
    steps = [{"after_seconds": 3_600, "replicas": 16}, {"after_seconds": 21_600, "replicas": 8}]
    dry = plan({f"{TYPE} for training job usage": 10}, elastic={"scale": steps, "below_min": "stop"})
    lines = [line.strip() for line in dry_run_lines(dry)]
    assert lines[0].startswith("8 training jobs at first: ")
    assert dry.seats is not None
    assert dry.cost.per_hour == dry.seats.start.per_hour
    assert {"min     2    $126.59 per hour", "start   8    $506.37 per hour", "max    32  $2,025.47 per hour"} <= {
        *lines
    }
    assert "Scheduled: 16 after 1 h, 8 after 6 h." in lines
    wait = "Without capacity for 15 min, a seat is parked and looks again every 30 min; below min the run stops."
    assert wait in lines
    assert f"{TYPE} for training job usage: 2, 8 and 32; 10 granted" in lines
    assert [quota.instances for quota in dry.quotas] == [8]


def test_a_plan_says_how_many_replicas_the_budget_pays_for() -> None:
    dry = plan(elastic={"budget_usd_per_hour": 400})
    assert "Scaling opens what $400.00 per hour pay for: 6 at least." in [line.strip() for line in dry_run_lines(dry)]
    [remark] = [one for one in dry.remarks if "budget" in one]
    assert "pays for 6 replicas" in remark


@pytest.mark.parametrize(
    ("granted", "words"),
    [
        (1, "replicas.min alone needs 2: ask for more, or lower replicas.min"),
        (4, "the launch needs 8, so seats wait for quota, and max would need 32"),
        (16, "which is enough for the launch; replicas.max needs 32"),
        (32, None),
    ],
)
def test_a_quota_is_too_small_for_the_fewest_the_first_or_the_most(granted: float, words: str | None) -> None:
    remarks = [one for one in plan({f"{TYPE} for training job usage": granted}).remarks if "quota" in one]
    assert len(remarks) == (words is not None)
    assert all(words in one for one in remarks if words)
