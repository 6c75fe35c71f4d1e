"""PyTorch's tensors in the buffer of a stored state; see `muster/replica/states/state_buffer.py`."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import torch

from muster.replica.states.state_buffer import PlainArrays
from muster.replica.states.state_tree import Kind, Room

_NAMES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.float8_e4m3fn, torch.float8_e5m2),
    )
}
_TENSOR = "torch."


class TorchArrays(PlainArrays):
    """Tensors on any device, beside NumPy's arrays. They are restored on the CPU."""

    def __init__(self) -> None:
        self._queued: set[torch.device] = set()

    def kind(self, value: object) -> Kind | None:
        """Contiguous dense tensors of ordinary types; see `packed` for others, and for those without elements."""
        if not isinstance(value, torch.Tensor):
            return super().kind(value)
        name = str(value.dtype).removeprefix(_TENSOR)
        is_plain = type(value) is torch.Tensor and value.layout is torch.strided and not value.is_meta and value.numel()
        if not is_plain or name not in _NAMES or not value.is_contiguous() or value.is_conj() or value.is_neg():
            return None
        if value.requires_grad:
            return None
        return Kind(_TENSOR + name, tuple(value.shape), value.numel() * value.element_size())

    def copy(self, value: Any, room: Room) -> None:
        """A GPU copies to page-locked memory while the next copy is queued."""
        if not isinstance(value, torch.Tensor):
            super().copy(value, room)
        else:
            target = torch.from_numpy(room).view(value.dtype).view(value.shape)
            target.copy_(value.detach(), non_blocking=value.is_cuda)
            if value.is_cuda:
                self._queued.add(value.device)

    def settle(self) -> None:
        """Wait for the GPUs."""
        for device in self._queued:
            torch.cuda.synchronize(device)
        self._queued.clear()

    def restored(self, kind: Kind, room: Room) -> object:
        """A tensor in memory of its own."""
        if not kind.name.startswith(_TENSOR):
            return super().restored(kind, room)
        dtype = _NAMES[kind.name.removeprefix(_TENSOR)]
        size = int(np.prod(kind.shape, dtype=np.int64)) * dtype.itemsize
        return torch.from_numpy(room[:size].copy()).view(dtype).view(kind.shape)

    def memory(self, size: int) -> Room:
        """Page-locked where the process uses GPUs."""
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return super().memory(size)
        return torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()

    def packed(self, value: object) -> bytes | None:
        """Whatever `torch.load` reads without executing code, and returns as it was."""
        if type(value) is torch.Tensor and not value.requires_grad:
            value = value.clone()  # without the rest of the memory of which it is a view
        file = io.BytesIO()
        try:
            torch.save(value, file)
            read = self.unpacked(file.getvalue())
            is_same = type(read) is type(value) and _is_same(value, read)
        except Exception:
            # Whatever an object of any library raises when it is pickled, or compared.
            return None
        return file.getvalue() if is_same else None

    def unpacked(self, body: bytes) -> object:
        """See `Arrays`; its tensors on the CPU."""
        return torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)


def _is_same(value: Any, read: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool((value.dtype, value.shape, value.layout) == (read.dtype, read.shape, read.layout))
    return bool(value == read)
