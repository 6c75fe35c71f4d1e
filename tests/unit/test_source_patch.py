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


def test_a_change_is_made_where_its_code_is_there_once(subtests: pytest.Subtests) -> None:
    assert replaced_once("a.b(c)", ".b(", ".d(", "the text") == "a.d(c)"
    for function in ("f", "g"):
        changed = Patch("file.py", function, "y = x + 1", "y = 2").applied_to(SOURCE)
        assert changed.count("y = 2") == 1, function
        assert (changed.index("y = 2") < changed.index("def g")) is (function == "f")
    # Behind other letters than ASCII, too.
    assert Patch("file.py", "g", "return y", "return x").applied_to(SOURCE).endswith('print("é"); return x\n')
    for function, before in (("f", "x"), ("f", "return y"), ("h", "y = x + 1")):
        with subtests.test(function=function, before=before), pytest.raises(PatchError, match=r"^file\.py"):
            Patch("file.py", function, before, "pass").applied_to(SOURCE)
