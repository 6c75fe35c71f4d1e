"""Elastic runs: replicas join and leave while the others train, and seats without capacity wait."""

import json
from datetime import timedelta

import pytest
from pydantic import JsonValue

from muster.client.runs.observer import Observer
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import ATTEMPT_MAX, run_name
from muster.contract.run.attempt import Attempt
from muster.contract.run.record import Record
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.spec.run_limits import RUN_MAX_SECONDS, Timer
from muster.contract.spec.spec_reader import parse_spec
from muster.control.ended_runs import ended_run
from muster.control.timer import Fired, fire
from muster.options.elastic.control.decisions import leavers, paid_seats, parked_after
from muster.options.elastic.control.seat_changes import ScaleRequest, scale
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import finished, found
from tests.support.elastic_runs import PER_SECOND, RANGE, ElasticRun
from tests.support.handlers import loader
from tests.support.memory_client import client_of


def test_a_run_is_scaled_up_and_down_and_ends(harness: ControlHarness) -> None:
    run = ElasticRun(harness)
    assert (run.jobs, sorted(run.tokens)) == (["r0-a1", "r1-a1"], [0, 1, 2, 3])
    assert run.scale(4) == "scaled"
    assert run.jobs == ["r0-a1", "r1-a1", "r2-a1", "r3-a1"]
    run.train()
    assert run.scale(2) == "scaled"
    assert run.jobs == ["r0-a1", "r1-a1"]
    run.stopped()
    assert (run.attempts, sorted(run.tokens)) == ({0: 1, 1: 1, 2: 2, 3: 2}, [0, 1, 2, 3])
    assert harness.record(2).current.failure_class == "stopped-by-muster"
    run.scale(3)
    assert run.jobs == ["r0-a1", "r1-a1", "r2-a2"]
    for rank in (0, 1, 2):
        run.complete(rank)
    assert run.tokens == {}
    assert run.scale(4) == "refused: the run ends: replica 0 has trained to the end"
    result = finished(harness).result
    assert (result.verdict, result.reason, result.reruns) == (Verdict.SUCCEEDED, "3 of 3 replicas succeeded", 0)
    assert [replica.outcome for replica in result.replicas][3] is ReplicaOutcome.PARKED
    counts = {name: harness.emitted().count(name) for name in ("Run Scaled", "Replica Parked", "Scale Refused")}
    assert counts == {"Run Scaled": 3, "Replica Parked": 2, "Scale Refused": 1}
    assert "Replica Rerun" not in harness.emitted()


def test_opened_seats_are_launched_as_fast_as_the_stack_allows(harness: ControlHarness) -> None:
    run = ElasticRun(harness, replicas={"min": 1, "start": 1, "max": 40})
    began = harness.cloud.clock.now()
    run.asked(40)
    answers = {rank: found(harness.output(run.tokens[rank])) for rank in (1, 11, 39)}
    assert {rank: state["delay_seconds"] for rank, state in answers.items()} == {1: 0, 11: 1, 39: 4}
    # A workflow that asks again before its slot waits for the rest.
    assert run.arm(39) == "too early for the rerun"
    run.go_on()
    assert len(run.jobs) == 40
    assert (harness.cloud.clock.now() - began).total_seconds() >= 38 / PER_SECOND


def test_the_budget_says_how_many_seats_are_opened(harness: ControlHarness) -> None:
    """$10 an hour each: the dearest type that a replica may have counts until its job has one."""
    prices = {"ml.c5.xlarge": 4, "ml.c5.2xlarge": 10}
    types = {"instance_type": "ml.c5.xlarge", "fallback_instance_types": ["ml.c5.2xlarge"], "usd_per_hour": prices}
    seats = {"min": 1, "start": 2, "max": 8}
    run = ElasticRun(harness, replicas=seats, elastic={"budget_usd_per_hour": 29}, **types)
    assert run.scale(8) == "scaled"
    assert (run.seats.wanted, run.seats.open) == (4, "0-3")
    # Four jobs of the cheaper type leave room for one more.
    assert (run.scale(8), run.seats.wanted, len(run.jobs)) == ("scaled", 5, 5)
    assert run.scale(8) == "refused: elastic.budget_usd_per_hour pays for no more than the 5 replicas that are wanted"
    assert (run.scale(2), run.scale(5), run.seats.wanted) == ("scaled", "scaled", 4)


def test_the_fewest_replicas_are_opened_whatever_they_cost() -> None:
    spec = parse_spec(
        {
            **SPEC,
            "replicas": {"min": 3, "start": 3, "max": 8},
            "usd_per_hour": {"ml.c5.xlarge": 4},
            "instance_type": "ml.c5.xlarge",
            "elastic": {"budget_usd_per_hour": 8},
        }
    )
    # Two of three were lost.
    assert paid_seats(spec, [(0, None)], [3, 4, 5]) == [3, 4]


