"""The functions of a kernel in a program of its own, which another processor may run."""

import ctypes
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

from tests.support.kernels import CODECS

_CODECS = {codec.kernel_format: codec for codec in CODECS.values()}


class _Function:
    """A function as ctypes has it: its types may be declared."""

    restype: Any = None
    argtypes: Any = None

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call(*arguments)


class RemoteLibrary:
    """The functions of a kernel in a program of its own (`kernel_driver.c`), which another processor may run."""

    def __init__(self, command: list[str | Path]) -> None:
        self._lock = Lock()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.muster_encode = _Function(self._encode)
        self.muster_decode = _Function(self._decode)
        self.muster_put = _Function(self._put)
        self.muster_nesterov = _Function(self._nesterov)

    def close(self) -> None:
        """End the program."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=30)

    def _call(self, which: int, numbers: list[int], floats: list[float], arrays: list[tuple[int | None, int]]) -> int:
        """Call function `which`; every array (address and size) comes back as it is afterwards."""
        with self._lock:
            return self._answer(which, numbers, floats, arrays)

    def _answer(self, which: int, numbers: list[int], floats: list[float], arrays: list[tuple[int | None, int]]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        numbers = [*numbers, *[0] * (8 - len(numbers))]
        floats = [*floats, *[0.0] * (2 - len(floats))]
        self._process.stdin.write(struct.pack("<q8Q2f", which, *numbers, *floats))
        for address, size in arrays:
            self._process.stdin.write(struct.pack("<q", -1 if address is None else size))
            if address is not None:
                self._process.stdin.write(ctypes.string_at(address, size))
        self._process.stdin.flush()
        [found] = struct.unpack("<q", self._process.stdout.read(8))
        for address, size in arrays:
            if address is not None:
                ctypes.memmove(address, self._process.stdout.read(size), size)
        return int(found)

    def _encode(self, *given: Any) -> int:
        format_, values, added, blocks, elements, rows, stride, limit, offsets, random, shares, error, decoded, seed = (
            given
        )
        count = blocks * elements
        size = (blocks - 1) * stride + 4 + _CODECS[format_].payload_bytes(elements)
        arrays = [(values, 4 * count), (rows, size), (offsets, 4 * count), (random, count), (shares, 256)]
        # The program has the same memory for what is the same here.
        kinds = {None: 0, added: 3, values: 1} if added else {None: 0, values: 1}
        same = [kinds.get(place, 2) for place in (error, decoded)]
        arrays += [
            (place if kind == 2 else None, 4 * count) for place, kind in zip((error, decoded), same, strict=True)
        ]
        arrays.append((added, 4 * count))
        return self._call(0, [format_, blocks, elements, stride, limit, seed, *same], [], arrays)

    def _decode(self, *given: Any) -> int:
        format_, rows, stride, blocks, elements, count, limit, seed, place, weight, factor, adds = given
        size = (blocks - 1) * stride + 4 + _CODECS[format_].payload_bytes(elements)
        numbers = [format_, stride, blocks, elements, count, limit, seed, int(adds)]
        return self._call(1, numbers, [weight, factor], [(rows, size), (place, 4 * count)])

    def _put(self, *given: Any) -> None:
        values, count, place, weight, factor, adds = given
        same = values == place
        arrays = [(None if same else values, 4 * count), (place, 4 * count)]
        self._call(2, [count, int(adds)], [weight, factor], arrays)

    def _nesterov(self, *given: Any) -> None:
        parameters, momentum, gradient, count, mu, eta = given
        arrays: list[tuple[int | None, int]] = [(place, 4 * count) for place in (parameters, momentum, gradient)]
        self._call(3, [count], [mu, eta], arrays)
