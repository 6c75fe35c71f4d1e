"""Copies between the tensors of GPUs and the host's memory: through page-locked memory, on streams of their own.

From and to page-locked memory a GPU copies at the speed of its bus, and while it copies the next copy can be queued.
For tensors elsewhere (the CPU, accelerators without CUDA's interface) all of this is an ordinary copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager

import torch


class HostCopies:
    """One process's copies. They wait for what is queued on the streams that train, and later work waits for them."""

    def __init__(self) -> None:
        self._streams: dict[torch.device, torch.cuda.Stream] = {}

    def room(self, tensors: Mapping[str, torch.Tensor], count: int) -> torch.Tensor:
        """`count` float32 values of undefined content in the host's memory, to which `tensors` can be copied.

        PyTorch keeps page-locked memory that was freed, and gives it out again.
        """
        return torch.empty(count, dtype=torch.float32, pin_memory=bool(_gpus(tensors)))

    def use_locked(self, tensors: Mapping[str, torch.Tensor]) -> bool:
        """Whether copies from and to `tensors` pass through page-locked memory."""
        return bool(_gpus(tensors))

    def landing(self, tensors: Mapping[str, torch.Tensor], target: torch.Tensor) -> torch.Tensor:
        """Where values are copied to that go to `target`, in the host's memory: `target` itself without GPUs."""
        return self.room(tensors, target.numel()) if self.use_locked(tensors) else target

    def locked(self, tensors: Mapping[str, torch.Tensor], values: torch.Tensor) -> torch.Tensor:
        """The host's `values`, where they can be copied from to `tensors`."""
        return values.pin_memory() if _gpus(tensors) else values

    @contextmanager
    def to_host(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Copies from `tensors` within may be queued (`non_blocking`, on GPUs), and are done afterwards."""
        with self._beside(tensors) as streams:
            yield
        for stream in streams.values():
            stream.synchronize()

    @contextmanager
    def to_device(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[None]:
        """Copies to `tensors` within may be queued (`non_blocking`, on GPUs); what trains afterwards waits for them.

        Their source may be freed at once: PyTorch uses page-locked memory again only when its copies are done.
        """
        with self._beside(tensors) as streams:
            yield
        for device, stream in streams.items():
            torch.cuda.current_stream(device).wait_stream(stream)

    @contextmanager
    def _beside(self, tensors: Mapping[str, torch.Tensor]) -> Iterator[dict[torch.device, torch.cuda.Stream]]:
        streams = {}
        with ExitStack() as stack:
            for device in _gpus(tensors):
                if device not in self._streams:
                    self._streams[device] = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
                stream = streams[device] = self._streams[device]
                stream.wait_stream(torch.cuda.current_stream(device))
                stack.enter_context(torch.cuda.stream(stream))
            yield streams


def _gpus(tensors: Mapping[str, torch.Tensor]) -> set[torch.device]:
    return {tensor.device for tensor in tensors.values() if tensor.is_cuda}
