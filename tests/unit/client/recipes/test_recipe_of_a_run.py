"""Where a run shows the recipe that it started from."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.client.aws.reported import Execution
from muster.client.cli.run_table import list_lines
from muster.client.cli.status_table import status_lines
from muster.client.runs.notebook import run_html
from muster.client.runs.run_list import RunSummary
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import Observation, RunStatus, run_status
from muster.contract.recipe.recipe_reference import RecipeReference
from muster.contract.run.result import Result, Verdict
from muster.control.ended_runs import ended_run
from muster.report.page_contents import make_page

DIGEST, OTHER = "0123456789ab" + "c" * 52, "f" * 64
REFERENCE: dict[str, Any] = {"name": "llama-lora", "family": "llmft", "digest": DIGEST, "sources": OTHER}


def status(recipe: Any) -> RunStatus:
    start = datetime(2026, 11, 22, tzinfo=UTC)
    answer: Any = {"name": "one", "status": "RUNNING", "startDate": start, "input": json.dumps({"recipe": recipe})}
    return run_status(Observation("one", Execution.from_description(answer), {}, start))


def test_the_status_and_a_notebook_name_the_recipe() -> None:
    shown = status(REFERENCE)
    words = f"Recipe: llama-lora (family llmft), digest {DIGEST}."
    assert words in [line.text for line in status_lines(shown, 200, None)]
    assert f"<p>{words}</p>" in run_html("one", lambda: shown)


@pytest.mark.parametrize("recipe", [None, "mine.yaml", {"base": "s3://bucket/a.yaml"}, {"digest": 1}, [1]])
def test_a_recipe_that_the_plan_resolves_is_not_known_from_the_input(recipe: Any) -> None:
    shown = status(recipe)
    assert shown.recipe is None
    assert not [line for line in status_lines(shown, 200, None) if "recipe" in line.text]


def test_a_list_has_a_column_for_recipes_where_a_run_has_one() -> None:
    plain = RunSummary(run="one", state=RunState.RUNNING, started_at="2026-11-22T00:00:00.000Z")
    with_recipe = plain.model_copy(update={"run": "two", "recipe": "llama-lora"})
    heading, first, second = list_lines([plain, with_recipe], more=False, width=None)
    at = heading.index("recipe")
    assert first[at:].startswith("–")
    assert second[at:].startswith("llama-lora")
    assert "recipe" not in next(iter(list_lines([plain], more=False, width=None)))


def test_the_page_and_the_list_of_ended_runs_have_it_from_the_plan() -> None:
    run = sample_run(4, 20)
    spec = run.plan.spec.model_copy(update={"recipe": RecipeReference.model_validate(REFERENCE)})
    plan = run.plan.model_copy(update={"spec": spec})
    page = make_page(replace(run, plan=plan))
    [fact] = [fact for fact in page.facts if fact.label == "Recipe"]
    assert (fact.value, fact.note) == ("llama-lora", "family llmft, digest 0123456789ab")
    assert page.links.recipe is not None
    assert f"prefix=recipes/{DIGEST}/recipe.yaml" in page.links.recipe
    result = Result(
        run=plan.run, verdict=Verdict.SUCCEEDED, reason="", settled_at="2026-11-22T00:00:00Z", replicas=(), reruns=0
    )
    assert ended_run(plan, result, None).recipe == "llama-lora"
    assert make_page(run).links.recipe is None
