"""How trainers are called and end: with sys.exit(0), with a loop of their own, in a program that is hooked."""

from __future__ import annotations

import gc
import inspect
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np
import pytest

from muster.contract.run.run_document import RunDocument
from muster.contract.spec.own_loop import OWN_LOOP, own_loop_kwargs
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.entry.hooked_program import _hooked, _Library
from muster.replica.entry.trainer import EXITED, call_trainer, load_trainer
from muster.replica.errors import InputError, TrainerError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.legacy.all_reduce import ObjectStoreAllReduce
from muster.replica.legacy.own_loop import arguments_of, set_environment
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

    return call_trainer(train, context_of(Run(root, replicas=1, min_participants=1)), document_of({}))


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


def test_a_module_that_exits_when_it_is_imported_has_no_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for code in (0, 2):
        (tmp_path / f"exits_{code}.py").write_text(f"import sys\nsys.exit({code})\n")
        with pytest.raises(InputError, match=rf"exits_{code}.py:2: SystemExit: {code}"):
            load_trainer(f"exits_{code}:train", {})


# --- Trainers that bring their own loop: what they are called with, and what they find in the environment -----------


JOB = "tests.support.jobs.own_loop"
OFFERED: dict[str, object] = dict.fromkeys(("context", "rank", "world_size", "rendezvous_uri", "allreduce"), "given")


@pytest.fixture(autouse=True)
def as_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environment, the trainer's module and the process's run are afterwards as they were."""
    for name in ("REPLICA_RANK", "WORLD_SIZE", "RENDEZVOUS_URI", "RANK"):
        monkeypatch.setenv(name, "7")
    yield
    ObjectStoreAllReduce._process = None
    sys.modules.pop(JOB, None)


def call(function: str, run: Run, **kwargs: Any) -> str:
    """Call a trainer of the job as a replica's process does."""
    own, context = own_loop_kwargs(f"{JOB}:{function}", kwargs), context_of(run)
    how = call_trainer(load_trainer(OWN_LOOP, own), context, document_of(own, run.replicas, OWN_LOOP))
    context.rendezvous.returned(how)
    assert context.rendezvous.has_left
    return how


def both(rank: int, *, lr: float) -> object: ...
def by_environment() -> object: ...
def of_muster(ctx: object, *, lr: float) -> object: ...
def all_of_them(rank: int, world_size: int, rendezvous_uri: str, allreduce: object, lr: float = 0.0) -> object: ...
def any_other(**settings: object) -> object: ...


def test_a_trainer_gets_its_own_arguments_and_what_its_parameters_name() -> None:
    by_name = {name: given for name, given in OFFERED.items() if name != "context"}
    rows: list[tuple[Callable[..., object], dict[str, object], list[object], dict[str, object]]] = [
        (both, {"lr": 0.1}, [], {"rank": "given", "lr": 0.1}),
        (by_environment, {}, [], {}),
        (of_muster, {"lr": 0.1}, ["given"], {"lr": 0.1}),
        (all_of_them, {"rank": 3}, [], {**by_name, "rank": 3}),
        # What a function of any arguments does with them is not known: it gets its own alone.
        (any_other, {"lr": 0.1}, [], {"lr": 0.1}),
    ]
    for function, kwargs, positional, named in rows:
        assert arguments_of("m:train", function, kwargs, OFFERED) == (positional, named)
        function(*positional, **named)
    with pytest.raises(InputError, match=r"the trainer m:train does not take these arguments: .*'lr'; by name it can"):
        arguments_of("m:train", both, {"rate": 1}, OFFERED)


def test_a_former_trainer_runs_unchanged_and_reads_its_place_from_the_environment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1, on_early_finish=OnEarlyFinish.CONTINUE)
    assert call("train", run, rounds=3, model_dir=str(tmp_path)) == "its trainer returned"
    printed = capsys.readouterr().out
    assert f"[trainer] rank 0 of 1 at {(tmp_path / 'run' / 'trainer').as_uri()}" in printed
    job = sys.modules[JOB]
    assert (tmp_path / "weights.npy").read_bytes().endswith(job.expected(3, 1))
    # The others do not wait for a replica that has finished.
    assert (tmp_path / "run" / "claims" / "00000" / "000002.json").exists()


def test_errors_and_exits_are_those_of_the_users_function(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    with pytest.raises(TrainerError, match=rf"^{JOB}:fail failed: \S+own_loop\.py:\d+: ValueError: round 4 of rank 0"):
        call("fail", run, rounds=4)
    with pytest.raises(TrainerError, match=f"^{JOB}:leave exited: 3"):
        call("leave", run, code=3)
    with pytest.raises(InputError, match=f"the trainer {JOB}:missing cannot be imported"):
        call("missing", run)
    # It need not make any call.
    assert call("leave", run, code=0) == "its trainer called sys.exit(0)"


def test_the_variables_are_those_of_the_former_entrypoint_and_none_of_torchs(tmp_path: Path) -> None:
    variables = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "PATH": "/bin"}
    set_environment(variables, context_of(Run(tmp_path), 2), "s3://bucket/rendezvous/r/trainer")
    assert variables == {
        "PATH": "/bin",
        "REPLICA_RANK": "2",
        "WORLD_SIZE": "3",
        "RENDEZVOUS_URI": "s3://bucket/rendezvous/r/trainer",
    }


# --- The Trainer of a library while a program is hooked: the program cannot see a difference ------------------------


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


def test_a_trainer_that_the_program_has_left_is_freed(library: _Library) -> None:
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
