"""Where a data loader begins: a replica that joins a running run leaves out the data of the steps before."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

from torch.utils.data import BatchSampler, IterableDataset, Sampler


@dataclass(frozen=True)
class Position:
    """A place in a data set that is passed through several times, in steps of one or several batches."""

    epochs: int
    """Complete passes before this place."""

    batches: int
    """Batches of the present pass before this place."""

    end: int | None
    """Batches of the present pass up to its last complete step; None: all of them make complete steps."""


def position_after(steps: int, batches: int, accumulation: int) -> Position:
    """The place after `steps` steps over a loader of `batches` batches, of which a step takes `accumulation`.

    The last step of a pass takes the batches that are left. A pass that begins in the middle ends with its last
    complete step, because a framework counts the batches of a step from where it began.
    """
    steps_per_epoch = max(1, -(-batches // accumulation))
    epochs, done = divmod(steps, steps_per_epoch)
    begin, complete = done * accumulation, batches - batches % accumulation
    if done and begin >= complete:
        return Position(epochs + 1, 0, None)
    return Position(epochs, begin, complete if done and complete < batches else None)


class LaterSampler(Sampler[Any]):
    """A sampler whose first pass begins and ends inside of a pass, and whose epochs are counted from a later one."""

    def __init__(self, sampler: Any, epochs: int, begin: int, end: int | None) -> None:
        """The first pass has the samples from `begin` to `end` (None: the last one)."""
        self._sampler, self._epochs = sampler, epochs
        self._span = slice(begin, end)

    def __iter__(self) -> Iterator[Any]:
        span, self._span = self._span, slice(0, None)
        return islice(iter(self._sampler), span.start, span.stop)

    def __len__(self) -> int:
        return len(self._sampler)

    def set_epoch(self, epoch: int) -> None:
        """Shuffle as in the epoch that is meant, where the sampler's order depends on it."""
        if hasattr(self._sampler, "set_epoch"):
            self._sampler.set_epoch(epoch + self._epochs)


def start_at(loader: Any, position: Position) -> bool:
    """Let `loader` begin at `position`; returns whether that is possible: it needs a data set that is not a stream.

    A stream may have a length, too. Its loader has a sampler that says nothing of what the stream gives.

    Call it before the loader is iterated over. Batches are those of this process, also where the processes of the
    replica share a sampler, as Accelerate's do.
    """
    if isinstance(getattr(loader, "dataset", None), IterableDataset):
        return False
    holder, processes = getattr(loader, "batch_sampler", None), 1
    while (inner := getattr(holder, "batch_sampler", None)) is not None:
        if not getattr(holder, "split_batches", False):
            processes *= getattr(holder, "num_processes", 1)
        holder = inner
    if not isinstance(holder, BatchSampler) or holder.sampler is None:
        return False
    samples = processes * holder.batch_size
    end = None if position.end is None else position.end * samples
    holder.sampler = LaterSampler(holder.sampler, position.epochs, position.batches * samples, end)
    return True
