"""Arrays of other libraries than NumPy: shared by DLPack, or replaced where they are immutable."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.wire.binary_format import Floats
from tests.support.peers import Run

# A first Nesterov step from rest with the pseudo-gradient 1: -0.7 * (1 + 0.9).
ONE_STEP = -1.33


def alone(root: Path) -> Rendezvous:
    return Rendezvous.open(Run(root, replicas=1, min_participants=1).context(), 0, 1, Metrics())


class Shared:
    """An array of another library, whose memory NumPy can share."""

    def __init__(self, values: Floats) -> None:
        self._values = values

    def __dlpack__(self, **options: Any) -> Any:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._values.__dlpack_device__()


class Immutable(Shared):
    """An array like JAX's: its memory is read-only, and its library is named as the array API standard says."""

    device = "cpu"

    def __init__(self, values: Floats) -> None:
        super().__init__(values)
        self.shape = values.shape
        values.flags.writeable = False

    def __array_namespace__(self) -> Any:
        return Library


class Library:
    """Whose arrays these are."""

    @staticmethod
    def asarray(values: Floats, *, device: str) -> Immutable:
        assert device == "cpu"
        return Immutable(values)


def test_memory_that_can_be_shared_is_overwritten(tmp_path: Path) -> None:
    values = np.zeros(5, np.float32)
    outer = DiLoCo(alone(tmp_path), {"w": Shared(values)})
    values -= 1
    outer.step()
    np.testing.assert_allclose(values, ONE_STEP, rtol=1e-6)


def test_an_array_that_is_not_contiguous_is_overwritten_where_it_lies(tmp_path: Path) -> None:
    memory = np.zeros((3, 4), np.float32)
    outer = DiLoCo(alone(tmp_path), {"w": memory.T[::2]})
    memory -= [1, 0, 2, 0]
    outer.step()
    np.testing.assert_allclose(memory, np.broadcast_to([ONE_STEP, 0, 2 * ONE_STEP, 0], (3, 4)), rtol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"fragments": 3, "sync_every": 3}, {"eager": True}])
def test_immutable_arrays_are_replaced_in_their_dict(tmp_path: Path, settings: dict[str, Any]) -> None:
    immutable: dict[str, Any] = {"w": Immutable(np.full((2, 3), 5, np.float32))}
    usual = {"w": np.full((2, 3), 5, np.float32)}
    outer = DiLoCo(alone(tmp_path / "immutable"), immutable, Algorithm(**settings))
    other = DiLoCo(alone(tmp_path / "usual"), usual, Algorithm(**settings))
    for step in range(7):
        immutable["w"] = Immutable(np.from_dlpack(immutable["w"]) - np.float32(step))
        usual["w"] -= np.float32(step)
        outer.step()
        other.step()
    outer.finish()
    other.finish()
    assert np.array_equal(np.from_dlpack(immutable["w"]), usual["w"])
    assert usual["w"].max() < 0


def test_an_immutable_array_stays_what_it_was(tmp_path: Path) -> None:
    parameters: dict[str, Any] = {"w": Immutable(np.zeros(3, np.float32))}
    outer = DiLoCo(alone(tmp_path), parameters)
    parameters["w"] = Immutable(np.zeros(4, np.float32))
    with pytest.raises(ParametersError, match=r"w is float32 of shape \(4,\), not float32 of shape \(3,\)"):
        outer.step()


def test_an_immutable_array_needs_a_dict(tmp_path: Path) -> None:
    array = Immutable(np.zeros(3, np.float32))
    for parameters in (array, MappingProxyType({"parameters": array})):
        with pytest.raises(
            ParametersError, match="parameters is read-only: put it into a dict, in which it can be replaced"
        ):
            DiLoCo(alone(tmp_path), parameters)
