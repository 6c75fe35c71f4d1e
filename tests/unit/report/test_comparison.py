"""Two runs side by side: what is compared, what is not, and what is not shown."""

from dataclasses import replace
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.client.cli.comparison_text import comparison_lines
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Lineage
from muster.report.comparison import ComparedRun, Comparison, compare
from muster.report.page_contents import make_page
from muster.report.page_model import PageInput, ReplicaView
from tests.support.sample_sweeps import sample_sweep


def side(run: str, found: PageInput | None = None, /, **spec: Any) -> ComparedRun:
    """A sample run of four replicas under this name; `spec` are fields of its spec."""
    sample = found or sample_run(4, 30, reason="InternalServerError: We encountered an internal error.")
    changed = sample.plan.spec.model_copy(update=spec)
    plan = sample.plan.model_copy(update={"run": run, "spec": changed})
    page = make_page(replace(sample, plan=plan))
    return ComparedRun(page=page, reason=sample.reason, spec=changed.model_dump(mode="json"))


def billed(sample: PageInput, seconds: int | None, crossed_bytes: float | None = None) -> PageInput:
    """The run with a single attempt that trained for an hour on an ml.g5.xlarge."""
    one = Attempt(
        attempt=1,
        job="job",
        status="Completed",
        instance_type="ml.g5.xlarge",
        launched_at="2026-01-01T00:00:00.000Z",
        ended_at="2026-01-01T01:00:00.000Z",
        billable_seconds=seconds,
    )
    rounds = sample.rounds.model_copy(update={"crossed_bytes": crossed_bytes})
    return replace(sample, replicas=[ReplicaView(rank=0, state="succeeded", attempts=(one,))], rounds=rounds)


def fields(found: Comparison) -> dict[str, tuple[object, object]]:
    return {one.field: (one.a, one.b) for one in found.spec}


def figures(found: Comparison) -> dict[str, tuple[float | None, float | None, float | None]]:
    return {one.name: (one.a, one.b, one.ratio) for one in found.figures}


def text(found: Comparison) -> str:
    return "\n".join(comparison_lines(found))


def test_runs_of_one_spec_differ_in_what_came_of_them() -> None:
    slow = sample_run(4, 12, round_seconds=90.0, reason="InternalServerError: again")
    found = compare(side("fast"), side("slow", slow))
    assert (found.comparable, found.remarks, found.spec) == (True, (), ())
    compared = figures(found)
    assert compared["median round"] == (60.0, 90.0, 1.5)
    assert compared["rounds"] == (30.0, 12.0, 0.4)
    assert compared["duration"][:2] == (150 + 30 * 60 + 60, 150 + 12 * 90 + 60)
    assert found.a.reruns == found.b.reruns == {"quota": 1, "infrastructure": 1}
    for name in ("cost", "rate in the last rounds", "tokens", "cost of a million tokens", "reruns"):
        assert None not in compared[name], name
    # A metric is compared in the rounds that both have.
    metric = next(one for one in found.metrics if one.name == "loss")
    assert (max(metric.rounds), None in (*metric.a, *metric.b)) == (12, False)


def test_specs_are_compared_field_by_field_and_what_may_be_secret_is_not_shown() -> None:
    one = side(
        "a",
        kwargs={"rounds": 30, "rate": 0.1},
        environment={"API_KEY": "swordfish"},
        hyper_parameters={"rate": "0.1", "token": "swordfish"},
    )
    other = side(
        "b",
        kwargs={"rounds": 30, "rate": 0.2, "warmup": 5},
        environment={"API_KEY": "hunter2"},
        hyper_parameters={"rate": "2e-3", "token": "hunter2"},
    )
    found, hidden = compare(one, other), "(text, not shown)"
    assert fields(found) == {
        "kwargs.rate": (0.1, 0.2),
        "kwargs.warmup": (None, 5),
        "environment.API_KEY": (hidden, hidden),
        "hyper_parameters.rate": ("0.1", "2e-3"),
        "hyper_parameters.token": (hidden, hidden),
    }
    assert "kwargs.warmup           –                  5" in text(found)
    for printed in (text(found), found.to_line()):
        assert not any(word in printed for word in ("swordfish", "hunter2"))


def test_runs_with_nothing_in_common_are_not_comparable() -> None:
    sample = sample_run(4, 30)
    renamed = tuple(one.model_copy(update={"name": f"{one.name}_2"}) for one in sample.rounds.metrics)
    other_metrics = replace(sample, rounds=sample.rounds.model_copy(update={"metrics": renamed}))
    for other, part in (
        (side("b", trainer="other:train"), "(trainer)"),
        (side("b", sample_run(4, 0)), "b has committed no round"),
        (side("b", other_metrics), "no metric in common"),
        (side("sweep", sample_sweep(4, 12)), "sweep is a sweep"),
    ):
        found = compare(side("a"), other)
        assert not found.comparable, part
        assert part in " ".join(found.remarks), part
        assert "Not comparable:" in text(found), part
    empty = compare(side("a"), side("b", sample_run(4, 0)))
    assert (empty.metrics, figures(empty)["median round"]) == ((), (60.0, None, None))


def test_what_a_reader_must_know_is_said_and_is_no_barrier() -> None:
    sample = sample_run(4, 30)
    running = replace(sample, state="running", ended_at=None)
    lineage = Lineage(parent="a", root="a", generation=1, attempts_before=1, rounds_before=30)
    continued = replace(sample, plan=sample.plan.model_copy(update={"lineage": lineage}))
    found = compare(side("a", running, image="muster:1"), side("b", continued, image="muster:2"))
    assert found.comparable
    ended = "a has not ended: its figures are not final, and its cost is an upper bound"
    for part in (ended, "b continues a", "their code differs (image)"):
        assert [remark for remark in found.remarks if remark.startswith(part)], part
    assert len(found.remarks) == 3
    assert "Limits:" in text(found).splitlines()


def test_the_cost_is_what_was_billed_and_what_went_between_places() -> None:
    sample = sample_run(4, 30)
    usd = SHIPPED_PRICES.usd_per_hour["ml.g5.xlarge"]
    found = compare(side("spot", billed(sample, 900)), side("demand", billed(sample, 3_600)))
    assert figures(found)["cost"] == pytest.approx((usd / 4, usd, 4.0))
    found = compare(side("one", billed(sample, 3_600)), side("several", billed(sample, None, 50e9)))
    assert figures(found)["cost"][:2] == pytest.approx((usd, usd + 1.0))
    million = [1e6 * cost / (sample.rounds.samples or 0) for cost in (usd, usd + 1.0)]
    assert figures(found)["cost of a million tokens"][:2] == pytest.approx(million)
