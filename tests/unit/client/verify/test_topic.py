"""What was started is cleaned up, whatever becomes of the checks."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from muster.client.verify.topic import with_clean_up
from muster.client.verify.verification import Check, ok


def checks(error: BaseException | None) -> Iterator[Check]:
    yield ok("first", "it holds.")
    if error is not None:
        raise error


def clean_up() -> Iterator[Check]:
    yield ok("cleaned", "nothing is left.")


def test_the_clean_up_follows_the_checks() -> None:
    assert [check.name for check in with_clean_up(checks(None), clean_up)] == ["first", "cleaned"]


def test_the_clean_up_follows_an_error_which_is_raised_again() -> None:
    found = with_clean_up(checks(ValueError("a defect")), clean_up)
    assert [next(found).name, next(found).name] == ["first", "cleaned"]
    with pytest.raises(ValueError, match="a defect"):
        next(found)


def test_an_interruption_is_left_to_the_caller() -> None:
    found = with_clean_up(checks(KeyboardInterrupt()), clean_up)
    assert next(found).name == "first"
    with pytest.raises(KeyboardInterrupt):
        next(found)
