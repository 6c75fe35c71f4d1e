"""scikit-learn's digits: 1,797 images of 8 x 8 pixels, with a fixed split, divided among the replicas."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import distribution

import numpy as np
from numpy.typing import NDArray

# scikit-learn is not imported: with SciPy and all the rest that would take each replica a second.
_FILE = distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")
HELD_OUT = 599  # a third: one percentage point is six images
SPLIT_SEED = 20_261  # the split is the same for every replica, every run and the baseline


@dataclass(frozen=True)
class Examples:
    """Images (n, 64) in [0, 1] and their labels (n,)."""

    images: NDArray[np.float32]
    labels: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: NDArray[np.int64] | slice) -> Examples:
        return Examples(self.images[index], self.labels[index])


def load() -> tuple[Examples, Examples]:
    """Training examples and held-out examples."""
    rows = np.loadtxt(str(_FILE), delimiter=",")
    images, labels = rows[:, :-1], rows[:, -1]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(labels))
    every = Examples((images / 16).astype(np.float32)[order], labels.astype(np.int64)[order])
    return every[HELD_OUT:], every[:HELD_OUT]


def shard(examples: Examples, rank: int, world_size: int) -> Examples:
    """The part of `examples` that replica `rank` alone sees."""
    return examples[slice(rank, None, world_size)]
