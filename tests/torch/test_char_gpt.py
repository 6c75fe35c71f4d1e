"""The GPT example's parts: the text that is dealt out, the data's position, the model, the processes that share it."""

from threading import Event

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch

from examples.char_gpt.baselines import alone
from examples.char_gpt.dataset import VOCABULARY, Windows, shard
from examples.char_gpt.learning import Settings, own_rows
from muster.contract.exits import ReplicaExit
from muster.replica.group.board import InnerGroup
from tests.support.forked_replicas import ForkedRun
from tests.support.peers import Run


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


def test_two_processes_that_share_a_model_reach_the_loss_of_one(containers: ForkedRun) -> None:
    small = {"steps": 30, "width": 16, "layers": 1, "heads": 2, "length": 16, "batch_size": 4}
    # Averaging a single replica changes nothing: the same as training without rounds.
    kwargs = {"sync_every": 10, "outer_learning_rate": 1.0, "outer_momentum": 0.0, **small}
    containers.write_document("examples.char_gpt.trainer:train", kwargs=kwargs)
    for process in containers.start_group(2):
        code, _, error = containers.ended(process)
        assert code == ReplicaExit.DONE, error
    expected = dict(alone(Settings(**small), 1, 10, Event()))
    run = Run.alone(containers.meeting_place)
    members = [run.commit(round_).members[0] for round_ in (2, 3)]
    # A contribution has the metrics of the round before it.
    assert [member.metrics["heldout"] for member in members] == pytest.approx([expected[10], expected[20]], rel=1e-3)
    # Each step counts every character of the batch once.
    assert [(member.parts, member.weight) for member in members] == [(2, 10 * 4 * 16)] * 2


def test_the_rows_of_a_batch_are_divided_evenly() -> None:
    batch = torch.arange(4), torch.arange(4) + 1
    found = [own_rows(batch, InnerGroup(rank, 2, rank)) for rank in range(2)]
    for index, whole in enumerate(batch):
        assert torch.equal(torch.cat([rows[index] for rows in found]), whole)
    with pytest.raises(ValueError, match="4 rows of a batch cannot be divided among 3 processes"):
        own_rows(batch, InnerGroup(0, 3, 0))
