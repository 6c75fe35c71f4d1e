"""What a run costs: what its replicas rent now, and what was billed for those that have ended."""

from datetime import UTC, datetime, timedelta

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.plan import Lineage
from muster.contract.run.run_cost import (
    Rented,
    billed_usd,
    egress_usd,
    end_mark,
    instance_seconds,
    launch_mark,
    spent_usd,
    usd_of_ended,
    usd_so_far,
)
from muster.contract.spec.spec_reader import parse_spec
from tests.support.job_requests import plan_of

RUN = RunLayout("run")
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def ago(hours: float) -> datetime:
    return NOW - timedelta(hours=hours)


def test_what_runs_costs_by_the_hour_and_what_has_ended_what_was_billed():
    marks = [
        (launch_mark(RUN, 0, 1, Rented("ml.p5.48xlarge", 2)), ago(2)),
        (launch_mark(RUN, 1, 1, Rented("ml.g5.xlarge")), ago(10)),
        (end_mark(RUN, 1, 1, 2.5), ago(8)),
        (launch_mark(RUN, 1, 2, Rented("ml.g5.xlarge")), ago(1)),
        (f"{RUN.spent}what-is-this", ago(1)),
    ]
    assert spent_usd(marks, NOW) == pytest.approx(2 * 2 * 63.296 + 2.5 + 1.408)
    # An end that is reported twice is paid once.
    twice = [(end_mark(RUN, 9_999, 999, usd), NOW) for usd in (1.0, 1.000390)]
    assert spent_usd(twice, NOW) == pytest.approx(1.00039)


def test_what_goes_between_places_costs_what_regions_charge_and_is_paid_by_the_run_that_moved_it():
    first = plan_of(parse_spec({"replicas": 2, "image": "i", "trainer": "m:f", "instance_type": "ml.g5.xlarge"}))
    assert egress_usd(first, 3, None) is None
    assert egress_usd(first, 3, 50e9) == pytest.approx(1)
    lineage = Lineage(parent="run", root="run", generation=1, attempts_before=1, rounds_before=3)
    continued = first.model_copy(update={"lineage": lineage})
    assert egress_usd(continued, 3, 50e9) is None
    assert egress_usd(continued, 4, 50e9) == pytest.approx(1)


def test_a_price_of_the_spec_comes_before_the_tables():
    spec = parse_spec(
        {
            "replicas": 1,
            "image": "i",
            "trainer": "m:f",
            "instance_type": "ml.p5en.48xlarge",
            "cost_ceiling_usd": 5.0,
            "usd_per_hour": {"ml.p5en.48xlarge": 80.0, "ml.g5.xlarge": 2.0},
        }
    )
    marks = [(launch_mark(RUN, rank, 1, Rented(kind)), ago(1)) for rank, kind in enumerate(spec.usd_per_hour)]
    assert spent_usd(marks, NOW, spec.prices) == pytest.approx(82)
    attempt = Attempt(attempt=1, job="j", status="Completed", billable_seconds=1_800)
    assert usd_of_ended([attempt], spec, "2026-01-01T00:00:00.000Z") == pytest.approx(40)


def test_an_attempt_costs_its_billable_seconds():
    assert billed_usd(Rented("ml.g5.xlarge"), 1_800) == pytest.approx(0.704)
    assert billed_usd(Rented("ml.g5.xlarge", 16), 1_800) == pytest.approx(16 * 0.704)
    assert billed_usd(Rented("ml.g5.xlarge"), -5) == 0


def test_a_launch_that_was_marked_again_costs_the_later_type_since_the_first_mark():
    """The dearest type at the launch, the chosen one when the job was adopted; the order of the keys says nothing."""
    for first, second in (("ml.g5.12xlarge", "ml.g5.xlarge"), ("ml.p5.48xlarge", "ml.g5.xlarge")):
        marks = [(launch_mark(RUN, 0, 1, Rented(kind)), ago(hours)) for kind, hours in ((first, 10), (second, 1))]
        assert spent_usd(sorted(marks), NOW) == pytest.approx(10 * 1.408)


def test_a_job_on_a_cluster_costs_its_share_of_the_instances_while_it_holds_them():
    def at(minute):
        return f"2026-01-01T09:{minute:02}:00Z"

    steps = (
        *((0, "WaitingForQuota", None), (10, "Training", 1), (20, "Training", 3), (25, "Restarting", None)),
        *((26, "Training", 3), (30, "WaitingForQuota", None), (40, "Training", 2)),
    )
    history = tuple(Transition(at=at(when), secondary=word, instances=count) for when, word, count in steps)
    trains = {"status": "InProgress", "secondary": "Training", "launched_at": at(0), "instance_type": "ml.g5.xlarge"}
    attempt = Attempt(attempt=1, job="j", history=history, cluster=ClusterJob(cluster="c", spares=1), **trains)
    held = 60 * (10 * (1 + 1) + 10 * (3 + 1) + 5 * (2 + 1))
    assert instance_seconds(attempt, 1, at(45)) == held
    assert usd_so_far(attempt, 1, at(45), {"ml.g5.xlarge": 3.6}) == pytest.approx(held / 1_000)
    waiting = attempt.model_copy(update={"history": (), "secondary": "WaitingForQuota"})
    assert instance_seconds(waiting, 1, at(45)) == 0
    ended = Transition(at=at(43), secondary="Completed")
    over = attempt.model_copy(update={"history": (*history, ended), "status": "Completed", "ended_at": at(43)})
    assert instance_seconds(over, 1, at(59)) == held - 60 * 2 * 3
