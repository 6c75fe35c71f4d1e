"""Interpolations: what OmegaConf gives for each form, and what is refused."""

import pytest
from pydantic import JsonValue

from muster.options.recipes.contract.expressions.interpolation import interpolated

RECIPE: dict[str, JsonValue] = {
    "run": {"name": "first", "nodes": 3, "key": "name", "path": "model.layers", "none": None, "open": "???"},
    "model": {"layers": 24, "names": ["a", "b", {"c": 5}], "x-y": 1, "small": 1e-06, "yes": True},
}


def value_of(text: JsonValue) -> JsonValue:
    found = interpolated({**RECIPE, "here": {"value": text, "beside": 7}}, {})
    assert not found.faults, text
    here = found.document["here"]
    assert isinstance(here, dict)
    return here["value"]


def faults(document: dict[str, JsonValue]) -> list[str]:
    return [f"{'.'.join(map(str, one.path))}: {one.found}; {one.remedy}" for one in interpolated(document, {}).faults]


MEANINGS: dict[str, JsonValue] = {
    "${ run.name }": "first",
    "${run[nodes]}": 3,
    "${run.none}": None,
    "x ${run.open}": "???",
    "${run.open.more}": "???",
    "${model.names[1]}": "b",
    "${model.names.-1.c}": 5,
    "${model.x-y}": 1,
    "${run.${run.key}}": "first",
    "${${run.path}}": 24,
    "${..run.nodes}": 3,
    "$5 ${.beside}/${model.yes} ${run.none} ${model.small}$": "$5 7/True None 1e-06$",
    r"a\b ${run.nodes}": r"a\b 3",
    r"\\${run.name}": "\\first",
    r"\\\${run.name}": r"\${run.name}",
    "${oc.select:run.nam,other}": "other",
    "${oc.select:run.nam}": None,
    "${oc.select:run.open,other}": "other",
    "${oc.select:run.name.more,other}": "other",
    "${oc.select:.beside,1}": 7,
    "${oc.select:run.nam,1_000}": 1000,
    "${oc.select:run.nam,-1.5e-3}": -0.0015,
    "${oc.select:run.nam,TRUE}": True,
    "${oc.select:run.nam,null}": None,
    "${oc.select:run.nam,None}": "None",
    "${oc.select:run.nam,}": "",
    "${oc.select:run.nam,'1'}": "1",
    '${oc.select:run.nam,"${run.nodes}"}': "3",
    r"${oc.select:run.nam,'it\'s'}": "it's",
    r"${oc.select:run.nam,a\, b}": "a, b",
    "${oc.select:run.nam,s3://b/${run.name}}": "s3://b/first",
    "${oc.select:run.nam,[1, a, [true]]}": [1, "a", [True]],
    "${oc.select:run.nam,{a: 1, b: {c: ${run.nodes}}}}": {"a": 1, "b": {"c": 3}},
    "${oc.create:${model.names}}": ["a", "b", {"c": 5}],
    "${multiply: 0.5 , ${run.nodes} }": 1.5,
    "${divide_floor:-7,2}": -4,
    "${divide_ceil:${multiply:${run.nodes},3},2}": 5,
    "${add:1,2,0.5}": 3.5,
    "${add:}": 0,
}


def test_an_interpolation_means_what_it_means_in_omegaconf() -> None:
    found = {text: value_of(text) for text in MEANINGS}
    assert {text: repr(value) for text, value in found.items()} == {text: repr(one) for text, one in MEANINGS.items()}


REFUSED = {
    "${run.nmae}": "there is no run.nmae; did you mean run.name?",
    "${cluster}": "there is no cluster; set cluster under `inputs`, or set this value itself",
    "${run.name.x}": "there is no run.name.x; add run.name.x",
    "${model.names.7}": "there is no model.names.7",
    "${model.names.a}": "a, which is no index of a list",
    "${...a}": "...a, which leads out of the recipe",
    "x ${model}": "a mapping as a part of a text",
    "x ${oc.select:model}": "a mapping as a part of a text",
    '${oc.select:run.nam,"${model}"}': "a mapping as a part of a text",
    "${run.${run.nodes}}": "as a part of a path that is no text",
    "${here}": "an interpolation of what it lies in",
    "${multiply:a,2}": "text in ${multiply:…}; it takes 2 numbers",
    "${multiply:true,2}": "true or false in ${multiply:…}",
    "${multiply:1e308,1e308}": "inf as a result",
    "${multiply:1}": "${multiply:…} of 1 values",
    "${add:${model.names}}": "a list of 3 values in ${add:…}",
    "${divide_ceil:1,0}": "a division by zero in ${divide_ceil:…}",
    "${divide_floor:1e308,1e-308}": "a result of ${divide_floor:…} that is too large",
    "${oc.select:run.nam,nan}": "nan as a result",
    "${oc.select:1}": "${oc.select:…} without a path",
    "${": "a closing } is missing",
    "${oc.create:'a: 1'}": "text is not read as YAML; write {a: 1}",
    "${now:%Y}": "an unknown resolver, now; the resolvers are multiply, divide_ceil, divide_floor, add, oc.create,",
    "${run.name": "a closing } is missing",
    "${run..name}": "an interpolation that cannot be read: ",
}


