"""Writes weights as files in a store: each file by one process of the replica, window by window as the others send.

The bytes do not depend on how many processes there are, nor on what each of them holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, zip_longest
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from muster.contract.run.model import ModelFile
from muster.replica.model.safetensors_layout import Tensor, WeightFile
from muster.replica.parts.cut import window_elements
from muster.replica.parts.link import Link, each, jointly
from muster.replica.parts.local_shard import LocalShard
from muster.replica.parts.redistribution import Redistribution, length
from muster.replica.store.transport import ObjectWriter, Store

Check = Callable[[], None]
_NOTHING = np.empty(0, np.uint8)


Raw = NDArray[np.uint8]


class TensorSource(Protocol):
    """The tensors of a model, in the same order in all processes of the replica."""

    @property
    def made_for(self) -> str:
        """The library that they belong to: `pt` or `np`."""

    @property
    def tensors(self) -> Sequence[Tensor]:
        """All of them, with global shapes, in the order of the files."""

    def shards(self) -> Sequence[LocalShard]:
        """What this process holds of each now. Where copies may differ, only the first process holds one."""

    def read(self, number: int, local: slice) -> Raw:
        """The bytes of elements of this process's part of the tensor of that number, counted flat."""


@dataclass(frozen=True)
class ModelDestination:
    """Where a model is written, and what raises if this process must not complete a file of it any more."""

    store: Store
    folder: str
    check: Check


@dataclass(frozen=True)
class _Window:
    """A run of a file's elements; `span` counts through the tensors of all files."""

    file: WeightFile
    span: slice
    item_bytes: int
    is_last: bool


class OpenFile:
    """A file that is being written. Its size and checksum are known once it is closed."""

    def __init__(self, target: ModelDestination, name: str, size: int | None = None) -> None:
        """`size`: its bytes, if they are known."""
        self._target, self._name = target, name
        self._writer: ObjectWriter = target.store.writer(target.folder + name, size)
        self._checksum, self._size = hashlib.sha256(), 0

    def write(self, body: bytes | memoryview) -> None:
        """Append bytes."""
        self._checksum.update(body)
        self._size += len(body)
        self._writer.write(body)

    def close(self) -> ModelFile:
        """Complete the file."""
        self._target.check()
        self._writer.close()
        return ModelFile(name=self._name, bytes=self._size, sha256=self._checksum.hexdigest())

    def discard(self) -> None:
        """Give up: no such file will exist."""
        self._writer.discard()


class WeightsWriter:
    """Writes the files of one model."""

    def __init__(self, source: TensorSource, files: Sequence[WeightFile], link: Link) -> None:
        """Collective: the processes exchange what each of them holds."""
        self._source, self._files, self._link = source, files, link
        numbers = {tensor.name: number for number, tensor in enumerate(source.tensors)}
        # Tensors in the order of the files, by their numbers in the source.
        self._order = [numbers[tensor.name] for file in files for tensor in file.tensors]
        held = link.gather(list(source.shards()))
        shards = [[held[rank][number] for rank in range(link.size)] for number in self._order]
        self._plan = Redistribution(shards, len(shards))
        self._window_bytes = 4 * window_elements(sum(tensor.count for tensor in source.tensors), link.size)

    def write(self, target: ModelDestination) -> list[ModelFile]:
        """Write all files; returns them in order. Collective: raises in all processes if one fails.

        Raises:
            FencedError: a newer process writes the model.
            StoreDeniedError, StoreUnavailableError, GroupError
        """
        own = _OwnFiles(target)
        tracks = [list(self._windows(rank)) for rank in range(self._link.size)]
        try:
            for windows in zip_longest(*tracks):
                values, mine = self._received(windows), windows[self._link.rank]
                jointly(self._link, partial(own.append, mine, values))
        except BaseException:
            own.discard()
            raise
        found = {file.name: file for files in each(self._link, lambda: own.written) for file in files}
        return [found[file.name] for file in self._files]

    def _windows(self, rank: int) -> Iterator[_Window]:
        """What process `rank` writes, in order: every so many-th file is its own."""
        starts = accumulate((sum(tensor.count for tensor in file.tensors) for file in self._files), initial=0)
        for number, (file, start) in enumerate(zip(self._files, starts, strict=False)):
            if number % self._link.size == rank:
                spans = list(file.windows(self._window_bytes)) or [slice(0, 0)]
                for span in spans:
                    place = slice(start + span.start, start + span.stop)
                    yield _Window(file, place, _item_bytes(file, span), span == spans[-1])

    def _received(self, windows: Sequence[_Window | None]) -> Raw:
        """The bytes of this process's window, from the processes that hold them."""
        plan, me = self._plan, self._link.rank
        spans = [slice(0, 0) if window is None else window.span for window in windows]
        sends = [
            np.concatenate(
                [_NOTHING, *(self._source.read(self._order[run.tensor], run.local) for run in plan.reads(me, to, span))]
            )
            for to, span in enumerate(spans)
        ]
        mine = windows[me]
        runs = [list(plan.reads(source, me, spans[me])) for source in range(self._link.size)]
        item_bytes = 1 if mine is None else mine.item_bytes
        received = self._link.swap(sends, [length(given) * item_bytes for given in runs])
        values = np.empty((spans[me].stop - spans[me].start, item_bytes), np.uint8)
        for given, found in zip(runs, received, strict=True):
            elements, place = found.reshape(-1, item_bytes), 0
            for run in given:
                count = run.local.stop - run.local.start
                values[run.places] = elements[place : place + count]
                place += count
        return values.reshape(-1)


class _OwnFiles:
    """The files that one process writes, one after another."""

    def __init__(self, target: ModelDestination) -> None:
        self.written: list[ModelFile] = []
        self._target = target
        self._open: OpenFile | None = None

    def append(self, window: _Window | None, values: Raw) -> None:
        """Write a window to its file, which is opened before its first one and closed after its last one."""
        if window is None:
            return
        if self._open is None:
            self._open = OpenFile(self._target, window.file.name, window.file.bytes)
            self._open.write(window.file.header)
        self._open.write(values.data)
        if window.is_last:
            self.written.append(self._open.close())
            self._open = None

    def discard(self) -> None:
        """Give up the file that is open."""
        if self._open is not None:
            self._open.discard()


def _item_bytes(file: WeightFile, span: slice) -> int:
    """The size of an element in a window of the file; 1 in one without elements."""
    start = 0
    for tensor in file.tensors:
        start += tensor.count
        if span.start < start:
            return tensor.item_bytes
    return 1
