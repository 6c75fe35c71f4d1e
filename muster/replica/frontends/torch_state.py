"""A PyTorch trainer's state as bytes: written by torch.save, and read without executing code from it."""

from __future__ import annotations

import io
import random
from collections.abc import Mapping

import numpy as np
import torch

from muster.replica.frontends import plain_state
from muster.replica.frontends.plain_state import Packed, StateDict

# The trainer's own state may hold NumPy arrays; torch.load(weights_only=True) loads only what is listed here.
_NUMPY = [
    np._core.multiarray._reconstruct,  # type: ignore[attr-defined]
    np.ndarray,
    np.dtype,
    *{type(np.dtype(code)) for code in np.typecodes["AllInteger"] + np.typecodes["AllFloat"] + "?"},
]


def pack_torch(state: StateDict) -> Packed:
    """Bytes of a nested state of tensors, arrays, numbers and strings."""
    file = io.BytesIO()
    torch.save(state, file)
    # Not a second copy.
    return file.getbuffer()


def unpack_torch(body: Packed) -> StateDict:
    """The state, its tensors on the CPU."""
    with torch.serialization.safe_globals(_NUMPY):
        state: StateDict = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
    return state


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


def is_finite(state: object) -> bool:
    """Whether no tensor or array of a nested state holds NaN or infinity; as `plain_state.is_finite`."""
    if isinstance(state, Mapping):
        return all(is_finite(item) for item in state.values())
    if isinstance(state, list | tuple):
        return all(is_finite(item) for item in state)
    if isinstance(state, torch.Tensor):
        return bool(torch.isfinite(state).all())
    return plain_state.is_finite(state)
