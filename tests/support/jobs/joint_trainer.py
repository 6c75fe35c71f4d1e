"""A trainer of which all processes of a replica exchange their slices, without PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.array_packing import SharedArray, StoredArrays
from muster.replica.frontends.front_end import DiLoCoFrontEnd
from muster.replica.frontends.plain_state import StateDict
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.folder_link import FolderLink
from tests.support.peers import Faults, FaultyStore, gradient_of
from tests.support.rendezvous_keys import is_like


class _Copies(DiLoCoFrontEnd):
    """A front end for an array of which every process of the replica has a copy: each exchanges its slice."""

    def __init__(self, context: Context, array: Floats, folder: Path) -> None:
        self._arrays = {"weights": SharedArray(array)}
        links = [FolderLink(folder / name, context.group, context.stop) for name in ("exchange", "training")]
        context.rendezvous.connect(links[0])
        super().__init__(
            context.rendezvous,
            CopiedArray(array, links[1]),
            Algorithm(),
            trainer_state=None,
            checkpoint_dir=None,
            final_model=NO_WISHES,
        )

    def _stored(self, final_model: FinalModel) -> StoredArrays:
        return StoredArrays(self._arrays)

    def _own_state(self) -> StateDict:
        return {}

    def _load_own_state(self, state_dict: StateDict) -> None: ...

    def _pack(self, state: StateDict) -> bytes:
        return b""

    def _unpack(self, body: bytes) -> StateDict:
        return {}

    def _is_finite(self, state: StateDict) -> bool:
        return True


def train(context: Context, *, rounds: int, count: int, folder: str) -> None:
    """All processes exchange their slices. In the first attempt the last one of each replica stays in the second round:
    the others have stored their parts, and it has not.
    """
    group, rendezvous = context.group, context.rendezvous

    def stay(key: str) -> None:
        if is_like(key, f"contributions/{context.rank:05d}/00000002-"):
            print(f"process {group.rank} of {group.size} stays in the second round", flush=True)
            context.stop.wait()

    if context.attempt == 1 and group.rank == group.size - 1:
        store = FaultyStore(rendezvous.context.store, Faults(before_create=stay))
        rendezvous._context = replace(rendezvous.context, store=store)
    parameters = np.zeros(count, np.float32)
    outer = _Copies(context, parameters, Path(folder) / f"{context.rank}-{context.attempt}")
    while outer.round < rounds:
        parameters -= gradient_of(context.rank, outer.round + 1, count)
        outer.step((context.rank + 1) / group.size)
    outer.finish()
