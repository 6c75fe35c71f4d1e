"""What DiLoCo costs a model that trains on a GPU: time of its steps, copies from and to it, and its memory.

One replica whose model FSDP2 shards over NCCL (a process is all that one GPU allows), alone in its run: it encodes,
stores and decodes as with others. First the same training without DiLoCo, in the same process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

from bench.replicas import Training, metrics_of
from bench.table import Row
from muster.replica.free_memory import pages
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.torch import Algorithm, Context, DiLoCo

ON_REQUEST = True  # needs a GPU

WIDTH, LAYERS, BATCH, LENGTH = 1024, 12, 16, 1024  # 152 million parameters
VOCABULARY = 256
CODECS = ("fp32", "int4")
STEPS, DELAY = 100, 90
ROUNDS = 4

_HEAD_WIDTH = 64
_TRIES = 5
_WARM_UP = 10
_BESIDE = 20  # so many steps after it has begun, an exchange is still running


def run() -> list[Row]:
    """All rows; a few minutes on one GPU."""
    return [row for codec in CODECS for row in _rows(codec)]


def train(
    context: Context, *, codec: str, width: int, layers: int, batch: int, length: int, steps: int, delay: int
) -> None:
    """Print seconds and bytes: of training without DiLoCo, of copies, and of rounds."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    backend = "nccl" if device.type == "cuda" else "gloo"
    store = dist.HashStore()  # type: ignore[attr-defined]
    dist.init_process_group(backend, store=store, rank=0, world_size=1)
    model = _model(width, layers, device)
    inner = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=device.type == "cuda")
    text = torch.randint(VOCABULARY, (batch, length + 1), device=device)

    def step() -> None:
        loss = torch.nn.functional.cross_entropy(model(text[:, :-1]).flatten(0, 1).float(), text[:, 1:].flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        inner.step()
        inner.zero_grad()

    for _ in range(_WARM_UP):
        step()
    _reset_peak(device)
    alone = median(_seconds(device, step) for _ in range(steps))
    found: dict[str, Any] = {"alone": alone, "peak_alone": _peak(device), **_copies(model, device)}
    _reset_peak(device)
    outer = DiLoCo(context.rendezvous, model, inner, Algorithm(steps, delay=delay, codec=codec))
    apart, beside, blocked = [], [], []
    for number in range(ROUNDS * steps):
        seconds = _seconds(device, step)
        if steps - delay < number % steps <= steps - delay + _BESIDE:
            beside.append(seconds)
        elif number % steps < steps - delay:
            apart.append(seconds)
        blocked.append(_seconds(device, outer.step))
    found |= {
        # Of the same rounds: the clock of a GPU is not the same all the time.
        "beside": median(beside[_BESIDE:]) / median(apart[steps - delay :]),
        "blocked": sum(blocked[steps:]) / (ROUNDS - 1),
        "longest": max(blocked[steps:]),
        "peak": _peak(device),
    }
    outer.finish()
    dist.destroy_process_group()
    print(f"found={json.dumps(found, separators=(',', ':'))}", flush=True)


def _model(width: int, layers: int, device: torch.device) -> torch.nn.Module:
    blocks = [
        torch.nn.TransformerEncoderLayer(width, max(1, width // _HEAD_WIDTH), 4 * width, 0.0, batch_first=True)
        for _ in range(layers)
    ]
    model = torch.nn.Sequential(torch.nn.Embedding(VOCABULARY, width), *blocks, torch.nn.Linear(width, VOCABULARY))
    model.to(device)
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    for layer in model:
        fully_shard(layer, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def _copies(model: torch.nn.Module, device: torch.device) -> dict[str, float]:
    """Seconds to copy the model as DiLoCo does, and as one array from and to page-locked memory; the best of tries."""
    packing = TensorPacking(model)
    flat, held = pages(4 * packing.count).view(np.float32), torch.zeros(packing.count, device=device)
    packing.lock(flat)
    packing.read(room=flat)
    locked = torch.zeros(packing.count, pin_memory=device.type == "cuda")
    tried: dict[str, Callable[[], object]] = {
        "read": lambda: packing.read(room=flat),
        "read_plain": lambda: locked.copy_(held),
        "write": lambda: packing.write(flat),
        "write_plain": lambda: held.copy_(locked),
        "host_copy": lambda: np.copyto(locked.numpy(), flat),
    }
    seconds = {name: min(_seconds(device, copy) for _ in range(_TRIES)) for name, copy in tried.items()}
    return {**seconds, "bytes": float(flat.nbytes)}


def _seconds(device: torch.device, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - began


def _reset_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> int:
    return torch.cuda.max_memory_allocated(device) if device.type == "cuda" else 0


def _rows(codec: str) -> list[Row]:
    size = {"width": WIDTH, "layers": LAYERS, "batch": BATCH, "length": LENGTH, "steps": STEPS, "delay": DELAY}
    training = Training("bench.gpu:train", {"codec": codec, **size}, (1,))
    found = next(json.loads(line["found"]) for line in metrics_of(training.printed()) if "found" in line)
    model = found["bytes"]
    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    note = f"{name}, FSDP2 and NCCL, {model / 4e6:.0f}m parameters, {STEPS} steps a round, {DELAY} of them beside it"
    alone = STEPS * found["alone"]
    return [
        Row(f"{codec}: a round's calls of DiLoCo.step", found["blocked"] / alone, "of its steps", "<= 0.02", note=note),
        Row(f"{codec}: the longest of them", found["longest"] * 1e3, "ms"),
        Row(f"{codec}: a step beside an exchange", found["beside"], "x one before it", "<= 1.05"),
        Row(f"{codec}: a step alone", found["alone"] * 1e3, "ms"),
        Row(f"{codec}: more GPU memory", (found["peak"] - found["peak_alone"]) / model, "of the model", "<= 0.1"),
        Row(f"{codec}: the model read from the GPU", found["read"] / found["read_plain"], "x a plain copy", "<= 2"),
        Row(f"{codec}: the model written to it", found["write"] / found["write_plain"], "x a plain copy", "<= 2"),
        Row(f"{codec}: a plain copy from the GPU", model / found["read_plain"] / 1e9, "GB/s"),
        Row(f"{codec}: a copy in the host's memory", model / found["host_copy"] / 1e9, "GB/s"),
    ]
