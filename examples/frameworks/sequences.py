"""Data that every machine has: sequences of tokens in which each token follows from the one before."""

from __future__ import annotations

import torch

VOCABULARY = 32
LENGTH = 16


def sequences(count: int, seed: int) -> torch.Tensor:
    """`count` sequences of LENGTH tokens, (count, LENGTH); another `seed` gives others."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(VOCABULARY, (count, 1), generator=generator)
    for _ in range(LENGTH - 1):
        tokens = torch.cat([tokens, (5 * tokens[:, -1:] + 3) % VOCABULARY], dim=1)
    return tokens
