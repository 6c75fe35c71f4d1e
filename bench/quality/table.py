"""The table of quality per byte: which trainings it has, and what those that are stored say.

Each training is stored as a line of `results.jsonl`, so that an interrupted table goes on where it was. What is tuned
is tuned with one seed by the grids below; the rows have three.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

from bench.quality.training import Setting

RESULTS = Path(__file__).with_name("results.jsonl")
SEEDS = (0, 1, 2)
OPTIMIZERS = ("adamw", "muon")
LEARNING_RATES = (2e-3, 4e-3, 8e-3, 1.6e-2)
# Of data parallelism; Muon's was best at the end of the others' grid.
ALONE_RATES = {"adamw": LEARNING_RATES, "muon": (*LEARNING_RATES, 3.2e-2)}
SYNC_EVERY = (30, 100, 500)
DENSE, SPARSE = ("fp32", "int4"), ("topk2-64", "topk2-128")
# Learning rate and momentum of the outer optimizer, for dense codecs: int4 takes what is best for fp32.
OUTER = [(1.0, 0.0), (1.0, 0.5), (0.7, 0.8), (0.7, 0.9)]
# And with the decay of the error feedback for sparse ones, tuned for the sparsest; the first is SparseLoCo's (arXiv
# 2508.15706).
SPARSE_OUTER = [(1.0, 0.0, 0.95), (0.7, 0.5, 0.95), (1.0, 0.0, 1.0), (0.7, 0.8, 0.95), (0.7, 0.9, 0.95)]
# Sparse codecs need rounds: a training of so many steps has 200. Of Muon alone, tuned round what is best for few steps.
LONG_STEPS = 6_000
# The learning rates of data parallelism, and of four replicas with fp32 and with the sparsest codec.
LONG_RATES = ((4e-3, 8e-3, 1.6e-2), (2e-3, 4e-3, 8e-3), (4e-3, 8e-3, 1.6e-2))

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
    """The rows of which a seed is there."""
    seeded = {row: [replace(row, seed=seed) for seed in SEEDS] for row in _rows(losses)}
    made = [Line(row, tuple(losses[one] for one in each if one in losses)) for row, each in seeded.items()]
    return [line for line in made if line.losses]


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
    """The grids and the plain rows by the number of steps between exchanges, the other rows; then the other seeds."""
    for optimizer in OPTIMIZERS:
        yield from _alone_grid(optimizer)
        yield from _inner_grid(optimizer)
    plain, long, rows = list(_plain(losses)), list(_long(losses)), list(_rows(losses))
    for every in SYNC_EVERY:
        for optimizer in OPTIMIZERS:
            if (inner := _best(losses, _inner_grid(optimizer))) is not None:
                for codec in ("fp32", SPARSE[0]):
                    yield from _outer_grid(replace(inner, sync_every=every, codec=codec))
        yield from (row for row in plain if row.sync_every == every)
    yield from _long_grids(losses)
    yield from long
    # Long phases last: they tell the least.
    rows.sort(key=lambda row: row.sync_every)
    short = [row for row in plain if row.sync_every < SYNC_EVERY[-1]]
    for each in (short, long, rows):
        for seed in SEEDS:
            yield from (replace(row, seed=seed) for row in each)


def _plain(losses: Losses) -> Iterator[Setting]:
    """The rows that come first: of four replicas and the smaller model, and data parallelism's."""
    yield from _alone(losses, "once")
    yield from _of(losses, "once", "mean", 4)


def _rows(losses: Losses) -> Iterator[Setting]:
    """The table's settings whose grids are there: the plain ones of four replicas, then the others."""
    yield from _plain(losses)
    yield from _long(losses)
    yield from _alone(losses, "twice")
    yield from _of(losses, "twice", "mean", 4)
    for average, replicas in (("rda", 4), ("mean", 8), ("rda", 8)):
        yield from _of(losses, "once", average, replicas)


