"""The trainers that `muster init` writes for frameworks train two rounds as they are."""

from pathlib import Path
from typing import Any

import pytest
import torch

from muster.client.starter.starter_files import TRAINING_FILE, Wish, starter_files
from tests.support.contexts import context_of
from tests.support.peers import Run
from tests.support.starters import each_starter


@each_starter
def test_a_starter_trains(
    framework: str, kwargs: dict[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    starter: dict[str, Any] = {"__name__": "training"}
    exec(starter_files(Wish(framework))[TRAINING_FILE], starter)  # noqa: S102 - our own
    context = context_of(Run(tmp_path / "run", replicas=1, min_participants=1))
    starter["train"](context, **kwargs)
    assert context.rendezvous.departure.training is not None
    assert context.rendezvous.departure.training.state.round == 2
    assert context.metrics.latest()["loss"] > 0
