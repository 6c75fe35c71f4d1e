"""Recipes that are composed of other files, as in a checkout of the public recipes."""

from __future__ import annotations

import posixpath
from typing import Any

import pytest

from muster.contract.recipe.checkout_recipe import checkout_catalog, checkout_recipe
from muster.contract.recipe.hydra_defaults import DEPTH_MAX, FILES_MAX
from muster.contract.recipe.places import PlaceError
from muster.contract.recipe.recipe_text import load_recipe_text
from tests.support.recipe_readers import MemoryCheckout

ROOT = "hyperpod_recipes/recipes_src/"
PARTS = f"{ROOT}fine-tuning/hydra_config/verl/"
RECIPE = "fine-tuning/llama/verl-dpo-llama-8b-5k-lora"


def _composed(recipe: str, **parts: str) -> dict[str, object]:
    files = {
        f"{ROOT}{RECIPE}.yaml": recipe,
        **{posixpath.normpath(f"{PARTS}{name}.yaml"): text for name, text in parts.items()},
    }
    return dict(load_recipe_text(checkout_recipe(MemoryCheckout(files), "there", RECIPE).text))


def _refusal(recipe: str, **parts: str) -> str:
    with pytest.raises(PlaceError) as caught:
        _composed(recipe, **parts)
    return caught.value.statement


BASE = "# @package recipes\nrun:\n  name: ???\n  model_type: verl\ntrainer: {devices: 8, list: [1, 2]}\n"


def test_a_recipe_without_defaults_is_the_text_as_it_is() -> None:
    text = "# kept\nrun:\n  name: x # as it is\n"
    found = checkout_recipe(MemoryCheckout({f"{ROOT}{RECIPE}.yaml": text}), "there", RECIPE)
    assert (found.text, found.place) == (text, f"there/{ROOT}{RECIPE}.yaml")


def test_absolute_parts_come_first_and_the_recipe_over_them() -> None:
    recipe = "defaults: [/hydra_config/verl/base, _self_]\ntrainer: {devices: 4, list: [3]}\nrun: {name: mine}\n"
    assert _composed(recipe, base=BASE) == {
        "run": {"name": "mine", "model_type": "verl"},
        "trainer": {"devices": 4, "list": [3]},
    }


def test_without_self_the_recipe_comes_last_and_with_it_where_it_stands() -> None:
    part = "# @package recipes\na: part\n"
    for defaults, expected in (("[/hydra_config/verl/p]", "own"), ("[/hydra_config/verl/p, _self_]", "own")):
        assert _composed(f"defaults: {defaults}\na: own\n", p=part)["a"] == expected
    # The recipe is always laid over the package `recipes`; within a part the order counts.
    inner = "# @package recipes\ndefaults: [_self_, q]\na: first\n"
    assert _composed("defaults: [/hydra_config/verl/p]\n", p=inner, q="# @package recipes\na: second\n") == {
        "a": "second"
    }


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


def test_the_default_package_is_the_group() -> None:
    found = _composed("defaults: [/hydra_config/verl/sub/x]\n", **{"sub/x": "a: 1\n"})
    assert found == {"hydra_config": {"verl": {"sub": {"a": 1}}}}


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
    assert _composed("defaults: [/hydra_config/verl/base]\n", base=BASE)["run"] == {"name": "???", "model_type": "verl"}


