"""Recipes that are composed of other files, as in a checkout of the public recipes."""

import json
import posixpath
from contextlib import suppress

import pytest

from muster.contract.errors import RecipeError
from muster.options.recipes.contract.hydra_defaults import DEPTH_MAX, FILES_MAX
from muster.options.recipes.contract.recipe_text import load_recipe_text
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import RecipeSources
from muster.options.recipes.contract.text_places import PlaceError
from tests.support import composed_recipes
from tests.support.composed_recipes import checkout
from tests.support.recipe_readers import recipe_of_checkout

ROOT = "hyperpod_recipes/recipes_src/"
PARTS = f"{ROOT}fine-tuning/hydra_config/verl/"
RECIPE = "fine-tuning/llama/verl-dpo-llama-8b-5k-lora"


def _composed(recipe: str, **parts: str) -> dict[str, object]:
    files = {
        f"{ROOT}{RECIPE}.yaml": recipe,
        **{posixpath.normpath(f"{PARTS}{name}.yaml"): text for name, text in parts.items()},
    }
    return dict(load_recipe_text(recipe_of_checkout(files, RECIPE).text))


def _refusal(recipe: str, **parts: str) -> str:
    with pytest.raises(PlaceError) as caught:
        _composed(recipe, **parts)
    return caught.value.statement


BASE = "# @package recipes\nrun:\n  name: ???\n  model_type: verl\ntrainer: {devices: 8, list: [1, 2]}\n"


def test_a_package_is_relative_to_the_one_above_and_a_header_is_absolute() -> None:
    found = _composed(
        "defaults: [/hydra_config/verl/top]\n",
        top="# @package recipes.training_config\ndefaults:\n  - actor@rollout.actor: dp\n  - data@_here_: x\n"
        "  - optim@_global_.recipes.elsewhere: x\n  - critic: x\n  - _self_\n",
        **{
            "actor/dp": "defaults:\n  - ../optim@optim: x\n  - actor\n  - _self_\nkind: dp\n",
            "actor/actor": "kind: actor\nlr: 1\n",
            "optim/x": "lr: 2\n",
            "data/x": "path: p\n",
            "critic/x": "# @package recipes.critic\nkind: x\n",
        },
    )
    assert found == {
        "training_config": {"rollout": {"actor": {"kind": "dp", "lr": 1, "optim": {"lr": 2}}}, "path": "p"},
        "elsewhere": {"lr": 2},
        "critic": {"kind": "x"},
    }
    # Without any of these, the package is the group.
    found = _composed("defaults: [/hydra_config/verl/sub/x]\n", **{"sub/x": "a: 1\n"})
    assert found == {"hydra_config": {"verl": {"sub": {"a": 1}}}}


def test_a_recipe_comes_last_and_a_part_where_it_says() -> None:
    recipe = "defaults: [/hydra_config/verl/p, _self_]\na: own\nb: '${base}/${.a}'\nscale:\n  1: {num_nodes: 1}\n"
    inner = "# @package recipes\ndefaults: [_self_, q]\na: first\nc: first\n"
    found = _composed(recipe, p=inner, q="# @package recipes\na: second\nc: second\n")
    assert found == {"a": "own", "b": "${base}/${.a}", "c": "second", "scale": {"1": {"num_nodes": 1}}}


def test_optional_parts_empty_options_and_several_options() -> None:
    found = _composed(
        "defaults: [/hydra_config/verl/top]\n",
        top="# @package recipes\ndefaults:\n  - optional none: x\n  - left_out: null\n  - many@_here_: [one, two]\n",
        **{"many/one": "a: 1\nb: 1\n", "many/two": "b: 2\n"},
    )
    assert found == {"a": 1, "b": 2}


def test_a_value_that_is_open_replaces_none_and_lists_and_nulls_do() -> None:
    later = "# @package recipes\nrun:\n  name: ???\n  model_type: null\ntrainer: {list: []}\n"
    recipe = "defaults: [/hydra_config/verl/base, /hydra_config/verl/later]\nrun: {name: mine}\n"
    found = _composed(recipe, base=BASE, later=later)
    assert found == {"run": {"name": "mine", "model_type": None}, "trainer": {"devices": 8, "list": []}}
    named = "# @package recipes\nrun: {name: theirs}\n"
    recipe = "defaults: [/hydra_config/verl/named, /hydra_config/verl/later]\n"
    assert _composed(recipe, named=named, later=later)["run"] == {"name": "theirs", "model_type": None}


