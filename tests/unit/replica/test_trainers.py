"""How trainers are called and end: with sys.exit(0), in a hooked program, as a script."""

import gc
import inspect
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from muster.contract.run.run_document import RunDocument
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry.hooked_program import Library, _hooked
from muster.replica.entry.toolkit_variables import toolkit_variables
from muster.replica.entry.trainer import EXITED, call_trainer, load_trainer
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.replica_errors import (
    InputError,
    TrainerError,
)
from tests.support.contexts import context_of
from tests.support.peers import Run


def document_of(kwargs: dict[str, Any], replicas: int = 1, trainer: str = "m:train") -> RunDocument:
    usual: dict[str, Any] = {"run": "r", "plan_digest": "", "rendezvous_uri": "", "min_participants": 1}
    return RunDocument(**usual, replicas=replicas, trainer=trainer, kwargs=kwargs, grace_seconds=0, timeout_seconds=1)


def ended(root: Path, expected: int | None, end: Callable[[DiLoCo], object]) -> str:
    """How a trainer ends that makes three rounds, and expects so many."""

    def train(context: Context) -> None:
        context.expect(rounds=expected)
        outer = DiLoCo(context.rendezvous, np.zeros(3, np.float32))
        for _ in range(3):
            outer.step()
        end(outer)

    return call_trainer(train, context_of(Run.alone(root)), document_of({}))


def finish_and_exit(outer: DiLoCo) -> None:
    outer.finish()
    sys.exit(0)


def test_sys_exit_before_the_expected_end_is_a_failure(tmp_path: Path) -> None:
    early = r"^m:train called sys.exit\(0\) 3 rounds before the end .* finish\(\), or return"
    with pytest.raises(TrainerError, match=early):
        ended(tmp_path, 6, lambda _: sys.exit(0))


def test_sys_exit_is_a_return_where_no_more_rounds_are_expected(tmp_path: Path) -> None:
    assert ended(tmp_path / "undeclared", None, lambda _: sys.exit(0)) == EXITED
    assert ended(tmp_path / "reached", 3, lambda _: sys.exit(0)) == EXITED
    assert ended(tmp_path / "finished", 6, finish_and_exit) == EXITED
    assert ended(tmp_path / "returned", 6, lambda _: None) == "its trainer returned"


def test_sys_exit_with_anything_but_zero_is_a_failure_as_it_is_for_the_interpreter(tmp_path: Path) -> None:
    codes: list[Any] = [0.0, [], {}, "no data"]
    for number, code in enumerate(codes):
        with pytest.raises(TrainerError, match=r"^m:train exited: "):
            ended(tmp_path / f"{number}", 3, lambda _, code=code: sys.exit(code))


def test_a_module_that_exits_at_its_import_has_no_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for code in (0, 2):
        (tmp_path / f"exits_{code}.py").write_text(f"import sys\nsys.exit({code})\n")
        with pytest.raises(InputError, match=rf"exits_{code}.py:2: SystemExit: {code}"):
            load_trainer(f"exits_{code}:train", {})


# --- The Trainer of a library while a program is hooked: the program cannot see a difference ------------------------


class Trainer:
    """A library's."""

    def __init__(self, max_steps: int = 1, *, devices: str = "auto") -> None:
        """What its command line shows."""
        self.settings = max_steps, devices


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    module = ModuleType("library_of_a_program")
    vars(module)["Trainer"] = Trainer
    monkeypatch.setitem(sys.modules, module.__name__, module)

    def add(_: Any, make: Callable[..., None], keywords: dict[str, Any], *__: object) -> None:
        make(**keywords)

    return Library(module.__name__, "library", add)


def test_a_trainer_that_the_program_has_left_is_freed(library: Library) -> None:
    # A command line that is made of the Trainer's parameters is that of Lightning.
    before = inspect.signature(Trainer), Trainer.__init__.__doc__
    with _hooked(library, cast("Context", None), Algorithm()) as made:
        assert (inspect.signature(Trainer), Trainer.__init__.__doc__) == before
        trainer = Trainer(3, devices="cpu")
        assert trainer.settings == (3, "cpu")
        # It holds the model and the state of the optimizer: several one after the other need not fit.
        left = weakref.ref(trainer)
        del trainer
        gc.collect()
        assert left() is None
        assert made
    assert inspect.signature(Trainer) == before[0]


def test_a_script_finds_its_folders_as_with_the_toolkit_of_sagemaker(tmp_path: Path) -> None:
    for channel in ("train", "muster-source", "muster-package"):
        (tmp_path / "input" / "data" / channel).mkdir(parents=True)
    (tmp_path / "input" / "config").mkdir()
    (tmp_path / "input" / "config" / "resourceconfig.json").write_text('{"hosts": ["a", "b"], "current_host": "b"}')
    found = toolkit_variables(tmp_path)
    assert {name for name in found if name.startswith("SM_CHANNEL_")} == {"SM_CHANNEL_TRAIN"}
    assert found["SM_CHANNEL_TRAIN"] == str(tmp_path / "input" / "data" / "train")
    assert (found["SM_CHANNELS"], found["SM_HOSTS"], found["SM_CURRENT_HOST"]) == ('["train"]', '["a", "b"]', "b")
    assert (found["SM_HPS"], found["SM_MODEL_DIR"]) == ("{}", str(tmp_path / "model"))
    assert toolkit_variables(tmp_path / "none")["SM_CHANNELS"] == "[]"
