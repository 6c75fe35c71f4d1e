"""JAX through the front end for arrays: its arrays are immutable, and are replaced in their dict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("jax", reason="make test installs it")

from examples.frameworks import jax_model
from tests.support.contexts import context_of, trained
from tests.support.peers import Run


def test_a_model_in_jax_takes_part_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    contexts = [context_of(run, rank) for rank in range(2)]
    for training in trained(lambda context: jax_model.train(context, rounds=4), contexts):
        assert training.state.round == 4
    early = contexts[0].metrics.latest()["loss"]
    contexts = [context_of(run, rank, attempt=2) for rank in range(2)]
    one, other = trained(lambda context: jax_model.train(context, rounds=12), contexts)
    assert one.state.round == other.state.round == 12
    assert one.state.parameters.tobytes() == other.state.parameters.tobytes()
    assert contexts[0].metrics.latest()["loss"] < early / 2


def test_momentum_is_restored() -> None:
    parameters: dict[str, Any] = {"first": jax_model.jnp.ones(3)}
    momentum, again = jax_model.Momentum(parameters), jax_model.Momentum(parameters)
    momentum.values["first"] += 2
    again.load_state_dict(momentum.state_dict())
    assert again.values["first"].tolist() == [2, 2, 2]
