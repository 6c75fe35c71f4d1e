"""The values of a process's own contribution, read as those of the others are, without a request for what it holds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np

from muster.replica.codecs.base import Floats
from muster.replica.rounds.contribution import Contribution
from muster.replica.wire.blocks import PIECE_ELEMENTS, Blocks
from muster.replica.wire.stream_decoder import RecordReader


class Records(Protocol):
    """One member's values in the blocks of a shard, run after run."""

    def begin(self) -> None:
        """Wait for the first bytes."""

    def prepare(self, run: range) -> None:
        """The sum of `run` is about to be made."""

    def decode(self, values: Floats, run: range) -> None:
        """Fill `values` with those of `run`. Raises CodecError."""


class OwnRecords:
    """What this process holds of its replica's contribution comes from its memory, the rest from the store.

    The sum is made where the values lie: they are set aside run by run.
    """

    def __init__(
        self, mine: Contribution, blocks: Blocks, which: range, reader: Callable[[range], RecordReader]
    ) -> None:
        """For the blocks `which`. `reader` reads those that other processes of the replica have encoded."""
        self._mine, self._blocks = mine, blocks
        self._start = blocks.span(mine.which).start
        before = range(which.start, max(which.start, min(which.stop, mine.which.start)))
        after = range(min(which.stop, max(which.start, mine.which.stop)), which.stop)
        self._others = [(part, reader(part)) for part in (before, after) if part]
        self._aside = np.empty(PIECE_ELEMENTS, np.float32)

    def begin(self) -> None:
        """See `Records`."""
        for _, reader in self._others:
            reader.begin()

    def prepare(self, run: range) -> None:
        """See `Records`."""
        for span in self._held(run):
            values = self._mine.values[span.start - self._start : span.stop - self._start]
            self._aside[: values.size] = values

    def decode(self, values: Floats, run: range) -> None:
        """See `Records`."""
        offset = self._blocks.span(run).start
        for span in self._held(run):
            values[span.start - offset : span.stop - offset] = self._aside[: span.stop - span.start]
        for part, reader in self._others:
            if both := _both(part, run):
                span = self._blocks.span(both)
                reader.decode(values[span.start - offset : span.stop - offset], both)

    def _held(self, run: range) -> Iterator[slice]:
        """The elements of `run` that this process holds, if any."""
        if both := _both(self._mine.which, run):
            yield self._blocks.span(both)


def _both(one: range, other: range) -> range:
    return range(max(one.start, other.start), min(one.stop, other.stop))
