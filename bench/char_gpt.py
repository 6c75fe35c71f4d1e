"""Training: the GPT example by four replicas over a local directory, against data parallel and torchft's DiLoCo.

All with the same model, data, seeds, inner optimizer and number of tokens; DiLoCo and torchft's with the same outer
settings. Processes are started as SageMaker starts them (`python -m muster.replica`), each with one thread. Where a
replica has several processes, they share its model (FSDP2) and divide its batches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from threading import Event
from typing import Any

from bench.replicas import Training, metrics_of
from bench.table import Row
from examples.char_gpt.baselines import data_parallel
from examples.char_gpt.learning import Settings

REPLICAS = 4
SYNC_EVERY = 50
SETTINGS: dict[str, Any] = {"steps": 600, "width": 48, "layers": 2, "batch_size": 8}
# DiLoCo's default outer momentum suits hundreds of rounds; twelve rounds need less. Every method with an outer momentum
# uses this one.
OUTER = {"sync_every": SYNC_EVERY, "outer_learning_rate": 0.9, "outer_momentum": 0.5}
# As often as in `make demo-gpt`, which the documentation shows.
OFTEN = {"sync_every": 20}
OURS, TORCHFT = "examples.char_gpt.trainer:train", "bench.char_gpt_torchft:train"


@dataclass(frozen=True)
class Outcome:
    """The output of a run's replicas."""

    loss: float
    utilisations: list[float]


def run() -> list[Row]:
    """One row for each comparison."""
    settings = Settings(**SETTINGS)
    fp32 = _train(OURS, {})
    four_bit = _train(OURS, {"codec": "int4"})
    # The transfer and the wait for slower replicas overlap with three in ten of the inner steps.
    overlapped = _train(OURS, {"delay": 15, "alpha": 0.5})
    often = _train(OURS, OFTEN)
    sharded = _train(OURS, OFTEN, processes=(2,) * REPLICAS)
    rare = _train(OURS, {"sync_every": 100}, processes=(4, 4))
    torchft = _train(TORCHFT, {})
    synchronous = data_parallel(settings, REPLICAS, settings.steps, Event())[-1][1]
    tokens = settings.steps * settings.batch_size * settings.length * REPLICAS
    same = f"{REPLICAS} replicas, H = {SYNC_EVERY}, {tokens:,} characters"
    blocked = 1 - fmean(overlapped.utilisations)
    return [
        Row(
            "4 replicas of 2 FSDP2 processes, loss / data parallel's",
            sharded.loss / synchronous,
            "",
            "<= 1.03",
            often.loss / synchronous,
            f"{REPLICAS} replicas, H = {OFTEN['sync_every']}, {tokens:,} characters; peer: of 1 process",
        ),
        Row(
            "blocked / wall, replicas of 4 processes, H = 100",
            1 - fmean(rare.utilisations),
            "",
            "<= 0.05",
            note="2 replicas, not overlapped; waits for slower replicas included",
        ),
        Row("DiLoCo's loss / torchft's DiLoCo's", fp32.loss / torchft.loss, "", "<= 1.02", note=same),
        Row("4-bit loss / fp32 loss", four_bit.loss / fp32.loss, "", "<= 1.01", note="int4 with error feedback"),
        Row("held-out loss, DiLoCo fp32", fp32.loss, "nats", peer=torchft.loss, note="peer: torchft's DiLoCo"),
        Row("held-out loss, DiLoCo 4-bit", four_bit.loss, "nats", peer=fp32.loss, note="peer: fp32"),
        Row("held-out loss, data parallel", synchronous, "nats", note="the same tokens, exchanged in every step"),
        Row("held-out loss, overlapped", overlapped.loss, "nats", note="15 steps' delay, alpha 0.5"),
        Row("blocked / wall, overlapped", blocked, "", "< 0.05", note="waits for slower replicas included"),
        Row(
            "blocked / wall, not overlapped",
            1 - fmean(fp32.utilisations),
            "",
            note="waits for slower replicas included",
        ),
    ]


def _train(trainer: str, settings: dict[str, Any], processes: Sequence[int] = (1,) * REPLICAS) -> Outcome:
    training = Training(trainer, {**SETTINGS, **OUTER, **settings}, processes)
    lines = metrics_of(training.printed())
    losses = {float(line["heldout"]) for line in lines if line.get("final") == "1"}
    if len(losses) != 1:
        message = f"the replicas of {trainer} ended with different losses: {sorted(losses)}"
        raise RuntimeError(message)
    return Outcome(losses.pop(), [float(line["utilisation"]) for line in lines if "utilisation" in line])