def _long_grids(losses: Losses) -> Iterator[Setting]:
    alone, *together = _long_rates()
    yield from alone
    for grid in together:
        yield from grid
        if (inner := _best(losses, grid)) is not None:
            yield from _outer_grid(inner)


def _long(losses: Losses) -> Iterator[Setting]:
    """Of data parallelism and of four replicas with each codec; and fewer exchanges of many bits."""
    alone, *together = _long_rates()
    if (best := _best(losses, alone)) is not None:
        yield best
    for grid, codecs in zip(together, (DENSE, SPARSE), strict=True):
        inner = _best(losses, grid)
        if inner is not None and (best := _best(losses, _outer_grid(inner))) is not None:
            yield from (replace(best, codec=codec) for codec in codecs)
    if (inner := _best(losses, together[0])) is not None:
        rate, every = inner.learning_rate, SYNC_EVERY[1:]
        few = (row for row in _plain(losses) if row.optimizer == "muon" and row.codec == "int4")
        yield from (replace(row, steps=LONG_STEPS, learning_rate=rate) for row in few if row.sync_every in every)


def _long_rates() -> list[list[Setting]]:
    alone, fp32 = _alone_grid("muon")[0], _inner_grid("muon")[0]
    sparse = _outer_grid(replace(fp32, codec=SPARSE[0]))[0]
    long = (replace(like, steps=LONG_STEPS) for like in (alone, fp32, sparse))
    return [[replace(like, learning_rate=rate) for rate in rates] for like, rates in zip(long, LONG_RATES, strict=True)]


def _alone(losses: Losses, size: str) -> Iterator[Setting]:
    """Data parallelism, at its best learning rate."""
    for optimizer in OPTIMIZERS:
        if (alone := _best(losses, _alone_grid(optimizer))) is not None:
            yield replace(alone, size=size)


def _of(losses: Losses, size: str, average: str, replicas: int) -> Iterator[Setting]:
    for every in SYNC_EVERY:
        for optimizer in OPTIMIZERS:
            # RDA scales the mean of sparse values, and so breaks their error feedback.
            for codec in DENSE if average == "rda" else (*DENSE, *SPARSE):
                inner = _best(losses, _inner_grid(optimizer))
                if inner is None or (codec == SPARSE[1] and replicas != 4):
                    continue
                best = _best(losses, _outer_grid(replace(inner, sync_every=every, codec=_tuned_as(codec))))
                if best is not None:
                    yield replace(best, codec=codec, size=size, average=average, replicas=replicas)


def _alone_grid(optimizer: str) -> list[Setting]:
    return [Setting(optimizer=optimizer, learning_rate=rate) for rate in ALONE_RATES[optimizer]]


def _inner_grid(optimizer: str) -> list[Setting]:
    like = Setting(optimizer=optimizer, replicas=4, sync_every=SYNC_EVERY[0], outer=OUTER[1])
    return [replace(like, learning_rate=rate) for rate in LEARNING_RATES]


def _outer_grid(like: Setting) -> list[Setting]:
    dense, sparse = OUTER, SPARSE_OUTER
    if like.steps == LONG_STEPS:
        dense, sparse = OUTER[1:], SPARSE_OUTER[:4]
    elif like.sync_every > SYNC_EVERY[0]:
        # Momentum suits many rounds, and was far off in fifty.
        dense, sparse = OUTER[:3], SPARSE_OUTER[:2]
    if like.codec in DENSE:
        return [replace(like, outer=outer) for outer in dense]
    return [replace(like, outer=(rate, momentum), feedback_decay=decay) for rate, momentum, decay in sparse]


def _tuned_as(codec: str) -> str:
    """The codec whose outer settings it takes."""
    return "fp32" if codec in DENSE else SPARSE[0]


def _best(losses: Losses, grid: list[Setting]) -> Setting | None:
    """The setting with the lowest loss; None: some are not there yet."""
    if any(setting not in losses for setting in grid):
        return None
    return min(grid, key=lambda setting: losses[setting])
