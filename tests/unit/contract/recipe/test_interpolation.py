"""Interpolations: what OmegaConf gives for each form, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import JsonValue

from muster.contract.recipe.expressions.interpolation import CHAIN_MAX, interpolated

RECIPE: dict[str, JsonValue] = {
    "run": {"name": "first", "nodes": 3, "key": "name", "path": "model.layers", "none": None, "open": "???"},
    "model": {"layers": 24, "names": ["a", "b", {"c": 5}], "x-y": 1, "small": 1e-06, "yes": True},
}

UNREADABLE = "an interpolation that cannot be read:"
PLAIN = r"for ${ as plain text, write \${"
RESOLVERS = "multiply, divide_ceil, divide_floor, add, oc.create, oc.select"


def value_of(text: JsonValue) -> JsonValue:
    found = interpolated({**RECIPE, "here": {"value": text, "beside": 7}}, {})
    assert not found.faults
    here = found.document["here"]
    assert isinstance(here, dict)
    return here["value"]


def faults(document: dict[str, JsonValue]) -> list[str]:
    return [f"{'.'.join(map(str, one.path))}: {one.found}; {one.remedy}" for one in interpolated(document, {}).faults]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${run.name}", "first"),
        ("${ run.name }", "first"),
        ("${run.nodes}", 3),
        ("${run[nodes]}", 3),
        ("${run.none}", None),
        ("${run.open}", "???"),
        ("x ${run.open}", "???"),
        ("${run.open.more}", "???"),
        ("${model.names}", ["a", "b", {"c": 5}]),
        ("${model.names.0}", "a"),
        ("${model.names[1]}", "b"),
        ("${model.names.-1.c}", 5),
        ("${model.x-y}", 1),
        ("${run.${run.key}}", "first"),
        ("${${run.path}}", 24),
        ("${.beside}", 7),
        ("${..run.nodes}", 3),
        ("${.beside}/${run.name}", "7/first"),
        ("${model.yes} ${run.none} ${model.small}", "True None 1e-06"),
        ("$5 ${run.nodes}$", "$5 3$"),
        (r"\${run.name}", "${run.name}"),
        (r"\\${run.name}", "\\first"),
        (r"\\\${run.name}", r"\${run.name}"),
        (r"a\b ${run.nodes}", r"a\b 3"),
        ("{run.name}", "{run.name}"),
        ("${oc.select:run.name}", "first"),
        ("${oc.select:run.name,other}", "first"),
        ("${oc.select:run.nam,other}", "other"),
        ("${oc.select:run.nam}", None),
        ("${oc.select:run.none,other}", None),
        ("${oc.select:run.open,other}", "other"),
        ("${oc.select:run.name.more,other}", "other"),
        ("${oc.select:.beside,1}", 7),
        ("${oc.select:run.nam, ${run.nodes}}", 3),
        ("${oc.select:run.nam,1}", 1),
        ("${oc.select:run.nam,1_000}", 1000),
        ("${oc.select:run.nam,-1.5e-3}", -0.0015),
        ("${oc.select:run.nam,1.}", 1.0),
        ("${oc.select:run.nam,TRUE}", True),
        ("${oc.select:run.nam,null}", None),
        ("${oc.select:run.nam,None}", "None"),
        ("${oc.select:run.nam,'a, b'}", "a, b"),
        ("${oc.select:run.nam,'1'}", "1"),
        ('${oc.select:run.nam,"${run.nodes}"}', "3"),
        (r"${oc.select:run.nam,'it\'s'}", "it's"),
        (r"${oc.select:run.nam,a\, b}", "a, b"),
        ("${oc.select:run.nam,}", ""),
        ("${oc.select:run.nam,/opt/ml/a-b.c}", "/opt/ml/a-b.c"),
        ("${oc.select:run.nam,s3://b/${run.name}}", "s3://b/first"),
        ("${oc.select:run.nam,a b}", "a b"),
        ("${oc.select:run.nam,[1, a, [true]]}", [1, "a", [True]]),
        ("${oc.select:run.nam,{a: 1, b: {c: ${run.nodes}}}}", {"a": 1, "b": {"c": 3}}),
        ("${oc.create:{a: 1, b: [${run.name}]}}", {"a": 1, "b": ["first"]}),
        ("${oc.create:${model.names}}", ["a", "b", {"c": 5}]),
        ("${multiply:${run.nodes},4}", 12),
        ("${multiply: 0.5 , ${run.nodes} }", 1.5),
        ("${divide_ceil:7,2}", 4),
        ("${divide_floor:-7,2}", -4),
        ("${divide_ceil:${multiply:${run.nodes},3},2}", 5),
        ("${add:1,2,0.5}", 3.5),
        ("${add:}", 0),
        ("rank ${add:1,1} of ${run.nodes}", "rank 2 of 3"),
    ],
)
def test_an_interpolation_means_what_it_means_in_omegaconf(text: str, value: JsonValue) -> None:
    found = value_of(text)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("${run.nmae}", "${run.nmae}, but there is no run.nmae; did you mean run.name?"),
        ("${cluster}", "${cluster}, but there is no cluster; set cluster under `inputs`, or set this value itself"),
        ("${run.name.x}", "${run.name.x}, but there is no run.name.x; add run.name.x, or set this value itself"),
        (
            "${model.names.7}",
            "${model.names.7}, but there is no model.names.7; add model.names.7, or set this value itself",
        ),
        ("${model.names.a}", "a, which is no index of a list; correct the path"),
        ("${...a}", "...a, which leads out of the recipe; correct the path"),
        ("x ${model}", "a mapping as a part of a text; refer to one of its values"),
        ("${run.${run.nodes}}", "an interpolation as a part of a path that is no text; refer to a text"),
        ("${here}", "an interpolation of what it lies in; refer to a smaller part"),
        ("${multiply:a,2}", "text in ${multiply:…}; it takes 2 numbers"),
        ("${multiply:true,2}", "true or false in ${multiply:…}; it takes 2 numbers"),
        ("${multiply:1}", "${multiply:…} of 1 values; it takes 2 numbers"),
        ("${add:${model.names}}", "a mapping or a list in ${add:…}; it takes numbers"),
        ("${divide_ceil:1,0}", "a division by zero in ${divide_ceil:…}; correct the second number"),
        ("${divide_floor:1e308,1e-308}", "a result of ${divide_floor:…} that is too large; use smaller numbers"),
        ("${multiply:1e308,1e308}", "inf as a result; JSON and YAML cannot hold it; use finite numbers"),
        ("${oc.select:run.nam,nan}", "nan as a result; JSON and YAML cannot hold it; use finite numbers"),
        ("${oc.create:'a: 1'}", "${oc.create:…} without a mapping or a list; text is not read as YAML; write {a: 1}"),
        ("${oc.select:1}", "${oc.select:…} without a path; write ${oc.select:a.b} or ${oc.select:a.b,default}"),
        (
            "${now:%Y}",
            f"an unknown resolver, now; the resolvers are {RESOLVERS}",
        ),
        (
            "${",
            f"{UNREADABLE} a closing }} is missing (character 3); {PLAIN}",
        ),
        (
            "${run.name",
            f"{UNREADABLE} a closing }} is missing (character 11); {PLAIN}",
        ),
    ],
)
def test_what_cannot_be_computed_is_refused(text: str, problem: str) -> None:
    assert faults({**RECIPE, "here": {"value": text, "beside": 7}}) == [f"here.value: {problem}"]


@pytest.mark.parametrize("name", ["oc.env", "oc.decode", "oc.deprecated", "oc.dict.keys", "oc.dict.values"])
def test_resolvers_that_reach_outside_are_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-value")
    [problem] = faults({"a": f"x ${{{name}:CANARY,${{oc.env:CANARY}}}}"})
    assert problem.startswith(f"a: ${{{name}:…}}, which is not allowed; ")
    assert "canary-value" not in problem


def test_relative_paths_begin_where_the_text_is() -> None:
    document: dict[str, JsonValue] = {
        "a": {"x": 1, "y": "${.x}", "z": ["${..x}", {"w": "${...x}"}]},
        "b": "${a}",
        "x": 2,
    }
    found = interpolated(document, {}).document
    assert found["b"] == found["a"] == {"x": 1, "y": 1, "z": [1, {"w": 1}]}


def test_a_part_of_a_mapping_may_refer_to_the_mapping_through_another_name() -> None:
    assert interpolated({"m": "${n}", "n": {"a": 1, "b": "${m.a}"}}, {}).document["m"] == {"a": 1, "b": 1}


def test_a_cycle_is_one_problem_wherever_it_is_entered() -> None:
    words = "a: a cycle of interpolations: a -> b -> c -> a; break it: write a value"
    assert faults({"d": "${b}", "c": "${a}", "b": "x${c}", "a": "${oc.select:b}"}) == [words]
    assert faults({"a": "${a}"}) == ["a: a cycle of interpolations: a -> a; break it: write a value"]


def test_a_value_that_depends_on_a_faulty_one_is_not_reported() -> None:
    assert len(faults({"a": "${b}", "b": "${add:${c},1}", "c": "${nothing}"})) == 1


def test_a_chain_has_a_bound_that_does_not_depend_on_the_order() -> None:
    def chain(length: int) -> dict[str, JsonValue]:
        return {f"a{number}": f"${{a{number - 1}}}" if number else 1 for number in range(length + 1)}

    for length, problems in ((CHAIN_MAX, 0), (CHAIN_MAX + 1, 1)):
        document = chain(length)
        assert len(faults(document)) == problems
        assert len(faults(dict(reversed(document.items())))) == problems
    # The limit of Python is far away.
    assert len(faults(dict(reversed(chain(2_000).items())))) == 2_000 - CHAIN_MAX


def test_repetition_is_counted() -> None:
    texts: dict[str, JsonValue] = {"a0": "x" * 1_000}
    texts |= {f"a{level}": f"${{a{level - 1}}}" * 10 for level in range(1, 8)}
    assert any("a text that interpolations make too long" in problem for problem in faults(texts))
    lists: dict[str, JsonValue] = {"a0": [1] * 10}
    lists |= {f"a{level}": [f"${{a{level - 1}}}"] * 10 for level in range(1, 8)}
    assert any("more than 50,000 values" in problem for problem in faults(lists))


def test_a_recipe_refers_to_itself_below_its_root_or_to_inputs() -> None:
    document: dict[str, JsonValue] = {"a": "${recipes.b.c}", "b": {"c": 1}, "d": "${recipes.base_dir}"}
    assert interpolated(document, {"base_dir": "/x"}).document == {"a": 1, "b": {"c": 1}, "d": "/x"}
    assert interpolated({"a": "${training.b.c}", "b": {"c": 1}}, {}).document["a"] == 1
    select: dict[str, JsonValue] = {
        "a": "${oc.select:recipes.b,2}",
        "b": 1,
        "c": "${oc.select:b,2}",
        "d": "${recipes.a}",
    }
    assert interpolated(select, {}).document == {"a": 1, "b": 1, "c": 1, "d": 1}
    assert interpolated({"a": "${recipes.b}", "recipes": {"b": 1}, "b": 2}, {}).document["a"] == 1
    found = interpolated({"a": "${base_dir}/${.b}", "b": "c"}, {"base_dir": "/${x}", "unused": 1})
    assert (found.document["a"], found.used) == ("/${x}/c", {"base_dir"})
