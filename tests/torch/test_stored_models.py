"""A PyTorch model as a run leaves it: which tensors, in which types, as the safetensors library and PyTorch read it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="make test installs it")

import torch
from safetensors import safe_open
from safetensors.torch import load_file, load_model

from muster.replica.errors import ParametersError
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.local_store import LocalStore
from muster.torch import Algorithm, DiLoCo, FinalModel
from tests.support.peers import Run

Change = Callable[[torch.nn.Module], None]


class Model(torch.nn.Module):
    """Tied weights, statistics, a counter, a mask, a frozen part, a transposed weight, a cache that is not saved."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(7, 4, dtype=torch.bfloat16)
        self.norm = torch.nn.BatchNorm1d(4)
        self.output = torch.nn.Linear(4, 7, dtype=torch.bfloat16)
        self.output.weight = self.embedding.weight
        self.frozen = torch.nn.Linear(2, 3, dtype=torch.float16).requires_grad_(False)
        self.turned = torch.nn.Parameter(torch.arange(6.0).view(2, 3).t())
        self.scale = torch.nn.Parameter(torch.tensor(0.5, dtype=torch.float64))
        self.register_buffer("mask", torch.tensor([True, False]))
        self.register_buffer("cache", torch.zeros(5), persistent=False)


def left_by(folder: Path, model: torch.nn.Module, final_model: FinalModel, change: Change) -> Path:
    """Train one round, in which `change` changes the model, and leave; returns the folder of the run's model."""
    run = Run(folder / "rendezvous", replicas=1, min_participants=1)
    context = replace(run.context(), results=LocalStore(folder))
    rendezvous = Rendezvous.open(context, 0, 1, Metrics())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    outer = DiLoCo(rendezvous, model, optimizer, Algorithm(momentum=0.0, learning_rate=1.0), final_model=final_model)
    with torch.no_grad():
        change(model)
    outer.step()
    outer.finish()
    return folder / "model"


def move(model: torch.nn.Module) -> None:
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.add_(1.0)
    for name, buffer in model.named_buffers():
        if name == "norm.num_batches_tracked":
            buffer.fill_(12_345)


def test_what_is_left_is_the_state_of_the_model_and_loads_into_a_new_one(tmp_path: Path) -> None:
    model = Model()
    folder = left_by(tmp_path, model, FinalModel(), move)
    stored = load_file(folder / "model.safetensors")
    expected = {name: value for name, value in model.state_dict().items() if name != "output.weight"}
    assert stored.keys() == expected.keys()
    for name, value in expected.items():
        assert stored[name].dtype == value.dtype, name
        assert torch.equal(stored[name], value), name
    assert stored["norm.num_batches_tracked"].item() == 12_345
    with safe_open(folder / "model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}
    # Tied weights are stored once, as Hugging Face does it, and the library ties them again.
    other = Model()
    load_model(other, folder / "model.safetensors")
    assert torch.equal(other.output.weight, model.output.weight)
    assert other.output.weight is other.embedding.weight


def test_wrappers_change_no_name(tmp_path: Path) -> None:
    inner = torch.nn.Sequential(torch.nn.Linear(3, 5))
    folder = left_by(tmp_path, torch.compile(inner), FinalModel(), move)
    assert set(load_file(folder / "model.safetensors")) == {"0.weight", "0.bias"}


class Adapted(torch.nn.Module):
    """As PEFT names it."""

    def __init__(self) -> None:
        super().__init__()
        layer = torch.nn.Module()
        layer.base_layer = torch.nn.Linear(4, 4)
        layer.lora_A = torch.nn.ModuleDict({"default": torch.nn.Linear(4, 2, bias=False)})
        layer.lora_B = torch.nn.ModuleDict({"default": torch.nn.Linear(2, 4, bias=False)})
        self.base_model = torch.nn.Module()
        self.base_model.model = torch.nn.Module()
        self.base_model.model.layer = layer.requires_grad_(False)
        for adapter in (layer.lora_A, layer.lora_B):
            adapter.requires_grad_(True)


class AdapterConfig:
    """As PEFT's."""

    def save_pretrained(self, folder: str) -> None:
        (Path(folder) / "adapter_config.json").write_text("{}")


def test_of_an_adapter_only_what_was_trained_is_left(tmp_path: Path) -> None:
    model = Adapted()
    folder = left_by(tmp_path, model, FinalModel([AdapterConfig()], adapter="default"), move)
    assert sorted(path.name for path in folder.iterdir()) == ["adapter_config.json", "adapter_model.safetensors"]
    stored = load_file(folder / "adapter_model.safetensors")
    layer = model.base_model.model.layer
    assert stored.keys() == {f"base_model.model.layer.lora_{name}.weight" for name in "AB"}
    assert torch.equal(stored["base_model.model.layer.lora_A.weight"], layer.lora_A["default"].weight)


def test_a_tensor_that_cannot_be_stored_is_refused_before_training(tmp_path: Path) -> None:
    model = torch.nn.Linear(2, 1)
    model.register_buffer("rotation", torch.zeros(2, dtype=torch.complex64))
    reason = r"cannot be stored as safetensors: rotation is torch.complex64 on cpu\."
    with pytest.raises(ParametersError, match=reason):
        left_by(tmp_path, model, FinalModel(), move)
    left_by(tmp_path / "adapter", model, FinalModel(adapter="default"), move)


def test_a_model_is_no_file_beside_its_weights(tmp_path: Path) -> None:
    wishes: Any = [torch.nn.Linear(2, 1)]
    with pytest.raises(ParametersError, match=r"FinalModel.beside\[0\] is a model, whose weights Muster writes"):
        FinalModel(wishes)
