"""The front ends share one base: the same mistake raises the same error, and the same state is restored."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.model.final_model import FinalModel
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire.binary_format import Floats
from tests.support.peers import Run


class Position:
    """Where a replica's data are."""

    def __init__(self, value: int = 0) -> None:
        self.value = value

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.value = state_dict["value"]


def alone(root: Path, attempt: int = 1) -> Rendezvous:
    return Rendezvous.open(Run(root, replicas=1, min_participants=1).context(), 0, attempt, Metrics())


def zeros() -> Floats:
    return np.zeros(3, np.float32)


def test_arguments_come_in_one_order() -> None:
    assert list(inspect.signature(DiLoCo).parameters) == [
        "rendezvous", "parameters", "algorithm", "trainer_state", "checkpoint_dir", "final_model"
    ]  # fmt: skip


@pytest.mark.parametrize("kind", [list, tuple])
def test_a_list_of_arrays_is_refused_with_what_is_allowed(tmp_path: Path, kind: type) -> None:
    with pytest.raises(ParametersError) as caught:
        DiLoCo(alone(tmp_path), kind([zeros(), zeros()]))
    assert str(caught.value) == (
        f"parameters is of type {kind.__name__}; allowed: a float32 array, or a dict of names to float32 arrays."
    )


def test_arguments_of_a_wrong_type_are_refused_with_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ParametersError, match=r"rendezvous is of type str; allowed: the context's rendezvous"):
        DiLoCo("s3://bucket/run/", zeros())  # type: ignore[arg-type]
    with pytest.raises(
        ParametersError, match=r"algorithm is of type int; allowed: an Algorithm, such as Algorithm\(sync_every"
    ):
        DiLoCo(alone(tmp_path), zeros(), 500)  # type: ignore[arg-type]
    with pytest.raises(
        ParametersError, match=r"trainer_state\['data'\] is of type int; allowed: an object with state_dict"
    ):
        DiLoCo(alone(tmp_path), zeros(), trainer_state={"data": 3})  # type: ignore[dict-item]
    with pytest.raises(ParametersError, match=r"final_model is of type list; allowed: a FinalModel, such as"):
        DiLoCo(alone(tmp_path), zeros(), final_model=["config.json"])  # type: ignore[arg-type]
    with pytest.raises(ParametersError, match=r"FinalModel.adapter is for PyTorch models; allowed for arrays: None"):
        DiLoCo(alone(tmp_path), zeros(), final_model=FinalModel(adapter="default"))


def begin(root: Path, attempt: int, **trainer_state: Position) -> DiLoCo:
    return DiLoCo(
        alone(root, attempt),
        zeros(),
        Algorithm(sync_every=1),
        trainer_state=trainer_state,
        checkpoint_dir=root / "checkpoints",
    )


def test_a_name_of_the_trainers_state_that_was_not_stored_is_named(tmp_path: Path) -> None:
    begin(tmp_path, 1, data=Position(7)).step()
    with pytest.raises(ParametersError) as caught:
        begin(tmp_path, 2, data=Position(), schedule=Position())
    assert str(caught.value) == (
        "trainer_state has the names data, schedule; allowed: data, the names of the state stored in round 1."
    )
    with pytest.raises(ParametersError, match="trainer_state has the names none; allowed: data"):
        begin(tmp_path, 3)
    data = Position()
    begin(tmp_path, 4, data=data)
    assert data.value == 7


def test_a_state_can_be_kept_elsewhere(tmp_path: Path) -> None:
    first = DiLoCo(alone(tmp_path), zeros(), trainer_state={"data": Position(5)})
    state = first.state_dict()
    data = Position()
    second = DiLoCo(alone(tmp_path, 2), zeros(), trainer_state={"data": data})
    second.load_state_dict(state)
    assert data.value == 5
    with pytest.raises(ParametersError, match="state_dict has the keys data; allowed: round, trainer"):
        second.load_state_dict({"data": 1})
