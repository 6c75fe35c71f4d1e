"""The Trainer of a library while a program is hooked: the program cannot see a difference."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry.hooked_program import _hooked, _Library


class Trainer:
    """A library's."""

    def __init__(self, max_steps: int = 1, *, devices: str = "auto") -> None:
        """What its command line shows."""
        self.settings = max_steps, devices


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> _Library:
    module = ModuleType("library_of_a_program")
    vars(module)["Trainer"] = Trainer
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def add(_: Any, make: Callable[..., None], keywords: dict[str, Any], *__: object) -> None:
        make(**keywords)

    return _Library(module.__name__, "library", add)


def test_a_program_that_reads_the_parameters_of_the_trainer_finds_them(library: _Library) -> None:
    # A command line that is made of them is that of Lightning.
    before = inspect.signature(Trainer), Trainer.__init__.__doc__
    with _hooked(library, cast("Context", None), Algorithm()) as made:
        assert (inspect.signature(Trainer), Trainer.__init__.__doc__) == before
        assert Trainer(3, devices="cpu").settings == (3, "cpu")
        assert made
    assert inspect.signature(Trainer) == before[0]


def test_a_trainer_that_the_program_has_left_is_freed(library: _Library) -> None:
    # It holds the model and the state of the optimizer: several one after the other need not fit.
    with _hooked(library, cast("Context", None), Algorithm()) as made:
        trainer = Trainer()
        left = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert left() is None
        assert made
