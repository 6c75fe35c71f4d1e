"""The GPT example's parts: the text that is dealt out, the data's position, the model."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from examples.char_gpt.dataset import VOCABULARY, Windows, shard
from examples.char_gpt.learning import Settings


def test_every_character_is_dealt_to_exactly_one_replica() -> None:
    text = torch.arange(103)
    assert torch.equal(torch.cat([shard(text, rank, 4) for rank in range(4)]), text)


def test_windows_come_once_each_and_go_on_where_they_stood() -> None:
    text = torch.arange(41)
    first = Windows(text, length=4, seed=1)
    beginning = first.batch(2)[0][:, 0].tolist()
    again = Windows(text, length=4, seed=1)
    again.load_state_dict(first.state_dict())
    inputs, targets = again.batch(8)
    assert torch.equal(inputs + 1, targets)
    assert sorted(beginning + inputs[:, 0].tolist()) == list(range(0, 40, 4))


def test_the_model_sees_only_what_came_before() -> None:
    model = Settings(width=16, layers=1, heads=2, length=8).model()
    characters = torch.randint(VOCABULARY, (1, 8), generator=torch.Generator().manual_seed(0))
    other = characters.clone()
    other[0, -1] = (other[0, -1] + 1) % VOCABULARY
    with torch.no_grad():
        torch.testing.assert_close(model(characters)[0, :-1], model(other)[0, :-1])
    assert model.output.weight is model.characters.weight
