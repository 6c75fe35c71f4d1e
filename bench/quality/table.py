"""The table of quality per byte: which trainings it has, and what those that are stored say.

Each training is stored as a line of `results.jsonl`, so that an interrupted table goes on where it was. What is tuned
is tuned with one seed by the grids below; the rows have three.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from bench.quality.training import Setting

RESULTS = Path(__file__).with_name("results.jsonl")
SEEDS = (0, 1, 2)
OPTIMIZERS = ("adamw", "muon")
LEARNING_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2)
SYNC_EVERY = (30, 100, 500)
REPLICAS = (4, 8)
DENSE, SPARSE = ("fp32", "int4"), ("topk2-64", "topk2-128")
# Learning rate and momentum of the outer optimizer, for dense codecs: int4 takes what is best for fp32.
OUTER = ((1.0, 0.0), (1.0, 0.5), (0.7, 0.8), (0.7, 0.9))
# And with the decay of the error feedback for sparse ones, tuned for the sparsest; the first is SparseLoCo's (arXiv
# 2508.15706).
SPARSE_OUTER = ((1.0, 0.0, 0.95), (1.0, 0.0, 1.0), (0.7, 0.5, 0.95), (0.7, 0.8, 0.95), (0.7, 0.9, 0.95))

Losses = Mapping[Setting, float]


@dataclass(frozen=True)
class Line:
    """A row of the table: a setting, without its seed, and the losses of the seeds that are there."""

    setting: Setting
    losses: tuple[float, ...]

    @property
    def mean(self) -> float:
        """Of the seeds."""
        return fmean(self.losses)

    @property
    def spread(self) -> float:
        """The standard deviation among the seeds."""
        return stdev(self.losses) if len(self.losses) > 1 else 0.0


def stored(path: Path = RESULTS) -> dict[Setting, float]:
    """The losses that are stored."""
    losses = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
        document = json.loads(line)
        fields = {**document["setting"], "outer": tuple(document["setting"].get("outer", Setting().outer))}
        losses[Setting(**fields)] = float(document["loss"])
    return losses


def store(setting: Setting, loss: float, seconds: float, path: Path = RESULTS) -> None:
    """Add a line."""
    document = {"setting": setting.document(), "loss": round(loss, 5), "seconds": round(seconds, 1)}
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(document) + "\n")


def pending(losses: Losses) -> Iterator[Setting]:
    """The trainings that are wanted next, the most telling first; those that wait for a grid come later."""
    for setting in _wanted(losses):
        if setting not in losses:
            yield setting


def lines(losses: Losses) -> list[Line]:
    """The rows whose seeds are all there."""
    made = []
    for setting in _rows(losses):
        found = [losses[seeded] for seed in SEEDS if (seeded := replace(setting, seed=seed)) in losses]
        if len(found) == len(SEEDS):
            made.append(Line(setting, tuple(found)))
    return made


def best_settings(losses: Losses) -> list[Setting]:
    """What the grids have found for four replicas and few steps between exchanges, and for data parallelism."""
    return [each for each in _plain(losses) if each.sync_every in {0, SYNC_EVERY[0]}]


def _wanted(losses: Losses) -> Iterator[Setting]:
    """Without repetitions."""
    seen = set()
    for setting in _in_order(losses):
        if setting not in seen:
            seen.add(setting)
            yield setting


def _in_order(losses: Losses) -> Iterator[Setting]:
    """The grids; after those of a number of steps between exchanges, the rows that need no others."""
    for optimizer in OPTIMIZERS:
        yield from _alone_grid(optimizer)
        yield from _inner_grid(optimizer)
    rows = list(_rows(losses))
    for every in SYNC_EVERY:
        for optimizer in OPTIMIZERS:
            if (inner := _best(losses, _inner_grid(optimizer))) is not None:
                for codec in ("fp32", SPARSE[0]):
                    yield from _outer_grid(replace(inner, sync_every=every, codec=codec))
        yield from _seeded(row for row in rows if row.sync_every in {0, every} and row in _plain(losses))
    yield from _seeded(rows)


def _seeded(rows: Iterable[Setting]) -> Iterator[Setting]:
    for setting in rows:
        yield from (replace(setting, seed=seed) for seed in SEEDS)


def _plain(losses: Losses) -> Iterator[Setting]:
    """The rows that come first: of four replicas and the smaller model, and data parallelism's."""
    yield from _alone(losses, "once")
    yield from _of(losses, "once", "mean", 4)


def _rows(losses: Losses) -> Iterator[Setting]:
    """The table's settings whose grids are there: the plain ones of four replicas, then the others."""
    yield from _plain(losses)
    yield from _alone(losses, "twice")
    yield from _of(losses, "twice", "mean", 4)
    for average, replicas in (("rda", 4), ("mean", 8), ("rda", 8)):
        yield from _of(losses, "once", average, replicas)


def _alone(losses: Losses, size: str) -> Iterator[Setting]:
    """Data parallelism, at its best learning rate."""
    for optimizer in OPTIMIZERS:
        if (alone := _best(losses, _alone_grid(optimizer))) is not None:
            yield replace(alone, size=size)


def _of(losses: Losses, size: str, average: str, replicas: int) -> Iterator[Setting]:
    for every in SYNC_EVERY:
        for optimizer in OPTIMIZERS:
            for codec in (*DENSE, *SPARSE):
                inner = _best(losses, _inner_grid(optimizer))
                if inner is None or (codec == SPARSE[1] and (average, replicas) != ("mean", 4)):
                    continue
                like = "fp32" if codec in DENSE else SPARSE[0]
                best = _best(losses, _outer_grid(replace(inner, sync_every=every, codec=like)))
                if best is not None:
                    yield replace(best, codec=codec, size=size, average=average, replicas=replicas)


def _alone_grid(optimizer: str) -> list[Setting]:
    return [Setting(optimizer=optimizer, learning_rate=rate) for rate in LEARNING_RATES]


def _inner_grid(optimizer: str) -> list[Setting]:
    like = Setting(optimizer=optimizer, replicas=4, sync_every=SYNC_EVERY[0], outer=OUTER[1])
    return [replace(like, learning_rate=rate) for rate in LEARNING_RATES]


def _outer_grid(like: Setting) -> list[Setting]:
    if like.codec in DENSE:
        return [replace(like, outer=outer) for outer in OUTER]
    return [replace(like, outer=(rate, momentum), feedback_decay=decay) for rate, momentum, decay in SPARSE_OUTER]


def _best(losses: Losses, grid: list[Setting]) -> Setting | None:
    """The setting with the lowest loss; None: some are not there yet."""
    if any(setting not in losses for setting in grid):
        return None
    return min(grid, key=lambda setting: losses[setting])
