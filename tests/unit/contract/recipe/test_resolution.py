"""Resolving a recipe: placeholders, the merge of all sources, interpolations, and every problem at once."""

import json
import re
from typing import Any, NoReturn

import pytest

from muster.contract.errors import RecipeError
from muster.contract.spec.recipe_reference import Origin
from muster.options.recipes.contract.merging import Merged, merge
from muster.options.recipes.contract.recipe_problems import Problems
from muster.options.recipes.contract.resolution import resolve
from muster.options.recipes.contract.resolved_recipe import Path, RecipeSources, ResolvedRecipe, SourceText

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
    again = resolve(sources(None, None, found.to_yaml()))
    assert (again.document, again.digest) == (found.document, found.digest)
    return found


def problems(*arguments: object, **values: object) -> list[str]:
    with pytest.raises(RecipeError, match=r"^The recipe has \d+ problems?; nothing was created\.") as refused:
        resolve(sources(*arguments, **values))  # type: ignore[arg-type]
    return [str(problem) for problem in refused.value.problems]


def nested(levels: int) -> object:
    return [nested(levels - 1)] if levels else 1


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
    assert found.named["learning_rate"] == (("training_config", "optim", "lr"),)
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
    assert len(origins) == 15
    assert {place: origin for place, origin in origins.items() if origin != "base"} == {
        "run.name": "inputs",
        "run.path": "inputs",
        "training_config.optim.lr": "values",
        "training_config.optim.kind": "file",
        "training_config.max_steps": "file",
        "training_config.save_steps": "overrides",
    }


def test_every_problem_is_reported_at_once() -> None:
    optim = "training_config.optim"
    assert problems(
        recipe="trainig_config: 1",
        overrides={"lr": 1, "kindd": 2, "training_config.optim.betas.5": 1},
        inputs={"nam": 1},
        values={"save_steps": 100, "learning_rate": 5.0},
    ) == [
        "recipe.trainig_config (file): unknown name; did you mean training_config?",
        "recipe.kindd (overrides): unknown name; did you mean training_config.optim.kind?",
        f"recipe.lr (overrides): it could be {optim}.lr, training_config.sched.lr; write one of these paths",
        "recipe.training_config.optim.betas.5 (overrides): no such place in the list; allowed: 0 to 1",
        "recipe.inputs.nam: there is no placeholder {{nam}}; did you mean name?",
        "recipe.training_config.optim.lr (values): found 5.0; allowed: 1e-07 to 0.001; lower it",
        "recipe.training_config.save_steps (values): found 100; allowed: at most max_steps, 10",
    ]


def test_text_of_an_input_is_no_interpolation_and_no_placeholder() -> None:
    found = resolved(inputs={"name": "${oc.env:HOME} {{name}}"}).document
    assert found["run"] == {"name": "${oc.env:HOME} {{name}}", "nodes": 3, "path": "s3://${oc.env:HOME} {{name}}/x"}


def test_values_behind_an_interpolation_are_those_after_the_whole_source() -> None:
    given = [("actor", {"lr": 5}), ("ref", {"n": 3})]
    for overrides in (dict(given), dict(reversed(given))):
        found = alone("actor: {lr: 1, n: 2}\nref: ${.actor}\nlast: ${ref}", overrides=overrides)
        assert found == {"actor": {"lr": 5, "n": 2}, "ref": {"lr": 5, "n": 3}, "last": {"lr": 5, "n": 3}}, overrides


SIMPLE = BASE.replace("again: ${training_config.optim}", "")
ADDRESSES: list[tuple[object, dict[str, object]]] = [
    ({"training_config.optim.kind": "sgd"}, {"training_config.optim.kind": "sgd"}),
    ({"training_config": {"optim.kind": "sgd"}}, {"training_config.optim.kind": "sgd"}),
    ({"optim.kind": "sgd"}, {"training_config.optim.kind": "sgd"}),
    ({"training_config": {"warmup": 3}}, {"training_config.sched.warmup": 3}),
    ({"training_config": {"learning_rate": 1e-4}}, {"training_config.optim.lr": 1e-4}),
    ({"training_config.optim.betas.1": 0.5}, {"training_config.optim.betas": [0.9, 0.5]}),
    ({"override_config": {"a": {"b": 1}}}, {"training_config.override_config": {"a": {"b": 1}}}),
    ({"training_config.override_config.a.b": 1}, {"training_config.override_config": {"a": {"b": 1}}}),
    ({"training_config": {"override_config": {"a.b": 1}}}, {"training_config.override_config": {"a.b": 1}}),
    ({"training_config": {"optim": {}}}, {}),
    ({"training_config.max_steps": "???"}, {}),
    ({"training_config": {"sched": "none"}}, {"training_config.sched": "none"}),
]