@pytest.mark.parametrize(("retry_seconds", "types"), [(60, 1), (60, 5), (1_800, 1), (86_400, 1)])
def test_a_seat_without_capacity_can_look_for_as_long_as_a_run_lasts(retry_seconds: int, types: int) -> None:
    """Every look is an attempt, of which there are few. Each ends at once."""
    kinds = [f"ml.c5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge", "9xlarge")][:types]
    section = {"park_after_seconds": 0, "retry_parked_seconds": retry_seconds}
    fields = {"replicas": RANGE, "elastic": section, "reruns": {"capacity": {"max_reruns": 0}}}
    spec = parse_spec({**SPEC, **fields, "instance_type": kinds[0], "fallback_instance_types": kinds[1:]})
    began = now = timestamps.parse("2026-01-01T00:00:00Z")
    attempts: list[Attempt] = []
    waits = []
    while (now - began).total_seconds() < RUN_MAX_SECONDS and len(attempts) < ATTEMPT_MAX:
        number = len(attempts) + 1
        ended = {"ended_at": timestamps.text(now), "failure_class": FailureClass.CAPACITY}
        attempts.append(Attempt(attempt=number, job=f"muster-one-r0-a{number}", **ended))
        decision = found(parked_after(spec, attempts, timestamps.text(now)))
        now += timedelta(seconds=decision.delay_seconds)
        if decision.parked:
            waits.append(decision.delay_seconds)
    assert len(attempts) < ATTEMPT_MAX - 50, "it can still be rerun when it has found an instance"
    assert all(retry_seconds <= wait <= retry_seconds * 1.25 for wait in waits[: ATTEMPT_MAX // 2 // types])


def test_a_look_for_capacity_is_no_rerun(harness: ControlHarness) -> None:
    """A rerun by its budget, then looks, more than an entry has attempts; both again, after it has trained."""
    harness.executions.start(RUN, "{}")
    capacity = {"max_reruns": 1, "delay_seconds": 1}
    run = ElasticRun(harness, elastic={"park_after_seconds": 60}, reruns={"capacity": capacity})
    run.train()
    for looks in (12, 2):
        for _ in range(looks):
            run.fail(1)
            if not run.jobs[1:]:
                harness.cloud.clock.advance(run.states[1]["rearm_seconds"])
                run.arm(1)
        run.train()
        run.fail(1, "InternalServerError: gone")
    status = Observer(client_of(harness.cloud), RUN).look()
    run.complete(0)
    run.complete(1)
    result = finished(harness).result
    counts = {name: harness.emitted().count(name) for name in ("Replica Rerun", "Replica Parked")}
    assert counts == {"Replica Rerun": 4, "Replica Parked": 12}
    assert (result.reruns, status.reruns, len(result.replicas[1].attempts)) == (4, 4, 17)
    reruns = {one.failure_class: one.reruns for one in ended_run(run.run.plan, result, None).failures}
    assert reruns == {"capacity": 2, "infrastructure": 2}


def test_who_leaves_first() -> None:
    """Who has no job, who does not train yet, then the dearest, the youngest, the highest rank."""
    trains, waits = "Training", "Starting"

    def record(rank: int, secondary: str, instance_type: str, launched_at: str) -> tuple[int, Record]:
        attempt = Attempt(attempt=1, job="j", launched_at=launched_at, instance_type=instance_type, secondary=secondary)
        return rank, Record(run=RUN, rank=rank, token="t", armed_at="", attempts=(attempt,))

    spec = parse_spec({**SPEC, "replicas": 6})
    spec = spec.model_copy(update={"prices": spec.prices.with_prices({"ml.m5.large": 1.0, "ml.m5.xlarge": 2.0})})
    records: list[tuple[int, Record | None]] = [
        record(0, trains, "ml.m5.large", "2026-01-01T00:00:00.000Z"),
        record(1, trains, "ml.m5.xlarge", "2026-01-01T00:00:00.000Z"),
        record(2, trains, "ml.m5.large", "2026-01-01T01:00:00.000Z"),
        record(3, waits, "ml.m5.large", "2026-01-01T00:00:00.000Z"),
        record(4, trains, "ml.m5.large", "2026-01-01T00:00:00.000Z"),
        (5, None),
    ]
    left = [{*leavers(spec, records, count)} for count in range(7)]
    assert [*map(set.difference, left[1:], left)] == [{5}, {3}, {1}, {2}, {4}, {0}]


def test_a_request_is_refused_with_the_reason_and_what_is_allowed(harness: ControlHarness) -> None:
    run = ElasticRun(harness)
    bounds = "replicas: found 5; 1 to 4, the run's replicas.min and replicas.max; write another number"
    assert run.scale(5) == f"refused: {bounds}"
    harness.plan("fixed")
    request = ScaleRequest(run="fixed", replicas=2, by="x")
    assert "launch a run with `replicas: {min, start, max}`" in scale(harness.plane, request, 1, budget())
    assert "no such run" in scale(harness.plane, request.model_copy(update={"run": "absent"}), 1, budget())
    assert [detail["run"] for detail in harness.cloud.events.of("Scale Refused")] == [RUN, "fixed", "absent"]


def test_no_seat_is_opened_once_the_cost_ceiling_is_reached(harness: ControlHarness) -> None:
    run = ElasticRun(harness, cost_ceiling_usd=1.0)
    run.train()
    harness.cloud.clock.advance(20 * 3_600)
    assert "refused: the cost ceiling of $1.00 is reached" in run.scale(4)
    assert run.scale(1) == "scaled"
    run.stopped()
    assert "refused: the cost ceiling of $1.00 is reached" in run.scale(2)
    assert (run.jobs, run.seats.wanted, harness.keys(f"control/{RUN}/lost/")) == (["r0-a1"], 1, [])


def test_an_event_that_asks_for_no_number_of_replicas_is_refused_with_words(harness: ControlHarness) -> None:
    run, bounds = ElasticRun(harness), "1 to 4, the run's replicas.min and replicas.max; write another number"
    numbers: dict[JsonValue, str] = {0: f"found 0; {bounds}", 20_000: f"found 20000; {bounds}"}
    others: dict[JsonValue, str] = {"4": 'found "4"', 2.5: "found 2.5", True: "found true", None: "found null"}
    for replicas, words in (
        *numbers.items(),
        *((one, f"{text}; write a whole number") for one, text in others.items()),
    ):
        event = {
            "id": f"e {replicas}",
            "detail": {"run": RUN, "replicas": replicas, "why": "unknown fields are ignored"},
        }
        assert scale(harness.plane, ScaleRequest.of(event), 1, budget()) == f"refused: replicas: {words}"
    assert [detail.get("replicas") for detail in harness.cloud.events.of("Scale Refused")] == [0, 20_000, *[None] * 4]
    assert len(run.seats.refusals) == 6
    for event in ({"id": "e", "detail": detail} for detail in ({"replicas": 3}, {"run": 7, "replicas": 3}, 5)):
        answer = scale(harness.plane, ScaleRequest.of(event), 1, budget())
        assert answer == "refused: detail.run is missing or no text: write the run's name"
    name = "an execution's name may be longer than that of its run"
    assert ScaleRequest.of({"id": "e", "detail": {"run": name, "replicas": 1}}).run == run_name(name)


def test_a_launch_gate_requires_no_more_replicas_than_are_wanted(harness: ControlHarness) -> None:
    run = ElasticRun(harness, launch_gate={"replicas": 2, "within_seconds": 60})
    run.scale(1)
    run.train()
    assert fire(harness.plane, run.run, Timer.LAUNCH_GATE, budget()) is Fired.PASSED
    run.scale(3)
    assert fire(harness.plane, run.run, Timer.LAUNCH_GATE, budget()) is Fired.STOPPED
    assert "only 1 of the required 2 replicas" in found(run.run.documents.fence()).reason


@pytest.mark.filterwarnings("ignore:No application metrics to publish")
def test_the_schedule_of_a_run_counts_from_its_launch_however_long_it_was_queued(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = loader(harness, monkeypatch)
    plan, call = load("plan"), load("scale")
    harness.executions.start(RUN, "{}")
    steps = [{"after_seconds": 3_600, "replicas": 4}]
    request = harness.plan_request(replicas=RANGE, elastic={"scale": steps}).model_dump()
    clock = harness.cloud.clock
    clock.advance(5 * 3_600)
    plan(request)
    clock.advance(60)
    plan(request)  # a retry keeps the first schedule
    clock.advance(1_740)
    event = {"detail-type": "Scale Requested", "id": "e-1", "time": f"{clock.now():%Y-%m-%dT%H:%M:%SZ}"}
    assert call({**event, "detail": {"run": RUN, "replicas": 3}}) == {"scale": "scaled"}
    clock.advance(1_801)
    [fired] = harness.cloud.scheduler.fired
    assert call(json.loads(fired.input)) == {"scale": "scaled"}


# The filter of muster.control.runtime.function, which pytest resets: most events change no metric.
@pytest.mark.filterwarnings("ignore:No application metrics to publish")
def test_a_run_is_scaled_by_events_and_by_its_own_schedule(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = loader(harness, monkeypatch)
    plan, call = load("plan"), load("scale")
    harness.executions.start(RUN, "{}")
    steps = [{"after_seconds": 60, "replicas": 3}, {"after_seconds": 120, "replicas": 1}]
    assert plan(harness.plan_request(replicas=RANGE, elastic={"scale": steps}).model_dump())["ranks"] == [0, 1, 2, 3]
    harness.cloud.clock.advance(61)
    [fired] = harness.cloud.scheduler.fired
    assert call(json.loads(fired.input)) == {"scale": "scaled"}
    now, event = harness.cloud.clock.now(), {"detail-type": "Scale Requested", "detail": {"run": RUN, "replicas": 4}}
    late = {**event, "id": "e-0", "time": f"{now - timedelta(seconds=30):%Y-%m-%dT%H:%M:%SZ}"}
    assert call(late) == {"scale": "refused"}, "the step of the schedule is newer"
    event = {**event, "id": "e-1", "time": f"{now:%Y-%m-%dT%H:%M:%SZ}"}
    assert [call(event), call(event)] == [{"scale": "scaled"}] * 2
    assert [detail["by"] for detail in harness.cloud.events.of("Run Scaled")] == ["schedule-0", "e-1", "e-1"]
