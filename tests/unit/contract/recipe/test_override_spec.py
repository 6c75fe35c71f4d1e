"""The override specification of a recipe: what its JSON may say, and what each parameter may be."""

import json

from pydantic import JsonValue

from muster.options.recipes.contract.override_spec import SpecifiedValue, parse_override_spec
from muster.options.recipes.contract.recipe_problems import Problems


def parsed(document: object, recipe: str = "own") -> tuple[dict[str, SpecifiedValue], list[str]]:
    problems = Problems()
    text = document if isinstance(document, str) else json.dumps(document)
    return parse_override_spec(text, recipe, problems), [str(problem) for problem in problems.found]


def test_what_the_hub_describes_is_read_and_other_fields_are_left_out() -> None:
    entry = {"type": "float", "default": 0.5, "required": True, "min": 0, "max": 1, "category": "system", "hint": "…"}
    found, problems = parsed({"_comment": ["about"], "rate": entry, "size": {"enum": [1, 2]}, "plain": 5})
    assert problems == []
    assert found["rate"] == SpecifiedValue(name="rate", default=0.5, required=True, type="float", min=0, max=1)
    assert found["size"].enum == (1, 2)
    assert found["plain"] == SpecifiedValue(name="plain", default=5)
    assert list(found) == ["rate", "size", "plain"]


def test_a_name_that_a_hub_has_twice_has_its_last_value() -> None:
    problems = Problems()
    found = parse_override_spec('{"a": {"default": 1, "default": 2}, "a": 3}', "r", problems, is_own=False)
    assert (found["a"].default, problems.found) == (3, [])


def test_limits_may_depend_on_the_recipe() -> None:
    conditions: list[tuple[JsonValue, tuple[int, ...]]] = [
        ({"enum": {"Name": {"own": [4], "default": [1]}}}, (4,)),
        ({"enum": {"Name": {"other": [4], "default": [1]}}}, (1,)),
        ({"enum": {"own": [4]}}, (4,)),
        ({"enum": {"Model_ID": {"a": [4], "default": [1]}}}, (9,)),
        ([], (9,)),
    ]
    for condition, choices in conditions:
        found, problems = parsed({"size": {"enum": [9], "conditional_constraints": condition}})
        assert (found["size"].enum, problems) == (choices, []), condition


def test_a_specification_that_is_none_is_one_problem() -> None:
    for document, words in (
        ("[1]", ": found a list of 1 value; write a mapping of at most 4,096 names to mappings"),
        ("{", ": line 1, column 2: "),
        ('{"a": 1, "a": 2}', ': duplicate field "a"'),
        (r'{"a\u001b": 1, "a\u001b": 2}', r': duplicate field "a\u001b"'),
        ('{"a": NaN}', ": NaN is no number of JSON"),
        ("[" * 200_000, ": too many levels of nesting"),
        ('{"a": "' + "x" * 1_100_000 + '"}', ": 1,100,009 bytes; allowed: at most 1,048,576"),
        ('{"a": {"min": "1"}}', ".a.min: found text; write a number"),
        ('{"a": {"enum": 1}}', ".a.enum: found a whole number; write a list"),
    ):
        _, [problem] = parsed(document)
        assert problem.startswith(f"recipe.override_spec{words}")


RIGHT_AND_WRONG: list[tuple[SpecifiedValue, list[JsonValue], list[JsonValue]]] = [
    (SpecifiedValue(name="a", type="float"), [1, 0.5, None], [True, "1", [1]]),
    (SpecifiedValue(name="a", type="Integer"), [1, -5], [True, 1.0, "1"]),
    (SpecifiedValue(name="a", type="string"), ["", "x"], [1, False]),
    (SpecifiedValue(name="a", type="boolean"), [True, False], [1, 0, "true"]),
    (SpecifiedValue(name="a", type="array"), [[], [1]], ["1", {}]),
    (SpecifiedValue(name="a", default="", type="integer"), [""], ["x"]),
    (SpecifiedValue(name="a", min=0, max=1), [0, 1, 0.5, "x"], [-1, 2]),
    (SpecifiedValue(name="a", default=5, enum=(1, 2)), [1, 5, ""], [3, True, "1"]),
    (SpecifiedValue(name="a", type="array", enum=(1, 2)), [[1, 2], []], [[3]]),
]


def test_a_value_is_right_or_wrong() -> None:
    for parameter, right, wrong in RIGHT_AND_WRONG:
        assert [value for value in right if parameter.mistake(value) is not None] == [], parameter
        assert [value for value in wrong if parameter.mistake(value) is None] == [], parameter
