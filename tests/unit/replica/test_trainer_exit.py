"""sys.exit(0) in a trainer: a return, unless the trainer has said that more rounds follow."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from muster.contract.run.run_document import RunDocument
from muster.replica.context import Context
from muster.replica.entry.trainer import EXITED, call_trainer, load_trainer
from muster.replica.errors import InputError, TrainerError
from muster.replica.frontends.array_diloco import DiLoCo
from tests.support.contexts import context_of
from tests.support.peers import Run

DOCUMENT = RunDocument(
    run="r",
    plan_digest="",
    replicas=1,
    trainer="m:train",
    kwargs={},
    rendezvous_uri="",
    min_participants=1,
    grace_seconds=0,
    timeout_seconds=1,
)


def ended(root: Path, expected: int | None, end: Callable[[DiLoCo], object]) -> str:
    """How a trainer ends that makes three rounds, and expects so many."""

    def train(context: Context) -> None:
        context.expect(rounds=expected)
        outer = DiLoCo(context.rendezvous, np.zeros(3, np.float32))
        for _ in range(3):
            outer.step()
        end(outer)

    return call_trainer(train, context_of(Run(root, replicas=1, min_participants=1)), DOCUMENT)


def finish_and_exit(outer: DiLoCo) -> None:
    outer.finish()
    sys.exit(0)


def test_sys_exit_before_the_expected_end_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(
        TrainerError, match=r"^m:train called sys.exit\(0\) 3 rounds before the end .* finish\(\), or return"
    ):
        ended(tmp_path, 6, lambda _: sys.exit(0))


def test_sys_exit_is_a_return_where_no_more_rounds_are_expected(tmp_path: Path) -> None:
    assert ended(tmp_path / "undeclared", None, lambda _: sys.exit(0)) == EXITED
    assert ended(tmp_path / "reached", 3, lambda _: sys.exit(0)) == EXITED
    assert ended(tmp_path / "finished", 6, finish_and_exit) == EXITED
    assert ended(tmp_path / "returned", 6, lambda _: None) == "its trainer returned"


@pytest.mark.parametrize("code", [0.0, [], {}, "no data"])
def test_sys_exit_with_anything_but_zero_is_a_failure_as_it_is_for_the_interpreter(
    tmp_path: Path, code: str | int
) -> None:
    with pytest.raises(TrainerError, match=r"^m:train exited: "):
        ended(tmp_path, 3, lambda _: sys.exit(code))


@pytest.mark.parametrize("code", [0, 2])
def test_a_module_that_exits_when_it_is_imported_has_no_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    (tmp_path / f"exits_{code}.py").write_text(f"import sys\nsys.exit({code})\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match=rf"exits_{code}.py:2: SystemExit: {code}"):
        load_trainer(f"exits_{code}:train", {})
