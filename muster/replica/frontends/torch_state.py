"""What a PyTorch trainer goes on from, as bytes: written by torch.save, read without running any code in it."""

from __future__ import annotations

import io
import random
from typing import Any

import numpy as np
import torch

# NumPy arrays may be among the trainer's own state; torch.load(weights_only=True) builds only what is named here.
_NUMPY = [
    np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"},
]


def pack_torch(state: dict[str, Any]) -> bytes:
    """Bytes of a nested state of tensors, arrays, numbers and texts."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def unpack_torch(body: bytes) -> dict[str, Any]:
    """The state, its tensors on the CPU."""
    with torch.serialization.safe_globals(_NUMPY):
        state: dict[str, Any] = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    return state


def random_state() -> dict[str, Any]:
    """Where the random number generators of this process stand: Python's, NumPy's, PyTorch's on every device."""
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(legacy=False),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],  # type: ignore[no-untyped-call]
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Put the generators where they stood."""
    random.setstate(state["python"])
    np.random.set_state(state["numpy"])
    torch.set_rng_state(state["torch"])
    if state["cuda"] and torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])
