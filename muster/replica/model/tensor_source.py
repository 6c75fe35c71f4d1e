"""A model's tensors as one process holds them, whatever the library."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from muster.replica.model.weight_files import Tensor
from muster.replica.parts.local_shard import LocalShard

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
