"""PyTorch replicas that are killed in the middle of a phase continue with the same bits, random numbers included."""

from __future__ import annotations

import io
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.frontends.torch_arrays import TorchArrays
from muster.replica.frontends.torch_state import random_state, set_random_state
from muster.replica.rendezvous import Outside
from muster.replica.replica_errors import ParametersError
from muster.replica.states.state_buffer import Layout, packed_state, state_in, unpacked_state
from muster.replica.states.state_tree import Filling
from muster.torch import Algorithm, DiLoCo
from tests.support.inner_training import inner_states_written
from tests.support.peers import Run

ALGORITHM = Algorithm(sync_every=25)


class Network(torch.nn.Module):
    """Dropout makes every step depend on the random numbers, and the norm has statistics and a counter."""

    def __init__(self, dtype: Any) -> None:
        super().__init__()
        self.first = torch.nn.Linear(6, 16, dtype=dtype)
        self.norm = torch.nn.BatchNorm1d(16)
        self.last = torch.nn.Linear(16, 3, dtype=dtype)

    def forward(self, inputs: Any) -> Any:
        hidden = torch.nn.functional.dropout(torch.relu(self.norm(self.first(inputs).float())), 0.2)
        return self.last(hidden.to(self.last.weight.dtype))


@dataclass
class Life:
    """One process of a replica that trains alone."""

    model: Any
    optimizer: Any
    schedule: Any
    outer: Any

    @classmethod
    def begin(cls, root: Path, attempt: int, kind: str, tiers: CheckpointTiers | None) -> Life:
        torch.manual_seed(11)
        model = Network(torch.bfloat16 if kind == "bfloat16" else torch.float32)
        if kind == "sharded":
            fully_shard(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.99**step)
        outside = Outside(checkpoints=tiers, local_states=root / "disk")
        outer = DiLoCo(
            Run.alone(root / "run").open(attempt=attempt, outside=outside),
            model,
            optimizer,
            ALGORITHM,
            trainer_state={"schedule": schedule},
            checkpoint_dir=root / "checkpoints",
        )
        return cls(model, optimizer, schedule, outer)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            inputs = torch.randn(8, 6).to(self.model.first.weight.dtype)
            self.optimizer.zero_grad()
            self.model(inputs).float().square().mean().backward()
            self.optimizer.step()
            self.schedule.step()
            self.outer.step(8)
            inner_states_written(self.outer)

    @property
    def done(self) -> int:
        return int(self.outer.round * ALGORITHM.interval + self.outer.steps)

    @property
    def everything(self) -> list[bytes]:
        states = [*self.model.state_dict().values(), torch.get_rng_state()]
        states += [value for held in self.optimizer.state_dict()["state"].values() for value in held.values()]
        whole = [state.full_tensor() if isinstance(state, DTensor) else state for state in states]
        return [state.float().numpy().tobytes() for state in whole] + [str(self.schedule.state_dict()).encode()]


@pytest.fixture
def connected(tmp_path: Path) -> Iterator[None]:
    """PyTorch connects the process with itself: what `fully_shard` makes of a model is distributed."""
    dist.init_process_group("gloo", init_method=(tmp_path / "store").as_uri(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.mark.usefixtures("connected")
def test_a_killed_process_continues_with_the_same_bits(tmp_path: Path) -> None:
    often = CheckpointTiers(memory_every=10, s3_every=20)
    # Without inner states it goes on at the beginning of the phase.
    cases = {27: often, 41: often, 50: None}
    for kind in ("float32", "bfloat16", "sharded"):
        whole = Life.begin(tmp_path / f"whole-{kind}", 1, kind, None)
        whole.train(60)
        for killed_after, tiers in cases.items():
            root = tmp_path / f"{kind}-{killed_after}"
            Life.begin(root, 1, kind, tiers).train(killed_after)
            again = Life.begin(root, 2, kind, tiers)
            assert 0 <= killed_after - again.done <= (10 if tiers else 0), (kind, killed_after)
            again.train(60 - again.done)
            assert again.everything == whole.everything, (kind, killed_after)


def state() -> dict[str, Any]:
    """Everything that a state of PyTorch holds, and some that none does."""
    shared = torch.arange(6, dtype=torch.float64)
    return {
        "tensors": {0: torch.randn(3, 4), 1: torch.ones(2, 3, dtype=torch.bfloat16), 2: torch.empty(0)},
        "types": [torch.tensor(3), torch.tensor([True, False]), torch.tensor([1, 2], dtype=torch.int16)],
        "not contiguous": torch.arange(12).reshape(3, 4).t(),
        "twice": (shared, [shared]),
        "numbers": (1, 2.5, "text", None, True),
        "array": np.arange(5, dtype=np.int32).reshape(5, 1),
        "empty": {},
        "filled": Filling(4, lambda room: np.copyto(room, np.arange(4, dtype=np.float32))),
    }


def test_every_state_comes_back_as_it_was() -> None:
    arrays = TorchArrays()
    given = state()
    layout = Layout.of(given, arrays, 0)
    memory = arrays.memory(layout.size + 100)
    layout.copy_to(memory, arrays)
    found = state_in(memory[: layout.size].data, len(layout.tree), arrays, 0)
    for name in ("numbers", "empty"):
        assert found[name] == given[name], name
    for name in ("tensors", "types", "not contiguous"):
        torch.testing.assert_close(found[name], given[name], rtol=0, atol=0)
    assert found["twice"][0] is found["twice"][1][0]
    np.testing.assert_array_equal(found["array"], given["array"])
    assert found["filled"].tolist() == [0, 1, 2, 3]


def test_a_state_executes_nothing_when_it_is_saved_or_loaded(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return partial(Path.touch, tmp_path / "executed"), ()

    with pytest.raises(ParametersError, match=r"trainer_state is of type .*Evil"):
        packed_state({"own": {"trainer": Evil()}}["own"], TorchArrays())
    file = io.BytesIO()
    torch.save(Evil(), file)
    with pytest.raises(pickle.UnpicklingError):
        TorchArrays().unpacked(file.getvalue())
    assert not (tmp_path / "executed").exists()


def test_the_states_of_pytorchs_own_objects_come_back_equal() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(0.1))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + np.cos(step / 9)))
    model(torch.ones(4, 3)).sum().backward()
    optimizer.step()
    schedule.step()
    given = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "schedule": {**schedule.state_dict(), "best": np.mean([0.5, 1.5])},
        "milestones": torch.optim.lr_scheduler.MultiStepLR(optimizer, [30, 60]).state_dict(),
        "random": random_state(),
        "library": [torch.float32, torch.device("cpu"), torch.Size([2, 3]), torch.nn.Parameter(torch.ones(2))],
        "view": torch.arange(1_000_000)[::500_000],
    }
    body = packed_state(given, TorchArrays())
    assert len(body) < 100_000
    found = unpacked_state(body, TorchArrays())
    assert found["model"]._metadata == given["model"]._metadata
    assert found["schedule"] == given["schedule"]
    assert type(found["schedule"]["_last_lr"][0]) is type(given["schedule"]["_last_lr"][0])
    assert found["milestones"] == given["milestones"]
    assert list(found["optimizer"]["state"]) == [0, 1, 2, 3]
    assert [type(item) for item in found["library"]] == [type(item) for item in given["library"]]
    assert found["view"].tolist() == given["view"].tolist()
    set_random_state(found["random"])
    optimizer.load_state_dict(found["optimizer"])
    schedule.load_state_dict(found["schedule"])
