"""A replica of two processes computes the gradients of one."""

from __future__ import annotations

import socket
from threading import Thread

import numpy as np
import pytest

from examples.digits.dataset import load
from examples.digits.helpers import Helpers, help_first
from examples.digits.model import Classifier


def test_processes_together_compute_the_gradients_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port - 1))
    examples, _ = load()
    model, helper_model = Classifier(16, 0), Classifier(16, 1)
    helper = Thread(target=help_first, args=(helper_model, examples))
    helper.start()
    helpers = Helpers(1)
    drawn = np.arange(33)
    loss, gradients = helpers.loss_and_gradients(model, examples, drawn)
    alone, expected = model.loss_and_gradients(examples[drawn])
    helpers.close()
    helper.join(30)
    assert not helper.is_alive()
    assert loss == pytest.approx(alone)
    for name, gradient in gradients.items():
        np.testing.assert_allclose(gradient, expected[name], rtol=1e-4, atol=1e-6)


def test_a_replica_of_one_process_computes_alone() -> None:
    examples, _ = load()
    model = Classifier(16, 0)
    loss, gradients = Helpers(0).loss_and_gradients(model, examples, np.arange(8))
    alone, expected = model.loss_and_gradients(examples[np.arange(8)])
    assert loss == alone
    assert all(np.array_equal(gradients[name], expected[name]) for name in gradients)
