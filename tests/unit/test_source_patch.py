"""A change of the source applies at exactly one place, or not at all."""

from __future__ import annotations

import pytest

from tests.support.source_patch import Patch, PatchError, replaced_once

SOURCE = """\
def f(x):
    y = x + 1  # once
    return [x, x]


def g(x):
    y = (x
         + 1)
    print("é"); return y
"""


def test_a_text_that_is_there_once_is_replaced() -> None:
    assert replaced_once("a.b(c)", ".b(", ".d(", "the text") == "a.d(c)"


@pytest.mark.parametrize(("text", "count"), [("a", 0), ("bab", 2)])
def test_a_text_that_is_not_there_once_is_an_error_that_says_where(text: str, count: int) -> None:
    with pytest.raises(PatchError, match=f"^the text: this code is there {count} times, not once:\nb$"):
        replaced_once(text, "b", "c", "the text")


@pytest.mark.parametrize("function", ["f", "g"])
def test_a_statement_is_found_in_its_function_whatever_its_format_is(function: str) -> None:
    changed = Patch("file.py", function, "y = x + 1", "y = 2").applied_to(SOURCE)
    assert changed.count("y = 2") == 1
    assert (changed.index("y = 2") < changed.index("def g")) is (function == "f")


def test_an_expression_behind_other_letters_than_ascii_is_replaced() -> None:
    assert Patch("file.py", "g", "return y", "return x").applied_to(SOURCE).endswith('print("é"); return x\n')


@pytest.mark.parametrize(("function", "before"), [("f", "x"), ("f", "return y"), ("h", "y = x + 1")])
def test_code_that_is_not_there_once_is_an_error_that_names_the_file(function: str, before: str) -> None:
    with pytest.raises(PatchError, match=r"^file\.py"):
        Patch("file.py", function, before, "pass").applied_to(SOURCE)
