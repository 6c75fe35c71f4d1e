"""The processes of a replica connected by torch.distributed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray

from muster.replica.group.board import InnerGroup
from muster.replica.parts.link import Alone, Link
from muster.replica.replica_errors import GroupError, ParametersError

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)

# The first process waits for other replicas while the others wait for it: its time-outs end a wait, not this one. A
# process that ends is noticed at once, because its connections close.
_PATIENCE = timedelta(days=30)


class TorchLink:
    """A link over a process group of its own (gloo), for one thread."""

    def __init__(self) -> None:
        """All processes make their links in the same order."""
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)

    def gather(self, value: object) -> list[Any]:
        """See `Link`."""
        values: list[Any] = [None] * self.size
        self._call(lambda: dist.all_gather_object(values, value, group=self._group))
        return values

    def swap(self, sends: Sequence[NDArray[N]], counts: Sequence[int]) -> list[NDArray[N]]:
        """See `Link`."""
        # What stays in this process is not copied.
        sizes = [0 if rank == self.rank else send.size for rank, send in enumerate(sends)]
        expected = [0 if rank == self.rank else count for rank, count in enumerate(counts)]
        given = torch.from_numpy(np.concatenate([send[:size] for send, size in zip(sends, sizes, strict=True)]))
        received = torch.empty(sum(expected), dtype=given.dtype)
        self._call(lambda: dist.all_to_all_single(received, given, expected, sizes, group=self._group))
        found = np.split(received.numpy(), np.cumsum(expected)[:-1])
        found[self.rank] = sends[self.rank]
        return found

    def _call(self, collective: Callable[[], T]) -> T:
        try:
            return collective()
        except RuntimeError as error:
            message = f"Another process of this replica has ended: {str(error).splitlines()[0]}"
            raise GroupError(message) from None


def connected(group: InnerGroup) -> tuple[Link, Link]:
    """Links of a replica's processes: for the exchange, which has a thread of its own, and for the training loop.

    Raises:
        ParametersError: torch.distributed does not connect the processes of this replica.
    """
    joined = dist.is_available() and dist.is_initialized()
    found = (dist.get_rank(), dist.get_world_size()) if joined else (0, 1)
    if found == (group.rank, group.size):
        return (TorchLink(), TorchLink()) if group.size > 1 else (Alone(), Alone())
    if not joined:
        message = (
            f"This replica has {group.size} processes, and torch.distributed does not connect them: "
            "call torch.distributed.init_process_group() before DiLoCo."
        )
    else:
        message = (
            f"torch.distributed has {found[1]} processes (this one is {found[0]}), but this replica has {group.size} "
            f"(this one is {group.rank}). Set `processes` in the spec: Muster starts them, without torchrun."
        )
    raise ParametersError(message)