def test_interpolations_and_whole_number_keys_are_kept() -> None:
    recipe = (
        "defaults: [/hydra_config/verl/base]\nrun: {name: mine, results_dir: '${base_results_dir}/${.name}'}\n"
        "scale_config:\n  1: {num_nodes: 1}\n"
    )
    files = {f"{ROOT}{RECIPE}.yaml": recipe, f"{PARTS}base.yaml": BASE}
    text = checkout_recipe(MemoryCheckout(files), "there", RECIPE).text
    found: Any = load_recipe_text(text)
    assert found["run"]["results_dir"] == "${base_results_dir}/${.name}"
    assert "\n  1:" in text


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"p": "# @package recipes\ndefaults: [q]\n", "q": "defaults: [p]\n"}, "it names itself"),
        ({"p": "defaults: [_self_, _self_]\n"}, "its defaults have _self_ twice"),
        ({"p": "defaults: [absent]\n"}, "its defaults name 'hydra_config/verl/absent', and there is no file"),
        ({"p": "defaults: ['override /x: y']\n"}, "its defaults name"),
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
        ({"p": "a: 1\na: 2\n"}, "appears twice"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(parts: dict[str, str], words: str) -> None:
    statement = _refusal("defaults: [/hydra_config/verl/p]\n", **parts)
    assert words in statement


def test_a_composition_is_bounded() -> None:
    chain = {f"p{number}": f"defaults: [p{number + 1}]\n" for number in range(DEPTH_MAX + 2)}
    assert "lists of defaults within each other" in _refusal("defaults: [/hydra_config/verl/p0]\n", **chain)
    wide = "defaults:\n" + "".join(f"  - /hydra_config/verl/w{number}\n" for number in range(FILES_MAX + 1))
    assert f"more than {FILES_MAX} files" in _refusal(wide, **{f"w{number}": "" for number in range(FILES_MAX + 1)})


@pytest.mark.parametrize(("below", "over"), [("[1]", "{b: 1}"), ("{b: 1}", "[1]")])
def test_a_mapping_and_a_list_are_not_laid_over_each_other(below: str, over: str) -> None:
    part = f"# @package recipes\na: {below}\n"
    statement = _refusal(f"defaults: [/hydra_config/verl/p]\na: {over}\n", p=part)
    assert statement.startswith("a: a ")
    assert "is laid over a" in statement


def test_a_mapping_is_not_laid_over_an_interpolation() -> None:
    statement = _refusal("defaults: [/hydra_config/verl/p]\na: {b: 1}\n", p="# @package recipes\na: ${other}\n")
    assert "a mapping is laid over the interpolation ${other}" in statement


@pytest.mark.parametrize(
    ("root", "base"),
    [
        ("recipes_collection/recipes/", "fine-tuning/a"),
        ("hyperpod_recipes/recipes_src/", "fine-tuning/a.yaml"),
        ("recipes/", "fine-tuning/a"),
        ("recipes/", "recipes/fine-tuning/a"),
    ],
)
def test_a_recipe_is_found_below_each_of_the_roots(root: str, base: str) -> None:
    checkout = MemoryCheckout({f"{root}fine-tuning/a.yaml": "x: 1\n"})
    assert checkout_recipe(checkout, "there", base).text == "x: 1\n"


@pytest.mark.parametrize(
    ("base", "words"),
    [
        ("../outside", "not a path below the checkout"),
        ("/etc/passwd", "not a path below the checkout"),
        ("fine-tuning/../../x", "not a path below the checkout"),
        ("fine-tuning/lama/verl-dpo-llama-8b-5k-lora", f"did you mean {RECIPE}?"),
        ("verl-dpo-llama-8b-5k-lora", f"did you mean {RECIPE}?"),
        ("fine-tuning/llama/verl-dpo-llama-8b-4k-lora", f"did you mean {RECIPE}?"),
        ("zzz", "`muster recipe list` shows"),
    ],
)
def test_a_near_miss_names_the_nearest_recipe(base: str, words: str) -> None:
    checkout = MemoryCheckout({f"{ROOT}{RECIPE}.yaml": "x: 1\n", f"{PARTS}p.yaml": ""})
    with pytest.raises(PlaceError) as caught:
        checkout_recipe(checkout, "there", base)
    assert words in str(caught.value)


def test_a_folder_without_recipes_says_where_they_would_be() -> None:
    with pytest.raises(PlaceError, match=r"there has no recipes: there is none of recipes_collection/recipes/"):
        checkout_recipe(MemoryCheckout({"x.yaml": ""}), "there", "a")


def test_the_catalog_says_what_paths_and_first_keys_say() -> None:
    checkout = MemoryCheckout(
        {
            f"{ROOT}{RECIPE}.yaml": 'display_name: "Llama 8B DPO"\n'
            "instance_types: ['ml.g5.12xlarge', ml.g6.12xlarge]\n",
            f"{ROOT}fine-tuning/qwen-0_7_0/llmft_qwen_seq8k_gpu_sft_fft.yaml": "instance_types:\n"
            "- ml.p5.48xlarge\nrun: {}\n",
            f"{ROOT}evaluation/open-source/judge.yaml": "run: {}\n",
            f"{ROOT}training/llama/llama_70b_pretrain.yaml": "",
            f"{PARTS}p.yaml": "",
        }
    )
    evaluation, lora, full, training = checkout_catalog(checkout, "there").recipes
    assert (evaluation.name, evaluation.technique) == ("evaluation/open-source/judge", "Evaluation")
    assert (lora.title, lora.family, lora.technique, lora.training_type) == ("Llama 8B DPO", "llama", "DPO", "LORA")
    assert (lora.sequence_length, lora.instance_types) == ("5K", ("ml.g5.12xlarge", "ml.g6.12xlarge"))
    assert (full.family, full.technique, full.training_type) == ("qwen", "SFT", "FULL")
    assert (full.sequence_length, full.instance_types) == ("8K", ("ml.p5.48xlarge",))
    assert (training.technique, training.family) == ("CPT", "llama")