def test_a_value_is_addressed_by_its_path_a_name_or_the_end_of_a_path() -> None:
    for overrides, changed in ADDRESSES:
        expected = resolved(SIMPLE).document
        for place, value in changed.items():
            *above, last = place.split(".")
            holder: Any = expected
            for part in above:
                holder = holder[part]
            holder[last] = value
        assert resolved(SIMPLE, overrides=overrides).document == expected, overrides
    dotted = "layers: {model.embed: {dim: 1}, other: 2}"
    assert alone(dotted, overrides={"layers.model.embed.dim": 3})["layers"] == {"model.embed": {"dim": 3}, "other": 2}


LR, SAVE = "training_config.optim.lr", "training_config.save_steps"
WRONG: list[tuple[object, str]] = [
    ({"training_config": {"lr": 1}}, f"recipe.training_config.lr (overrides): it could be {LR},"),
    ({"run": {"kind": 1}}, "recipe.run.kind (overrides): unknown name; did you mean training_config.optim.kind?"),
    ({"zzzz": 1}, "recipe.zzzz (overrides): unknown name; the recipe has no such value; `muster recipe show`"),
    ({"run.nodes": 1, "run": {"nodes": 2}}, "recipe.run.nodes (overrides): set twice, to different values;"),
    (
        {"training_config.optim": None, "training_config": {"optim": {"kind": 1}}},
        "recipe.training_config.optim.kind (overrides): set twice, also by training_config.optim;",
    ),
    ({"save_steps": "6"}, f"recipe.{SAVE} (overrides): found '6'; allowed: a whole number; write a"),
    ({"save_steps": 6.0}, f"recipe.{SAVE} (overrides): found 6.0; allowed: a whole number"),
    ({"learning_rate": -1}, "found -1; allowed: 1e-07 to 0.001; raise it"),
    ({"run.name": None}, "recipe.run.name: missing; it is required: set name under `values`, or under `inputs`"),
    ({"sched.lr": float("inf")}, "recipe.training_config.sched.lr (overrides): found inf; JSON cannot"),
    ({"sched.lr": "\ud800"}, "recipe.training_config.sched.lr (overrides): it contains a lone surrogate;"),
    ({"a" * 300: 1}, "recipe.overrides: a name of 300 characters; allowed: 256"),
    ({"run": {"nodes": 10**400}}, "recipe.overrides: a whole number of more than 400 digits; write it in quotes"),
    ({"betas": nested(40)}, "recipe.overrides: more than 32 levels of nesting; flatten it"),
    # Two levels of the recipe are above the value.
    ({"betas": nested(31)}, "more than 32 levels of nesting"),
]


def test_a_wrong_override_is_one_problem() -> None:
    for overrides, words in WRONG:
        [problem] = problems(SIMPLE, overrides=overrides)
        assert words in problem


def test_an_input_and_a_directly_set_value_fill_parts_of_texts() -> None:
    text = "a: '{{x}}-{{ y }}'\nb: '{{y}}'\nc: \"'{{x}}'\"\nd: 'plain \\{{x}}'\ne: '{{ m[0] }} {%'"
    found = alone(text, inputs={"x": 1, "y": True}, values={"y": False})
    assert found == {"a": "1-false", "b": False, "c": 1, "d": "plain {{x}}", "e": "{{ m[0] }} {%"}


UNFILLED: list[tuple[str, dict[str, object], str]] = [
    ("a: '{{x}}'", {}, r"recipe.a (file): {{x}} has no value; set x under `inputs`; for plain text, write \{{x}}"),
    ("a: '{{x}} b'", {"x": None}, "recipe.a (file): {{x}} as a part of a text, but it is no value"),
    ("a: '{{x}} b'", {"x": [1]}, "{{x}} as a part of a text, but it is a list of 1 value"),
    ("a: '${b.{{x}}}'\nb: {c: 1}", {"x": "c"}, "{{x}} in a text that also has an interpolation; make two values"),
    ("a: '{{x}}{b} ${b}'\nb: 1", {"x": "$"}, "{{x}} in a text that also has an interpolation; make two values"),
    ("a: 1", {"x": 1}, "recipe.inputs.x: there is no placeholder {{x}}; set it under `overrides`"),
]


def test_a_placeholder_that_cannot_be_filled_is_a_problem() -> None:
    for text, inputs, words in UNFILLED:
        [problem] = problems(None, None, text, inputs=inputs)
        assert words in problem
    assert alone("a: '{{x}}{b}'\nb: '${a}'", inputs={"x": "$"}) == {"a": "${b}", "b": "${b}"}


