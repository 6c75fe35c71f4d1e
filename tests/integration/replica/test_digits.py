"""The example: what it learns, and that it learns as well as one process that sees all the data."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from examples.digits.baseline import baseline_accuracy
from examples.digits.dataset import Examples, load, shard
from examples.digits.model import Classifier
from examples.digits.trainer import train
from tests.support.contexts import context_of, trained
from tests.support.peers import Run


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


def test_four_replicas_learn_as_much_as_one_process_with_all_data(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=4, min_participants=4)
    contexts = [context_of(run, rank) for rank in range(4)]
    trained(partial(train, rounds=20), contexts)
    accuracies = {context.metrics.latest()["accuracy"] for context in contexts}
    assert len(accuracies) == 1
    accuracy = accuracies.pop()
    assert accuracy > 0.95
    assert abs(accuracy - baseline_accuracy(replicas=4, rounds=20)) <= 0.01
