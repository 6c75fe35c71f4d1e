"""Resolving a recipe: placeholders, the merge of all sources, interpolations, and every problem at once."""

from __future__ import annotations

import json

import pytest

from muster.contract.errors import RecipeError
from muster.contract.recipe.recipe_sources import RecipeSources, SourceText
from muster.contract.recipe.recipe_text import recipe_yaml
from muster.contract.recipe.resolution import resolve
from muster.contract.recipe.resolved_recipe import Origin, ResolvedRecipe

BASE = """
run:
  name: {{name}}
  nodes: 3
  path: 's3://{{ name }}/x'
training_config:
  optim: {lr: "{{learning_rate}}", betas: [0.9, 0.95], kind: adam}
  sched: {lr: 5, kind: cosine, warmup: '${multiply:${run.nodes},2}'}
  override_config: {}
  max_steps: 10
  save_steps: '{{save_steps}}'
again: ${training_config.optim}
"""
SPEC = {
    "name": {"type": "string", "default": "quiet", "required": True},
    "learning_rate": {"type": "float", "min": 1e-7, "max": 1e-3, "default": 1e-5},
    "save_steps": {"type": "integer", "default": 5},
    "max_steps": {"type": "integer"},
}


def sources(base: str | None = BASE, spec: object = SPEC, recipe: str | None = None, **values: object) -> RecipeSources:
    def text(content: str | None) -> SourceText | None:
        return None if content is None else SourceText(place="place.yaml", text=content)

    return RecipeSources.model_validate(
        {
            "name": "example",
            "base": text(base),
            "override_spec": None if spec is None else text(json.dumps(spec)),
            "recipe": text(recipe),
            **values,
        }
    )


def resolved(*arguments: object, **values: object) -> ResolvedRecipe:
    found = resolve(sources(*arguments, **values))  # type: ignore[arg-type]
    again = resolve(sources(None, None, recipe_yaml(found.document)))
    assert (again.document, again.digest) == (found.document, found.digest)
    return found


def problems(*arguments: object, **values: object) -> list[str]:
    with pytest.raises(RecipeError, match=r"^The recipe has \d+ problems?; nothing was created\.") as refused:
        resolve(sources(*arguments, **values))  # type: ignore[arg-type]
    return [str(problem) for problem in refused.value.problems]


def alone(text: str, **values: object) -> dict[str, object]:
    return dict(resolved(None, None, text, **values).document)


def test_defaults_take_the_place_of_placeholders_and_interpolations_are_replaced() -> None:
    found = resolved()
    optim = {"lr": 1e-5, "betas": [0.9, 0.95], "kind": "adam"}
    assert found.document == {
        "run": {"name": "quiet", "nodes": 3, "path": "s3://quiet/x"},
        "training_config": {
            "optim": optim,
            "sched": {"lr": 5, "kind": "cosine", "warmup": 6},
            "override_config": {},
            "max_steps": 10,
            "save_steps": 5,
        },
        "again": optim,
    }
    assert found.named["learning_rate"] == ("training_config", "optim", "lr")
    assert found.origins["run", "path"] is Origin.DEFAULT
    assert found.origins["training_config", "override_config"] is Origin.BASE


def test_stronger_sources_win() -> None:
    found = resolved(
        recipe="training_config: {optim: {lr: 2e-5, kind: sgd}, max_steps: 20}",
        overrides={"training_config.optim.lr": 3e-5, "save_steps": 6},
        values={"learning_rate": 4e-5},
        inputs={"name": "loud"},
    )
    assert found.document["again"] == {"lr": 4e-5, "betas": [0.9, 0.95], "kind": "sgd"}
    origins = {".".join(map(str, path)): origin.value for path, origin in found.origins.items()}
    assert origins == {
        "run.name": "inputs",
        "run.nodes": "base",
        "run.path": "inputs",
        "training_config.optim.lr": "values",
        "training_config.optim.betas": "base",
        "training_config.optim.kind": "recipe",
        "training_config.sched.lr": "base",
        "training_config.sched.kind": "base",
        "training_config.sched.warmup": "base",
        "training_config.override_config": "base",
        "training_config.max_steps": "recipe",
        "training_config.save_steps": "overrides",
        "again.lr": "base",
        "again.betas": "base",
        "again.kind": "base",
    }


def test_every_problem_is_reported_at_once() -> None:
    optim = "training_config.optim"
    assert problems(
        recipe="trainig_config: 1",
        overrides={"lr": 1, "kindd": 2, "training_config.optim.betas.5": 1},
        inputs={"nam": 1},
        values={"save_steps": 100, "learning_rate": 5.0},
    ) == [
        "recipe.trainig_config (recipe): unknown name; did you mean training_config?",
        f"recipe.lr (overrides): it could be {optim}.lr, training_config.sched.lr; write one of these paths",
        "recipe.kindd (overrides): unknown name; did you mean training_config.optim.kind?",
        "recipe.training_config.optim.betas.5 (overrides): no such place in the list; allowed: 0 to 1",
        "recipe.inputs.nam: there is no placeholder {{nam}}; did you mean name?",
        "recipe.training_config.optim.lr (values): found 5.0; allowed: 1e-07 to 0.001; lower it",
        "recipe.training_config.save_steps (values): found 100; allowed: at most max_steps, 10",
    ]


def test_a_recipe_may_expect_itself_below_recipes_or_training() -> None:
    assert alone("a: ${recipes.b.c}\nb: {c: 1}") == {"a": 1, "b": {"c": 1}}
    assert alone("a: ${training.b.c}\nb: {c: 1}") == {"a": 1, "b": {"c": 1}}


def test_text_of_an_input_is_no_interpolation_and_no_placeholder() -> None:
    found = resolved(inputs={"name": "${oc.env:HOME} {{name}}"}).document
    assert found["run"] == {"name": "${oc.env:HOME} {{name}}", "nodes": 3, "path": "s3://${oc.env:HOME} {{name}}/x"}


def test_a_cycle_is_printed() -> None:
    [problem] = problems(None, None, "a: ${b}\nb: ${c}\nc: x${a}")
    assert problem == "recipe.a (recipe): a cycle of interpolations: a -> b -> c -> a; break it: write a value"


def test_what_reaches_outside_is_refused() -> None:
    [problem] = problems(None, None, "a: '${oc.env:HOME}'")
    assert problem.startswith("recipe.a (recipe): ${oc.env:…}, which is not allowed; it would read the environment")


def test_interpolations_that_multiply_a_recipe_are_refused() -> None:
    lines = ["a0: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{level}: [{', '.join([repr(f'${{a{level - 1}}}')] * 10)}]" for level in range(1, 9)]
    assert any("more than 50,000 values" in problem for problem in problems(None, None, "\n".join(lines)))


REFERRING = "actor: {lr: 1, n: 2}\nref: ${.actor}\nlast: ${ref}"


@pytest.mark.parametrize("order", [1, -1])
def test_values_behind_an_interpolation_are_those_after_the_whole_source(order: int) -> None:
    overrides = dict([("actor", {"lr": 5}), ("ref", {"n": 3})][::order])
    found = alone(REFERRING, overrides=overrides)
    assert found == {"actor": {"lr": 5, "n": 2}, "ref": {"lr": 5, "n": 3}, "last": {"lr": 5, "n": 3}}