UNSUPPORTED: list[tuple[dict[str, str], str]] = [
    ({"p": "# @package recipes\ndefaults: [q]\n", "q": "defaults: [p]\n"}, "it names itself"),
    ({"p": "defaults: [_self_, _self_]\n"}, "its defaults have _self_ twice"),
    ({"p": "defaults: [absent]\n"}, "its defaults name 'hydra_config/verl/absent', and there is no file"),
    ({"p": "defaults: [{override x: y}]\n"}, "the keyword 'override', which is not supported"),
    ({"p": "defaults: [{x: '${y}'}]\n"}, "the interpolation 'x/${y}', which is not supported"),
    ({"p": "defaults:\n- x: ???\n"}, "its defaults leave 'x/???' open"),
    ({"p": "defaults: [{x@a:b: y}]\n"}, "its defaults have the package"),
    ({"p": "defaults: [{x: 3}]\n"}, "name no file for the group 'x'"),
    ({"p": "defaults: [[x]]\n"}, "is neither a name nor a group with a name"),
    ({"p": "defaults: {a: b}\n"}, "its defaults are not a list"),
    ({"p": "defaults: [{../x: z}]\n", "../x/z": "a: 1\n"}, "without a package"),
    ({"p": "# @package a b\na: 1\n"}, "names no package"),
    ({"p": "defaults: [{x@a: y}, {x@a: z}]\n", "x/y": "a: 1\n"}, "have 'z' where others have 'y'"),
    ({"p": "- a\n"}, "this is no mapping"),
]


def test_what_is_not_supported_is_refused_by_name() -> None:
    for parts, words in UNSUPPORTED:
        assert words in _refusal("defaults: [/hydra_config/verl/p]\n", **parts)


def test_a_composition_is_bounded() -> None:
    chain = {f"p{number}": f"defaults: [p{number + 1}]\n" for number in range(DEPTH_MAX + 2)}
    assert "lists of defaults within each other" in _refusal("defaults: [/hydra_config/verl/p0]\n", **chain)
    wide = "defaults:\n" + "".join(f"  - /hydra_config/verl/w{number}\n" for number in range(FILES_MAX + 1))
    assert f"more than {FILES_MAX} files" in _refusal(wide, **{f"w{number}": "" for number in range(FILES_MAX + 1)})


def test_a_mapping_is_laid_over_no_list() -> None:
    for below in ("[1]", "'${.listed}'"):
        part = f"# @package recipes\na: {below}\nlisted: [1]\n"
        statement = _refusal("defaults: [/hydra_config/verl/p]\na: {b: 1}\n", p=part)
        assert statement == "a: a mapping is laid over a list", below


def test_a_mapping_over_an_interpolation_is_laid_over_a_copy_of_what_it_stands_for() -> None:
    part = "limits: {low: 1, high: {most: 8}}\na: {b: '${recipes.limits}'}\nc: '${d}'\ne: '${.a}'\n"
    over = "limits: {low: 5}\na: {b: {high: {least: 2}}}\nc: {x: 1}\ne: {b: {low: 3}}\n"
    part, recipe = f"# @package recipes\n{part}", f"defaults: [/hydra_config/verl/p]\n{over}"
    assert _composed(recipe, p=part) == {
        "limits": {"low": 5, "high": {"most": 8}},
        "a": {"b": {"low": 1, "high": {"most": 8, "least": 2}}},
        "c": {"x": 1},
        "e": {"b": {"low": 3, "high": {"most": 8, "least": 2}}},
    }


def test_what_a_composition_gives_is_resolved_like_every_recipe() -> None:
    resolved = 0
    for seed in range(40):
        base = recipe_of_checkout(checkout(seed), composed_recipes.RECIPE)
        with suppress(RecipeError):
            document = resolve(RecipeSources(name="composed", base=base)).document
            assert "${" not in json.dumps(document), seed
            resolved += 1
    assert resolved > 30


def test_a_recipe_is_found_below_each_of_the_roots() -> None:
    for root, base in (
        ("recipes_collection/recipes/", "fine-tuning/a"),
        ("hyperpod_recipes/recipes_src/", "fine-tuning/a.yaml"),
        ("recipes/", "recipes/fine-tuning/a"),
    ):
        files = {f"{root}fine-tuning/a.yaml": "# kept\nx: 1 # as it is\n"}
        assert recipe_of_checkout(files, base).text == "# kept\nx: 1 # as it is\n", (root, base)
    with pytest.raises(PlaceError, match="there is none of recipes_collection/recipes/"):
        recipe_of_checkout({"x.yaml": ""}, "a")


def test_a_near_miss_names_the_nearest_recipe() -> None:
    files = {f"{ROOT}{RECIPE}.yaml": "x: 1\n", f"{PARTS}p.yaml": ""}
    for base, words in (
        ("../outside", "not a path below the checkout"),
        ("fine-tuning/../../x", "not a path below the checkout"),
        ("fine-tuning/lama/verl-dpo-llama-8b-5k-lora", f"did you mean {RECIPE}?"),
        ("zzz", "`muster recipe list` shows"),
    ):
        with pytest.raises(PlaceError) as caught:
            recipe_of_checkout(files, base)
        assert words in str(caught.value), base
    files = {f"{ROOT}{name}.yaml": "x: 1\n" for name in ("z/llama", "llama")}
    with pytest.raises(PlaceError, match="did you mean llama"):
        recipe_of_checkout(files, "llam")