def test_what_cannot_be_computed_is_refused() -> None:
    for text, words in REFUSED.items():
        [problem] = faults({**RECIPE, "here": {"value": text, "beside": 7}})
        assert problem.startswith("here.value: "), text
        assert words in problem, text


def test_resolvers_that_reach_outside_are_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-value")
    for name in ("oc.env", "oc.decode", "oc.deprecated", "oc.dict.keys", "oc.dict.values"):
        [problem] = faults({"a": f"x ${{{name}:CANARY}} ${{oc.env:CANARY}}"})
        assert problem.startswith(f"a: ${{{name}:…}}, which is not allowed; "), name
        assert "canary-value" not in problem


def test_a_cycle_is_one_problem_wherever_it_is_entered() -> None:
    words = "a: a cycle of interpolations: a -> b -> c -> a; break it: write a value"
    assert faults({"d": "${b}", "c": "${a}", "b": "x${c}", "a": "${oc.select:b}"}) == [words]
    assert faults({"a": "${a}"}) == ["a: a cycle of interpolations: a -> a; break it: write a value"]
    # Nor is a value reported that depends on a faulty one.
    assert len(faults({"a": "${b}", "b": "${add:${c},1}", "c": "${nothing}"})) == 1


def test_a_chain_may_be_longer_than_python_calls_functions() -> None:
    chain: dict[str, JsonValue] = {f"a{number}": f"${{a{number + 1}}}" for number in range(3_000)}
    assert set(interpolated({**chain, "a3000": "x"}, {}).document.values()) == {"x"}


def test_what_omegaconf_reads_is_bounded() -> None:
    long = {f"a{number}": f"${{oc.select:b,{number}{'x' * 2_000}}}" for number in range(20)}
    assert {one.split("; ")[0].split(": ")[1] for one in faults({**long})} == {"more interpolations than can be read"}
    [problem] = faults({"a": "${oc.select:b," + "[" * 40 + "]" * 40 + "}"})
    assert "more than 32 levels of nesting" in problem
    # A simple interpolation needs no grammar, whatever else the text has.
    assert not faults({"a": "x" * 200_000 + "${b}", "b": 1})


def test_repetition_is_counted() -> None:
    texts: dict[str, JsonValue] = {"a0": "x" * 1_000}
    texts |= {f"a{level}": f"${{a{level - 1}}}" * 10 for level in range(1, 8)}
    assert any("a text that interpolations make too long" in problem for problem in faults(texts))
    lists: dict[str, JsonValue] = {"a0": [1] * 10}
    lists |= {f"a{level}": [f"${{a{level - 1}}}"] * 10 for level in range(1, 8)}
    assert any("more than 50,000 values" in problem for problem in faults(lists))


def test_a_recipe_refers_to_itself_below_its_root_or_to_inputs() -> None:
    document: dict[str, JsonValue] = {
        "a": {"x": "${recipes.b.c}", "y": ["${..x}", {"z": "${...x}"}]},
        "b": {"c": 1, "d": "${oc.select:recipes.b.c,2}", "e": "${training.b.c}"},
        "f": "${recipes.base_dir}/${.g}",
        "g": "c",
    }
    found = interpolated(document, {"base_dir": "/${x}", "unused": 1})
    assert found.document == {
        "a": {"x": 1, "y": [1, {"z": 1}]},
        "b": {"c": 1, "d": 1, "e": 1},
        "f": "/${x}/c",
        "g": "c",
    }
    assert found.used == {"base_dir"}
    # A part of a mapping refers to the mapping, and a section may have the root's name.
    assert interpolated({"m": "${n}", "n": {"a": 1, "b": "${m.a}"}}, {}).document["m"] == {"a": 1, "b": 1}
    assert interpolated({"a": "${recipes.b}", "recipes": {"b": 1}, "b": 2}, {}).document["a"] == 1
