"""Two runs side by side: what is compared, what is not, and what is not shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.client.cli.comparison_text import comparison_lines
from muster.contract.run.lineage import Lineage
from muster.report.comparison import ComparedRun, Comparison, compare
from muster.report.page_contents import PageInput, make_page
from tests.support.sample_sweeps import sample_sweep


def side(run: str, found: PageInput | None = None, /, **spec: Any) -> ComparedRun:
    """A sample run of four replicas under this name; `spec` are fields of its spec."""
    sample = found or sample_run(4, 30, reason="InternalServerError: We encountered an internal error.")
    changed = sample.plan.spec.model_copy(update=spec)
    plan = sample.plan.model_copy(update={"run": run, "spec": changed})
    page = make_page(replace(sample, plan=plan))
    return ComparedRun(page=page, reason=sample.reason, spec=changed.model_dump(mode="json"))


def fields(found: Comparison) -> dict[str, tuple[object, object]]:
    return {one.field: (one.a, one.b) for one in found.spec}


def figures(found: Comparison) -> dict[str, tuple[float | None, float | None, float | None]]:
    return {one.name: (one.a, one.b, one.ratio) for one in found.figures}


def text(found: Comparison) -> str:
    return "\n".join(comparison_lines(found))


def test_the_mean_of_a_sweep_is_compared_with_nothing() -> None:
    found = compare(side("one"), side("sweep", sample_sweep(4, 12)))
    assert not found.comparable
    assert "sweep is a sweep: its replicas train apart" in found.remarks


def test_runs_of_one_spec_differ_in_what_came_of_them() -> None:
    slow = sample_run(4, 30, round_seconds=90.0, reason="InternalServerError: again")
    found = compare(side("fast"), side("slow", slow))
    assert (found.comparable, found.remarks, found.spec) == (True, (), ())
    assert "Their specs are the same." in text(found)
    compared = figures(found)
    assert compared["median round"] == (60.0, 90.0, 1.5)
    assert compared["rounds"] == (30.0, 30.0, 1.0)
    begin, end, ratio = compared["duration"]
    assert ratio is not None
    assert (begin, end) == (150 + 30 * 60 + 60, 150 + 30 * 90 + 60)
    for name in ("cost", "rate in the last rounds", "tokens", "cost of a million tokens", "reruns"):
        assert None not in compared[name], name


def test_a_metric_is_compared_in_the_rounds_that_both_have() -> None:
    found = compare(side("long"), side("short", sample_run(4, 12)))
    metric = next(one for one in found.metrics if one.name == "loss")
    assert metric.rounds[-1] <= 12
    assert len(metric.rounds) == len(metric.a) == len(metric.b)
    assert None not in (*metric.a, *metric.b)
    lines = text(found).splitlines()
    begin = next(index for index, line in enumerate(lines) if line.startswith("loss by round"))
    assert lines[begin].split() == ["loss", "by", "round", "A", "B", "B", "/", "A"]
    assert lines[begin + 1].split()[0] == str(metric.rounds[0])
    assert [line.split()[0] for line in lines[begin + 1 : begin + 10] if line][-1] == str(metric.rounds[-1])


def test_specs_are_compared_field_by_field() -> None:
    one = side("a", instance_type="ml.g5.2xlarge", kwargs={"rounds": 30, "rate": 0.1})
    other = side("b", instance_type="ml.g5.4xlarge", kwargs={"rounds": 30, "rate": 0.2, "warmup": 5})
    assert fields(compare(one, other)) == {
        "instance_type": ("ml.g5.2xlarge", "ml.g5.4xlarge"),
        "kwargs.rate": (0.1, 0.2),
        "kwargs.warmup": (None, 5),
    }
    shown = text(compare(one, other))
    assert "kwargs.rate    0.1            0.2" in shown
    assert "kwargs.warmup  –              5" in shown


def test_what_may_be_secret_is_not_shown() -> None:
    one = side("a", environment={"API_KEY": "swordfish", "DEPTH": "7"}, hyper_parameters={"rate": "0.1", "token": "ab"})
    other = side(
        "b", environment={"API_KEY": "hunter2", "DEPTH": "8"}, hyper_parameters={"rate": "2e-3", "token": "cd"}
    )
    hidden = "(text, not shown)"
    assert fields(compare(one, other)) == {
        "environment.API_KEY": (hidden, hidden),
        "environment.DEPTH": (hidden, hidden),
        "hyper_parameters.rate": ("0.1", "2e-3"),
        "hyper_parameters.token": (hidden, hidden),
    }
    found = compare(one, other)
    for printed in (text(found), found.to_line()):
        assert not any(word in printed for word in ("swordfish", "hunter2"))


def test_the_names_of_the_runs_are_no_difference() -> None:
    assert fields(compare(side("a", name="a"), side("b", name="b"))) == {}


def test_runs_of_different_programs_are_not_comparable() -> None:
    found = compare(side("a"), side("b", trainer="other:train"))
    assert not found.comparable
    assert found.remarks == ("they run different programs (trainer): their metrics may mean different things",)
    assert "Not comparable:\n  they run different programs" in text(found)


def test_runs_that_count_different_units_are_not_comparable() -> None:
    sample = sample_run(4, 30)
    other = replace(sample, rounds=sample.rounds.model_copy(update={"unit": "samples"}))
    found = compare(side("a"), side("b", other))
    assert found.remarks == ("a counts tokens, b counts samples: their rates cannot be compared",)
    assert not {"samples", "tokens", "rate in the last rounds"} & figures(found).keys()


def test_a_run_without_a_round_is_not_comparable() -> None:
    found = compare(side("a"), side("b", sample_run(4, 0)))
    assert (found.comparable, found.remarks) == (False, ("b has committed no round",))
    assert found.metrics == ()
    assert figures(found)["median round"] == (60.0, None, None)


def test_runs_without_a_common_metric_are_not_comparable() -> None:
    sample = sample_run(4, 30)
    renamed = tuple(one.model_copy(update={"name": f"{one.name}_2"}) for one in sample.rounds.metrics)
    other = replace(sample, rounds=sample.rounds.model_copy(update={"metrics": renamed}))
    assert compare(side("a"), side("b", other)).remarks == ("they have no metric in common in any round",)


def test_what_a_reader_must_know_is_said() -> None:
    sample = sample_run(4, 30)
    running = replace(sample, state="running", ended_at=None)
    continued = replace(
        sample,
        plan=sample.plan.model_copy(
            update={"lineage": Lineage(parent="a", root="a", generation=1, attempts_before=1, rounds_before=30)}
        ),
    )
    found = compare(side("a", running), side("b", continued))
    assert found.comparable
    assert found.remarks == (
        "a has not ended: its figures are not final",
        "b continues a: its rounds include those of the runs before",
    )
    assert text(found).splitlines()[3] == "Limits:"


def test_other_code_is_a_caution_and_no_barrier() -> None:
    found = compare(side("a", image="muster:1"), side("b", image="muster:2"))
    assert (found.comparable, found.remarks) == (True, ("their code differs (image)",))


def test_the_causes_of_reruns_are_counted() -> None:
    found = compare(side("a"), side("b"))
    assert found.a.reruns == found.b.reruns == {"quota": 1, "infrastructure": 1}
    assert "(reruns: " in text(found).splitlines()[0]


@pytest.mark.parametrize("cost", [None, 12.5])
def test_a_cost_that_is_not_known_is_a_dash(cost: float | None) -> None:
    one, other = side("a"), side("b")
    priced = other.page.replicas[0].model_copy(update={"usd": (cost,)})
    page = other.page.model_copy(update={"replicas": (priced,)})
    found = compare(one, replace(other, page=page))
    assert figures(found)["cost"][1] == cost
    assert ("–" if cost is None else "$12.50") in text(found)
