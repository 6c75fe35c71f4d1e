"""The example's data and gradients. tests/e2e/test_demo.py has what it learns."""

import numpy as np
import pytest

from examples.digits.dataset import Examples, load, shard
from examples.digits.model import Classifier


def test_every_example_is_dealt_to_exactly_one_replica_and_none_is_held_out() -> None:
    training, held_out = load()
    assert len(training) + len(held_out) == 1797
    dealt = np.concatenate([shard(training, rank, 4).images for rank in range(4)])
    assert sorted(map(bytes, dealt)) == sorted(map(bytes, training.images))
    assert not {bytes(image) for image in training.images} & {bytes(image) for image in held_out.images}


def test_the_gradients_are_those_of_the_loss() -> None:
    rng = np.random.default_rng(0)
    model = Classifier(hidden=7, seed=1)
    batch = Examples(rng.random((5, 64), dtype=np.float32), rng.integers(10, size=5))
    _, gradients = model.loss_and_gradients(batch)
    for name, array in model.parameters.items():
        place = np.unravel_index(int(np.abs(gradients[name]).argmax()), array.shape)
        losses = []
        for nudge in (1e-2, -2e-2):
            array[place] += nudge
            losses.append(model.loss_and_gradients(batch)[0])
        array[place] += 1e-2
        assert gradients[name][place] == pytest.approx((losses[0] - losses[1]) / 2e-2, rel=0.05)
