"""Recipes as YAML: what is read, what is refused and where, and that what is written is read the same by everybody."""

import time

import pytest
import yaml
from pydantic import JsonValue

from muster.options.recipes.contract.recipe_text import LITERAL, load_recipe_text, recipe_yaml
from muster.options.recipes.contract.resolved_recipe import ResolvedRecipe

MEANINGS: dict[str, object] = {
    "1e-6": 1e-6,
    "+1e-4": 1e-4,
    "1.": 1.0,
    "1_000": 1000,
    "0x10": 16,
    "yes": True,
    "~": None,
    "'{model}--{loss:.2f}'": "{model}--{loss:.2f}",
    '"true"': "true",
    "!!str 5": "5",
    "a\n  b": "a b",
    "{{ name }}": "{{name}}",
    "{b: {{c}}}": {"b": "{{c}}"},
    "{{folder}}/checkpoints # a comment": "{{folder}}/checkpoints",
    "{{folder}}-{{name}} \t # a comment": "{{folder}}-{{name}}",
    # What stays text.
    **{
        text: text
        for text in ("y", "None", "2.1.4", "2026-01-31", "6-00:00:00", "00:30:00", "=", "<<", "$LD_PATH", "{{name}}")
    },
}


def test_a_value_means_what_the_programs_of_recipes_read() -> None:
    found = {value: load_recipe_text(f"key : {value}\n")["key"] for value in MEANINGS}
    assert {value: repr(read) for value, read in found.items()} == {
        value: repr(read) for value, read in MEANINGS.items()
    }


WIDE = "a: &x [" + "1, " * 2_000 + "]\n" + "\n".join(f"b{number}: *x" for number in range(200))
REFUSED = [
    ("a: 12:30", "line 1, column 4: YAML reads this as one number, in base 60"),
    ("a: 0777", "line 1, column 4: versions of YAML read this number differently"),
    ("a: " + "9" * 5_000, "a number of 5,000 characters"),
    ("a: 1\na: 2", "line 2, column 1: the key 'a' appears twice"),
    ("1: 1\n'1': 2", "line 2, column 1: the key '1' appears twice"),
    ("a: &x {b: 1}\nc:\n  <<: *x", r"line 3, column 3: merge keys \(<<\) are not allowed"),
    ("a:\n\tb: 1", "line 2, column 1: a tab"),
    ("a: !!python/object/apply:os.system [ls]", r"line 1, column 4: tags \(!!python/object/apply:os.system\)"),
    ("yes: 1", "line 1, column 1: this key is not a string"),
    ("a: {{x}: 1}", "this key is not a string"),
    ("- a", "this is no mapping of names to values"),
    ("# only a comment", "this is no mapping of names to values"),
    ("a: &x [*x]", r"the alias \*x has no anchor before it, or lies inside"),
    ("a: &x [1]\n" + "\n".join(f"b{number}: *x" for number in range(300)), "more than 256 aliases"),
    (WIDE, "more than 50,000 values"),
    ("a: " + "[" * 40 + "]" * 40, "line 1, column 35: more than 32 levels of nesting"),
    ("a: &x " + "[" * 30 + "]" * 30 + "\nb: [[[[*x]]]]", "line 2, column 8: more than 32 levels of nesting"),
    ("a" * 300 + ": 1", "a key of 300 characters; allowed: at most 256"),
    ("a: [" + "1, " * 60_000, "more than 50,000 values"),
    ("a: '" + "x" * 1_100_000 + "'", "1,100,005 bytes; allowed: at most 1,048,576"),
    ("a: 1\n---\nb: 1", "line 2, column 1: a second document"),
    ("a: b: c", "line 1, column 5: a second colon on the line"),
    ("a: [1", r"line 1, column 6: a comma or the closing \] is missing"),
    ("a: @x", "line 1, column 4: a value cannot begin with '@'"),
    ("a: b\x00", "line 1: special characters are not allowed"),
]


def test_what_is_refused_says_where() -> None:
    for text, words in REFUSED:
        with pytest.raises(ValueError, match=words) as refused:
            load_recipe_text(text)
        assert len(str(refused.value)) < 300
        assert type(refused.value) is ValueError, words


def test_braces_in_a_block_of_text_stay_as_they_are() -> None:
    text = "a: {{x}}/b\ntemplate: |\n  {{x}}/b\n  - {{ y }}/z\nc: 1"
    assert load_recipe_text(text) == {"a": "{{x}}/b", "template": "{{x}}/b\n- {{ y }}/z\n", "c": 1}


QUOTED = ("yes", "1e-6", "0777", "12:30", "null", "~", "", " x", "x ", "a: b", "- a", "#", "n", "2026-01-31", "=", "<<")
UNUSUAL = ("a\nb\tc", "é", "\u2028\x85\x7f\ufeff", "\U0001f600", 'it\'s "x"', "back\\slash", "{a}", "[a", "*x", "&x")
DOCUMENT: dict[str, JsonValue] = {
    "text": "plain text",
    "quoted": list(QUOTED),
    "unusual": list(UNUSUAL),
    "numbers": [1e-06, 1e16, 0.1, -0.0, 10**300, 1, -1],
    "others": [True, False, None, [], {}, [[1], [{}]], [{"a": 1, "b": [2]}, {"c": None}]],
    "sections": {"_target_": "a.b.C", "s3": "s3://bucket/a-b_c/d.e", "1": {"16": "x"}, "007": 1, "yes": {"a b": {}}},
}


def test_what_is_written_is_read_the_same_by_all() -> None:
    text = recipe_yaml(DOCUMENT)
    assert load_recipe_text(text) == DOCUMENT
    others = yaml.safe_load(text)
    # Programs look up whole numbers as such.
    others["sections"]["1"] = {str(key): value for key, value in others["sections"].pop(1).items()}
    assert others == DOCUMENT
    assert list(load_recipe_text(text)) == list(DOCUMENT)
    # Braces stand below a line that says that they are plain text, if nothing is left to resolve.
    text = 'a: "${b} {{c}}"\n"on": "yes"\n'
    document: dict[str, JsonValue] = {"a": "${b} {{c}}", "on": "yes"}
    assert (recipe_yaml(document), ResolvedRecipe(document, {}, {}).to_yaml()) == (text, LITERAL + text)


def test_without_libyaml_the_same_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    text = recipe_yaml(DOCUMENT) + "more: {{a}}/b\nalias: &x [1]\nagain: *x\n"
    quick = load_recipe_text(text)
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    assert load_recipe_text(text) == quick
    with pytest.raises(ValueError, match="line 1, column 101: more than 100 levels of nesting"):
        load_recipe_text("[" * 1_000)


def test_a_long_line_is_read_in_time_that_grows_with_its_length() -> None:
    began = time.process_time()
    for line in ("- " * 200_000 + "}", "a: {{x}}" + " " * 400_000 + "'", "a:" + " :" * 200_000):
        with pytest.raises(ValueError, match="line"):
            load_recipe_text(f"note: '{{{{x}}}}'\n{line}\n")
    # Each takes 0.1 s; where parts of the line are tried again and again, it takes hours.
    assert time.process_time() - began < 60