def test_the_hub_decides_some_values() -> None:
    decided = "the recipe of the hub decides this value"
    base = "run: {model_type: verl, name: a}\nmodel: {model_name_or_path: '{{model_name_or_path}}', path: x}"
    spec = {"model_name_or_path": {"default": "weights"}}
    values = {"recipe": "run: {model_type: nova}", "overrides": {"model_name_or_path": "mine"}, "hub_model": "some"}
    kind, place = problems(base, spec, **values)
    assert kind.startswith(f"recipe.run.model_type (file): {decided};")
    assert place.startswith(f"recipe.model.model_name_or_path (overrides): {decided};")
    assert resolved(base, spec, recipe="run: {model_type: verl}", hub_model="some").digest
    assert resolved(base, spec, recipe="run: {model_type: nova}").digest  # without a hub
    # Nor can what holds such a value be replaced as a whole.
    [problem] = problems("run: {model_type: verl, name: a}", None, recipe="run: null", hub_model="some")
    assert problem.startswith("recipe.run (file): the recipe of the hub decides run.model_type;")


def test_lengths_fit_the_sequence_length_of_the_recipe() -> None:
    allowed = "allowed: at most the recipe's sequence length, 4,096"
    base = "a: {max_prompt_length: '{{max_prompt_length}}', max_response_length: 3000, dataset_max_len: 5000}"
    spec = {"max_prompt_length": {"default": 2000}, "max_response_length": {}, "dataset_max_len": {}}
    assert problems(base, spec, sequence_length=4096) == [
        f"recipe.a.max_prompt_length (default): max_prompt_length + max_response_length is 5,000; {allowed}",
        f"recipe.a.dataset_max_len (base): found 5,000; {allowed}",
    ]
    assert resolved(base, spec).digest


def test_secrets_are_not_shown() -> None:
    base = "a: {api_key: '{{api_key}}', environment: {X: 1}, tokens: 5, hf_token: 1}"
    spec = {name: {"type": "boolean"} for name in ("api_key", "X", "tokens", "hf_token")}
    found = problems(base, spec, values={"api_key": "s3cret", "X": "s3cret", "tokens": "hf_s3cret", "hf_token": 12345})
    assert len(found) == 4
    assert not any("s3cret" in problem or "12345" in problem for problem in found)
    assert any("found a whole number (not shown)" in problem for problem in found)


def test_without_a_whole_recipe_there_is_a_problem() -> None:
    assert problems(None, None) == ["recipe: there is none; name a file, a base or a model of the hub"]
    [problem] = problems(None, None, "defaults: [/hydra_config/llmft/default, _self_]\nrun: {name: a}")
    assert "its `defaults` are other files, which are not here" in problem


def test_a_placeholder_needs_no_value_where_a_stronger_source_sets_its_place() -> None:
    base = "run: {name: '{{name}}', path: 's3://{{folder}}/x'}"
    assert resolved(base, None, recipe="run: {name: a, path: b}").document == {"run": {"name": "a", "path": "b"}}
    [problem] = problems(base, None, overrides={"run.name": "a"})
    assert problem.startswith("recipe.run.path (base): {{folder}} has no value; set folder under `inputs`")
    [problem, *_] = problems(base, None, overrides={"run.name": "a", "run.folder": "b"})
    assert problem.startswith("recipe.run.folder (overrides)")
    found = resolved(base, None, overrides={"name": "a", "folder": "b"})
    assert found.document["run"] == {"name": "a", "path": "s3://b/x"}


def test_a_recipe_that_could_not_be_read_again_is_refused() -> None:
    lines = "\n".join(f"a{number}: ${{b}}" for number in range(4_000))
    for value in ("9" * 399, "x" * 500, '"' + "\\u2028" * 140 + '"', "[" + "'', " * 20 + "]"):
        [problem] = problems(None, None, f"b: {value}\n{lines}")
        assert re.search("more than (1,048,576 bytes when it is resolved|50,000)", problem), value


class _Origins(dict[Path, Origin]):
    """Origins that are looked up: going through all of them for each value takes minutes for a large recipe."""

    def __iter__(self) -> NoReturn:
        raise AssertionError


def test_a_replaced_part_loses_the_sources_of_its_own_values_alone() -> None:
    kept, lost = ("kept", "a"), [("part", "a"), ("part", "b", 0), ("part", "b")]
    origins = _Origins(dict.fromkeys([kept, *lost], Origin.INPUT))
    merged = Merged({"kept": {"a": 1}, "part": {"a": 1, "b": [1]}}, Origin.BASE, origins, {})
    merge(merged, {"part": 2}, Origin.FILE, Problems())
    assert merged.document == {"kept": {"a": 1}, "part": 2}
    assert merged.origins == {kept: Origin.INPUT, ("part",): Origin.FILE}
