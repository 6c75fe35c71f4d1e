"""A sweep over the values of a recipe: each rank resolves with its own, and one spec says what differs."""

from typing import Any

import pytest

from muster.contract.document import digest
from muster.contract.errors import SpecError
from muster.contract.names import APART_MAX
from muster.contract.run.job_request import training_job_request
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.sweep_values import values_of
from muster.options.recipes.contract.expansion import Expansion, expansion
from muster.options.recipes.contract.resolved_recipe import RecipeSources, SourceText
from tests.support.job_requests import plan_of

RECIPE = """
run: {name: digits, model_type: own}
training_config:
  optim: {lr: 0.1, warmup: "${multiply:${training_config.steps},2}"}
  steps: 10
  tags: [a]
"""
SOURCES = RecipeSources(name="digits", base=SourceText(place="recipe.yaml", text=RECIPE))
SPEC: dict[str, Any] = {
    "replicas": 3,
    "trainer": "training:train",
    "recipe": {"base": "recipe.yaml", "kwargs": "training_config"},
    "sweep": {"lr": [0.1, 0.2, 0.4], "training_config.steps": [10, 20, 30], "kwargs.seed": [1, 2, 3]},
}
OWN_PROGRAM = {**SPEC, "trainer": None, "entrypoint": ["python", "train.py"], "recipe": "recipe.yaml"}


def found(document: dict[str, Any], sources: RecipeSources = SOURCES) -> Expansion:
    return expansion({key: value for key, value in document.items() if value is not None}, sources)


def refused(document: dict[str, Any], sources: RecipeSources = SOURCES) -> list[str]:
    with pytest.raises(SpecError) as caught:
        found(document, sources)
    return [str(problem) for problem in caught.value.problems]


def test_each_rank_resolves_with_its_own_values() -> None:
    swept = found(SPEC)
    digests = [recipe.digest for recipe in swept.recipes]
    assert len(set(digests)) == 3
    assert swept.reference.ranks == digests
    assert swept.reference.digest == digest(digests)
    spec = parse_spec(swept.document)
    assert [spec.of_rank(rank).kwargs for rank in range(3)] == [
        {"optim": {"lr": lr, "warmup": 2 * steps}, "steps": steps, "tags": ["a"], "seed": seed}
        for lr, steps, seed in zip((0.1, 0.2, 0.4), (10, 20, 30), (1, 2, 3), strict=True)
    ]
    # What follows from a swept value differs as well; what is the same value is shown once.
    assert list(values_of(spec.sweep, 1)) == ["lr", "training_config.steps", "kwargs.optim.warmup", "kwargs.seed"]
    plan = plan_of(spec)
    for rank, document in enumerate(RunDocument.every(plan).values()):
        assert document.kwargs == spec.of_rank(rank).kwargs
        request: Any = training_job_request(plan, rank, 1)
        (channel,) = [one for one in request["InputDataConfig"] if one["ChannelName"] == "recipe"]
        assert channel["DataSource"]["S3DataSource"]["S3Uri"].endswith(f"/recipes/{digests[rank]}/")


def test_a_sweep_has_a_recipe_for_each_rank() -> None:
    swept = found(SPEC)
    recipe = {**swept.reference.model_dump(), "ranks": (swept.reference.ranks or [])[:2]}
    with pytest.raises(SpecError) as caught:
        parse_spec({**swept.document, "recipe": recipe})
    assert [problem.field for problem in caught.value.problems] == ["recipe.ranks"]


def test_ranks_of_a_program_have_recipes_of_their_own_where_they_differ_in_the_recipe() -> None:
    own = found({**OWN_PROGRAM, "sweep": {"lr": [0.1, 0.2, 0.4]}})
    assert len(set(own.reference.ranks or [])) == 3
    assert not parse_spec(own.document).trains_apart
    # Ranks may differ in the spec alone.
    same = found({**OWN_PROGRAM, "sweep": {"environment.SEED": ["1", "2", "3"]}})
    (recipe,) = same.recipes
    assert (same.reference.ranks, same.reference.digest) == ([recipe.digest] * 3, recipe.digest)


def test_a_hooked_program_gets_its_settings_from_the_recipe() -> None:
    text = f"{RECIPE}diloco: {{sync_every: 50, momentum: 0.5}}\n"
    sources = SOURCES.model_copy(update={"base": SourceText(place="recipe.yaml", text=text)})
    document = {**OWN_PROGRAM, "hook": "huggingface", "recipe": {"base": "recipe.yaml", "kwargs": "diloco"}}
    spec = parse_spec(found({**document, "sweep": {"diloco.sync_every": [10, 20, 50]}}, sources).document)
    assert [spec.of_rank(rank).kwargs for rank in range(3)] == [
        {"sync_every": every, "momentum": 0.5} for every in (10, 20, 50)
    ]


def test_problems_of_all_ranks_are_reported_once_and_others_with_their_rank() -> None:
    [problem] = refused({**SPEC, "sweep": {"lrr": [1, 2, 3]}})
    assert problem == "sweep.lrr: unknown name; did you mean training_config.optim.lr?"
    [problem] = refused({**SPEC, "sweep": {"training_config.steps": [1, "${nothing}", 3]}})
    assert problem.startswith("rank 1: sweep.training_config.steps: ")


def test_what_ranks_cannot_differ_in_is_refused() -> None:
    hidden = SOURCES.model_copy(update={"values": {"lr": 1.0}})
    [problem, *_] = refused({**SPEC, "sweep": {"lr": [0.1, 0.2, 0.4]}}, hidden)
    assert problem.startswith("sweep.lr: it is set in recipe.values as well")
    mappings = {"training_config": [{"steps": 1}, {"steps": 2}, {"rounds": 3}]}
    assert any("unknown name" in problem for problem in refused({**SPEC, "sweep": mappings}))


def test_a_sweep_that_is_wrong_itself_is_refused_as_such() -> None:
    for sweep in ({"lr": [1, 2]}, {"lr": 3}, [1], {"lr": []}):
        assert any(problem.startswith("sweep") for problem in refused({**SPEC, "sweep": sweep}))
    own = refused({**OWN_PROGRAM, "sweep": {"lr": [1, 2], "training_config.stps": [1, 2, 3]}})
    assert own == [
        "sweep.training_config.stps: unknown name; did you mean training_config.steps?",
        "sweep.lr: found 2 values; replicas is 3; write one value for each rank",
    ]
    many = {**SPEC, "replicas": APART_MAX + 1, "sweep": {"lr": [0.1] * (APART_MAX + 1)}}
    assert refused(many)[0].startswith("replicas: found 101; at most 100 in a sweep")


def test_many_ranks_have_shorter_recipes() -> None:
    ranks, long = 100, "#" * 200_000
    sources = RecipeSources(name="digits", base=SourceText(place="recipe.yaml", text=f"{RECIPE}{long}\n"))
    spec = {**SPEC, "replicas": ranks, "sweep": {"lr": [0.1] * ranks}}
    [problem] = refused(spec, sources)
    assert problem.startswith(f"sweep: found 100 ranks of a recipe of {len(RECIPE) + len(long) + 1:,} characters")
    assert "at most 16,000,000 characters over all ranks" in problem
