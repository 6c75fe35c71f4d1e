"""Rounds over several places, as runs of other places find them."""

from pathlib import Path

import numpy as np
import pytest

from muster.options.places.replica.places import OFFER
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rounds.round_context import Places
from muster.replica.store.local_store import LocalStore
from tests.support.peers import Run, gradient_of


def trained(run: Run, attempt: int, places: Places | None) -> bytes:
    """The parameters after the run's last round."""
    parameters = np.zeros(run.count, np.float32)
    outer = DiLoCo(run.open(0, attempt, places=places), parameters, Algorithm(far_codec="int8"))
    while outer.round < run.rounds:
        parameters -= gradient_of(0, outer.round + 1, run.count)
        outer.step(1)
    return parameters.tobytes()


@pytest.mark.parametrize(("was_over_places", "mean"), [(True, "int8"), (False, None)])
def test_rounds_are_replayed_after_places_were_removed_or_added(
    tmp_path: Path, was_over_places: bool, mean: str | None
) -> None:
    run, places = Run.alone(tmp_path / "home", rounds=2), OFFER.open("oregon", LocalStore(tmp_path / "oregon"))
    before, after = (places, None) if was_over_places else (None, places)
    expected = trained(run, 1, before)
    assert run.commit(2).mean == mean
    assert trained(run, 2, after) == expected
