"""The states of the random number generators of a process that trains with PyTorch."""

from __future__ import annotations

import random

import numpy as np
import torch

from muster.replica.tiers.plain_state import StateDict


def random_state() -> StateDict:
    """The states of this process's random number generators: Python's, NumPy's, PyTorch's on every device."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def set_random_state(state: StateDict) -> None:
    """Restore the generators' states."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
