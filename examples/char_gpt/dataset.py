"""A text that every machine with Python has: the standard library's sources, split among the replicas."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

VOCABULARY = 128  # ASCII; other characters become "?"
TEXT_BYTES = 4_000_000
HELD_OUT_SHARE = 0.1
# Not part of the standard library, or generated.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Training text and held-out text as bytes below VOCABULARY; the same on every machine with the same Python."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if not _LEFT_OUT & set(path.relative_to(root).parts))
    # A fixed shuffle, so that the held-out text is a mixture of modules like the rest.
    order = np.random.default_rng(2_026).permutation(len(files))
    pieces, total = [], 0
    for index in order:
        pieces.append(np.frombuffer(files[index].read_bytes(), np.uint8))
        total += pieces[-1].size
        if total >= TEXT_BYTES:
            break
    text = np.concatenate(pieces)[:TEXT_BYTES]
    text = np.where(text < VOCABULARY, text, ord("?")).astype(np.uint8)
    border = int(text.size * (1 - HELD_OUT_SHARE))
    return torch.from_numpy(text[:border]), torch.from_numpy(text[border:])


def shard(text: torch.Tensor, rank: int, world_size: int) -> torch.Tensor:
    """The part of the text that replica `rank` alone sees."""
    return text[len(text) * rank // world_size : len(text) * (rank + 1) // world_size]


class Windows:
    """Batches of windows of a text in random order: each window appears once per epoch.

    Its state is the position, so that a restarted replica continues with the next batch.
    """

    def __init__(self, text: torch.Tensor, length: int, seed: int) -> None:
        self._text = text
        self._length = length
        self._seed = seed
        self.position = 0

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The next `size` windows and the targets, which are shifted by one: (size, length) each."""
        starts = [self._start(self.position + index) for index in range(size)]
        self.position += size
        rows = torch.stack([self._text[start : start + self._length + 1] for start in starts]).long()
        return rows[:, :-1], rows[:, 1:]

    def state_dict(self) -> dict[str, int]:
        """The number of windows returned so far."""
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue from that position."""
        self.position = state_dict["position"]

    def _start(self, index: int) -> int:
        windows = (len(self._text) - 1) // self._length
        epoch, place = divmod(index, windows)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(windows)
        return int(self._order[1][place]) * self._length

    _order: tuple[int, NDArray[np.int64]] | None = None
