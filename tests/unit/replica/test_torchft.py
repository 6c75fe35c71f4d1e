"""torchft's own algorithms, unmodified, over our rendezvous."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torchft.local_sgd", reason="make test installs it")

import torch
from torchft import local_sgd

from muster.replica import keys
from muster.replica.errors import StoppedError
from muster.replica.metrics import Metrics
from muster.replica.rendezvous import Rendezvous
from muster.replica.torch import DiLoCo
from muster.replica.torchft import Manager
from tests.unit.replica.peers import Run
from tests.unit.replica.test_torch import together

SYNC_EVERY = 4
SEEDING = threading.Lock()  # the generator is one for all threads


def model_of() -> Any:
    with SEEDING:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(5, 6), torch.nn.ReLU(), torch.nn.Linear(6, 3))


def inner_steps(model: Any, optimizer: Any, rank: int, round_: int, after: Callable[[], object] = lambda: None) -> None:
    """What depends on rank and round alone: SYNC_EVERY steps."""
    generator = torch.Generator().manual_seed(1000 * round_ + rank)
    for _ in range(SYNC_EVERY):
        optimizer.zero_grad()
        model(torch.randn(8, 5, generator=generator)).square().mean().backward()
        optimizer.step()
        after()


def outer_of(model: Any) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def state_of(model: Any) -> bytes:
    return b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())


def train_with_torchft(rendezvous: Rendezvous, rounds: int, hook: Callable[[int], None] = lambda _: None) -> Any:
    model = model_of()
    manager = Manager(rendezvous, model)
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    with local_sgd.DiLoCo(manager, [model], inner, outer_of(model), sync_every=SYNC_EVERY):
        while manager.current_step() < rounds:
            hook(manager.current_step() + 1)
            inner_steps(model, inner, rendezvous.rank, manager.current_step() + 1)
    manager.shutdown()
    return model


def test_torchfts_diloco_gives_what_ours_gives_with_one_exchange_per_sync(tmp_path: Path) -> None:
    run = Run(tmp_path / "torchft", replicas=3)
    models = together(run, lambda rendezvous: train_with_torchft(rendezvous, rounds=5))
    assert len({state_of(model) for model in models}) == 1
    for round_ in range(1, 6):
        assert len(run.commit(round_).members) == 3
        assert run.commit(round_).count == 6 * 5 + 6 + 3 * 6 + 3

    def ours(rendezvous: Rendezvous) -> Any:
        model = model_of()
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        outer = DiLoCo(model, inner, rendezvous, sync_every=SYNC_EVERY)
        while outer.round < 5:
            inner_steps(model, inner, rendezvous.rank, outer.round + 1, outer.step)
        return model

    other = together(Run(tmp_path / "ours", replicas=3), ours)[0]
    for one, another in zip(models[0].parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, another, rtol=1e-4, atol=1e-6)
    # Only the last states are kept.
    states = tmp_path / "torchft" / keys.torchft_states_of(0)
    assert sorted(path.name for path in states.iterdir())[-1] == "00000005"
    assert not (states / "00000001").exists()


def test_torchfts_local_sgd_averages(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        model = torch.nn.Linear(1, 1, bias=False)
        manager = Manager(rendezvous, model)
        inner = torch.optim.SGD(model.parameters(), lr=1.0)
        with local_sgd.LocalSGD(manager, model, inner, sync_every=1):
            model.weight.data.fill_(3.0 * rendezvous.rank)
            model.weight.grad = torch.zeros_like(model.weight)
            inner.step()
        manager.shutdown()
        return model.weight.item()

    assert together(Run(tmp_path), work) == pytest.approx([3.0, 3.0, 3.0])


def test_torchfts_streaming_fragments_overlap(tmp_path: Path) -> None:
    def work(rendezvous: Rendezvous) -> Any:
        model = model_of()
        fragments = [model[0], model[2]]
        manager = Manager(rendezvous, model, fragments)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        algorithm = local_sgd.DiLoCo(
            manager, fragments, inner, [outer_of(part) for part in fragments], sync_every=2 * SYNC_EVERY,
            fragment_sync_delay=2,
        )  # fmt: skip
        with algorithm:
            for round_ in range(1, 7):
                inner_steps(model, inner, rendezvous.rank, round_)
        manager.shutdown()
        return [fragment.original_parameters for fragment in algorithm._fragments]

    run = Run(tmp_path)
    results = together(run, work)
    for result in results[1:]:
        for part, other in zip(results[0], result, strict=True):
            assert {name: bytes(t.numpy().tobytes()) for name, t in part.items()} == {
                name: bytes(t.numpy().tobytes()) for name, t in other.items()
            }
    assert [run.commit(round_).count for round_ in (1, 2, 3)] == [36, 21, 36]


def test_a_replica_that_is_killed_comes_back_with_the_outer_optimizer_of_the_others(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=2, min_participants=2)
    calm = Run(tmp_path / "undisturbed", replicas=2, min_participants=2)
    undisturbed = together(calm, lambda rendezvous: train_with_torchft(rendezvous, rounds=7))
    models: list[Any] = []
    stop = threading.Event()

    def dies(round_: int) -> None:
        if round_ == 4:
            raise StoppedError

    def replica(rank: int, attempt: int, hook: Callable[[int], None]) -> None:
        rendezvous = Rendezvous.open(run.meeting(stop=stop), rank, attempt, Metrics())
        try:
            models.append(train_with_torchft(rendezvous, 7, hook))
        except StoppedError:
            replica(rank, attempt + 1, lambda _: None)

    threads = [threading.Thread(target=replica, args=(rank, 1, (dies, lambda _: None)[rank])) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    stop.set()
    assert [member.attempt for member in run.commit(4).members] == [2, 1]
    assert [state_of(model) for model in models] == [state_of(model) for model in undisturbed]
