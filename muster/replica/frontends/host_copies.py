"""Copies between the tensors of GPUs and the host's memory, on streams of their own.

From and to page-locked memory a GPU copies at the speed of its bus, and while it copies the next copy can be queued.
For tensors elsewhere (the CPU, accelerators without CUDA's interface) all of this is an ordinary copy.
"""

from __future__ import annotations

import logging
import mmap
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import numpy as np
import torch

from muster.replica.wire.binary_format import Floats

log = logging.getLogger("muster.replica")


class HostCopies:
    """One process's copies."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}
        self._tried: set[int] = set()

    def lock(self, values: Floats) -> None:
        """Lock the pages of `values`, an array of `free_memory.pages`, until it is freed, if this process uses a GPU.

        Where the system refuses, copies pass through the driver's memory.
        """
        owner: Any = values
        while isinstance(owner.base, np.ndarray):
            owner = owner.base
        memory, address = getattr(owner.base, "obj", owner.base), owner.ctypes.data
        if not isinstance(memory, mmap.mmap) or address in self._tried:
            return
        if not torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            return
        # After a fork, as of a data loader's workers, what is locked would be copied, or the GPU would see other pages.
        memory.madvise(mmap.MADV_DONTFORK)
        runtime: Any = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._tried.add(address)
        weakref.finalize(owner, self._tried.discard, address).atexit = False
        if int(runtime.cudaHostRegister(address, owner.nbytes, 0)) == 0:
            weakref.finalize(owner, runtime.cudaHostUnregister, address).atexit = False
        else:
            log.warning("event=not-locked bytes=%d", owner.nbytes)
            with suppress(RuntimeError):  # CUDA tells the error once more, after the next kernel
                torch.ones(1, device="cuda")

    def room(self, tensors: Mapping[str, torch.Tensor], count: int) -> torch.Tensor:
        """`count` float32 values of undefined content in the host's memory, to which `tensors` can be copied.

        PyTorch keeps page-locked memory that was freed, and gives it out again.
        """
        return torch.empty(count, dtype=torch.float32, pin_memory=bool(_gpus(tensors)))

    @contextmanager
    def queued(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Copies from and to `tensors` within may be queued (`non_blocking`, on GPUs), and are done afterwards.

        They wait for what is queued on the streams that train.
        """
        streams = []
        with ExitStack() as stack:
            for device in _gpus(tensors):
                if device not in self._streams:
                    self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                stream = self._streams[device]
                stream.wait_stream(torch.cuda.current_stream(device))
                stack.enter_context(torch.cuda.stream(stream))
                streams.append(stream)
            try:
                yield
            finally:
                for stream in streams:
                    stream.synchronize()


def _gpus(tensors: Mapping[str, torch.Tensor]) -> set[torch.device]:
    return {tensor.device for tensor in tensors.values() if tensor.is_cuda}
