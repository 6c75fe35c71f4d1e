"""The result of a replica: the global parameters at the end of its training, as a file of named arrays (.npz)."""

from __future__ import annotations

import hashlib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.parts.collection import collected
from muster.replica.parts.link import Link
from muster.replica.wire.packing import Packing


@dataclass(frozen=True)
class Result:
    """The parameters after `round`, in the file at `path`.

    `checksum` is that of their raw bytes (SHA-256), the same on all replicas.
    """

    round: int
    path: Path
    checksum: str


def write_result(packing: Packing, state: GlobalState, link: Link, path: Path) -> Result:
    """Write the parameters to `path`, array by array. Collective: the first process of the replica writes.

    Raises:
        GroupError: another process of the replica has ended.
    """
    checksum = hashlib.sha256()
    shapes = packing.shapes
    spans = [packing.span(name) for name in shapes]
    arrays = collected(packing.cut, state.parameters, spans, link)
    if link.rank:
        for _ in arrays:
            pass
        return Result(state.round, path, "")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED, allowZip64=True) as file:
        for (name, shape), values in zip(shapes.items(), arrays, strict=True):
            checksum.update(values.data)
            # As numpy.savez writes it, which takes all arrays at once.
            with file.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, values.reshape(shape), allow_pickle=False)
    return Result(state.round, path, checksum.hexdigest())
