"""`context.shards`: what a trainer sees of the shards (the seam `replica.shards`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from muster.contract.run.trained_data import SHARDS_MAX, Items, Use
from muster.options.shards.replica.course import Course, Reader, Streams
from muster.options.shards.replica.deal import order
from muster.replica.context import Context, OffersShards
from muster.replica.replica_errors import ParametersError

T = TypeVar("T")
_EPOCHS_MAX = 1_000_000


class DataShards:
    """See `muster.replica.context.Shards`."""

    def __init__(
        self, context: Context, total: int, epochs: int | None, seed: int, part: tuple[int, int] | None
    ) -> None:
        """Raises ParametersError for a number that is not allowed."""
        _check("total", total, SHARDS_MAX, "the shards of the data set")
        if epochs is not None:
            _check("epochs", epochs, _EPOCHS_MAX, "or None, to train without end")
        _check("seed", seed, 2**32 - 1, "the same on all replicas", least=0)
        if part is not None and not (len(part) == 2 and 0 <= part[0] < part[1]):
            message = f"part is {part!r}; allowed: a number from 0 on, and how many parts there are, such as (0, 2)."
            raise ParametersError(message)
        self._stop, self._seed = context.stop, seed
        self._course = Course(context.rendezvous, total, total * (epochs or _EPOCHS_MAX), seed, part)
        self.total = total

    @property
    def epoch(self) -> int:
        """See `Shards`."""
        return self._course.progress.epoch

    @property
    def done(self) -> int:
        """See `Shards`."""
        return self._course.progress.done

    def items(self, load: Callable[[int], Iterable[T]]) -> Iterator[T]:
        """See `Shards`."""
        return (found[0] for found in self.batches(load, 1))

    def batches(self, load: Callable[[int], Iterable[T]], batch_size: int, *, ahead: int = 0) -> Iterator[list[T]]:
        """See `Shards`."""
        _check("batch_size", batch_size, SHARDS_MAX, "the items of a batch, for each process")
        _check("ahead", ahead, SHARDS_MAX, "items that are read ahead", least=0)
        reader = Reader(self._course, Streams(self._course, load, ahead), batch_size)
        return self._course.served(reader, self._stop)

    def arrays(
        self, *arrays: NDArray[Any], batch_size: int, shuffle: bool = True
    ) -> Iterator[tuple[NDArray[Any], ...]]:
        """See `Shards`."""
        _check("batch_size", batch_size, SHARDS_MAX, "the examples of a batch, for each process")
        lengths = sorted({len(array) for array in arrays})
        if len(lengths) != 1:
            message = f"arrays have the lengths {lengths}; allowed: one or more arrays of the same length."
            raise ParametersError(message)
        reader = Reader(self._course, self._numbers(lengths[0], shuffle), batch_size)
        found = self._course.served(reader, self._stop)
        return (tuple(array[numbers] for array in arrays) for numbers in found)

    def loader(self, dataset: Any, *, batch_size: int, shuffle: bool = True, **options: Any) -> Iterator[Any]:
        """See `Shards`."""
        _check("batch_size", batch_size, SHARDS_MAX, "the examples of a batch, for each process")
        if not (hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")):
            message = f"dataset is of type {type(dataset).__name__}; allowed: one with a length; see Shards.stream."
            raise ParametersError(message)
        if taken := sorted({"sampler", "batch_sampler", "drop_last", "persistent_workers", "in_order"} & {*options}):
            message = (
                f"loader() got {', '.join(taken)}; allowed: what does not change which examples are read, or when."
            )
            raise ParametersError(message)
        from muster.options.shards.replica.loader import Loading  # noqa: PLC0415 - imports PyTorch

        loading = Loading(self._course, self._numbers(len(dataset), shuffle), batch_size, dataset, options)
        return self._course.served(loading, self._stop)

    def stream(
        self,
        load: Callable[[int], Iterable[Any]],
        *,
        batch_size: int,
        ahead: int = 64,
        collate: Callable[[list[Any]], Any] | None = None,
    ) -> Iterator[Any]:
        """See `Shards`."""
        from torch.utils.data import default_collate  # noqa: PLC0415 - imports PyTorch

        return map(collate or default_collate, self.batches(load, batch_size, ahead=ahead))

    def _numbers(self, length: int, shuffle: bool) -> Callable[[Use, Items], Iterator[tuple[int, bool]]]:
        """For each use the numbers of its examples, of `length` ones: every total-th, so that sorted data are mixed."""
        if length < self.total:
            message = f"The data set has {length:,} examples for {self.total:,} shards; allowed: one or more for each."
            raise ParametersError(message)

        def opens(use: Use, begin: Items) -> Iterator[tuple[int, bool]]:
            shard = self._course.shard(use)
            numbers = np.arange(shard, length, self.total)
            if shuffle:
                numbers = numbers[order(len(numbers), self._seed, use // self.total, shard)]
            last = len(numbers) - 1
            return ((int(numbers[at]), at == last) for at in range(begin, len(numbers)))

        return opens


def _check(name: str, value: object, most: int, what: str, *, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        message = f"{name} is {value!r}; allowed: {least} to {most:,}, {what}."
        raise ParametersError(message)


OFFER = OffersShards(DataShards)
