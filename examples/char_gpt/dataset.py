"""The text that any machine with Python has: the standard library's sources, as numbers, dealt out to the replicas."""

from __future__ import annotations

import sysconfig
from pathlib import Path
from typing import Any

import numpy as np
import torch

VOCABULARY = 128  # ASCII; whatever lies beyond is written as "?"
TEXT_BYTES = 4_000_000
HELD_OUT_SHARE = 0.1
# Not the standard library's own, or not written by people.
_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idlelib", "lib2to3", "__pycache__", "pydoc_data"}


def load() -> tuple[torch.Tensor, torch.Tensor]:
    """Training text and held-out text as bytes below VOCABULARY; the same on every machine with the same Python."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = sorted(path for path in root.rglob("*.py") if not _LEFT_OUT & set(path.relative_to(root).parts))
    # A fixed shuffle: held out is a mixture of modules as the rest is.
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
    """The part of the text that replica `rank` sees, and no other replica does."""
    return text[len(text) * rank // world_size : len(text) * (rank + 1) // world_size]


class Windows:
    """Batches of windows of a text, in an order drawn once: none comes again before all others came.

    It knows where it stands, so that a replica that comes back goes on with the next batch.
    """

    def __init__(self, text: torch.Tensor, length: int, seed: int) -> None:
        self._text = text
        self._length = length
        self._seed = seed
        self.position = 0

    def batch(self, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The next `size` windows and, shifted by one, what is to be foretold: (size, length) each."""
        starts = [self._start(self.position + index) for index in range(size)]
        self.position += size
        rows = torch.stack([self._text[start : start + self._length + 1] for start in starts]).long()
        return rows[:, :-1], rows[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        """How many windows were given out."""
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.position = state_dict["position"]

    def _start(self, index: int) -> int:
        windows = (len(self._text) - 1) // self._length
        epoch, place = divmod(index, windows)
        if self._order is None or self._order[0] != epoch:
            self._order = epoch, np.random.default_rng((self._seed, epoch)).permutation(windows)
        return int(self._order[1][place]) * self._length

    _order: tuple[int, np.ndarray[Any, np.dtype[np.int64]]] | None = None
