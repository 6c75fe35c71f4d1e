"""How tensors lie in safetensors files, and in how many, as Hugging Face names and reads them. Pure.

The format (https://huggingface.co/docs/safetensors): the header's length (8 bytes, little-endian), the header (JSON:
each tensor's type, shape and place), the tensors' bytes without gaps. The library writes only tensors that are in
memory, and here no process has them all, so this module makes the header and others stream what follows it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from math import prod

from muster.contract.run.model import ModelKind

# Bytes of an element, by the name of its type.
ITEM_BYTES = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E4M3", "F8_E5M2"), 1),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 2),
    **dict.fromkeys(("U32", "I32", "F32"), 4),
    **dict.fromkeys(("U64", "I64", "F64"), 8),
}

# Hugging Face's own limit for a file of weights; a longer tensor has a file of its own.
FILE_BYTES_MAX = 5 * 10**9
_LENGTH_BYTES = 8
# Readers map the file into memory: the header's end is a multiple of every element's size.
_ALIGNMENT = 8

_NAMES = {ModelKind.MODEL: "model", ModelKind.ADAPTER: "adapter_model"}


@dataclass(frozen=True)
class Tensor:
    """One tensor of a model: its name in the file, the format's name of its type, and its global shape."""

    name: str
    type: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """Its elements."""
        return prod(self.shape)

    @property
    def item_bytes(self) -> int:
        """The bytes of one of them."""
        return ITEM_BYTES[self.type]

    @property
    def bytes(self) -> int:
        """The bytes of all of them."""
        return self.count * self.item_bytes


@dataclass(frozen=True)
class WeightFile:
    """A file with some tensors, in the order of their bytes: large elements first, so that each one is aligned."""

    name: str
    tensors: tuple[Tensor, ...]
    made_for: str

    @cached_property
    def header(self) -> bytes:
        """What comes before the tensors' bytes."""
        places: dict[str, object] = {"__metadata__": {"format": self.made_for}}
        start = 0
        for tensor in self.tensors:
            stop = start + tensor.bytes
            places[tensor.name] = {"dtype": tensor.type, "shape": list(tensor.shape), "data_offsets": [start, stop]}
            start = stop
        text = json.dumps(places, separators=(",", ":"), ensure_ascii=False).encode()
        text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
        return len(text).to_bytes(_LENGTH_BYTES, "little") + text

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return len(self.header) + sum(tensor.bytes for tensor in self.tensors)

    def windows(self, bytes_max: int) -> Iterator[slice]:
        """Its elements, counted through all of its tensors: runs of one size of element, of at most `bytes_max`."""
        start = 0
        for item_bytes, tensors in groupby(self.tensors, lambda tensor: tensor.item_bytes):
            stop = start + sum(tensor.count for tensor in tensors)
            step = bytes_max // item_bytes
            yield from (slice(first, min(stop, first + step)) for first in range(start, stop, step))
            start = stop


def weight_files(tensors: Sequence[Tensor], kind: ModelKind, made_for: str) -> list[WeightFile]:
    """The files for `tensors`: one, or several where that would have more than `FILE_BYTES_MAX`.

    An adapter has one file, whatever its size: its readers know no other name. `made_for` is the library that the
    tensors belong to, as the files state it: `pt` or `np`.
    """
    groups: list[list[Tensor]] = [[]]
    for tensor in tensors:
        size = sum(other.bytes for other in groups[-1])
        if groups[-1] and kind is ModelKind.MODEL and size + tensor.bytes > FILE_BYTES_MAX:
            groups.append([])
        groups[-1].append(tensor)
    name = _NAMES[kind]
    names = [f"{name}-{number:05}-of-{len(groups):05}" for number in range(1, len(groups) + 1)]
    return [
        WeightFile(f"{file}.safetensors", tuple(sorted(group, key=lambda tensor: -tensor.item_bytes)), made_for)
        for file, group in zip(names if len(groups) > 1 else [name], groups, strict=True)
    ]


def index_of(files: Sequence[WeightFile]) -> tuple[str, bytes] | None:
    """Name and content of the list of which tensor is in which file; None where there is one file."""
    if len(files) == 1:
        return None
    content = {
        "metadata": {"total_size": sum(tensor.bytes for file in files for tensor in file.tensors)},
        "weight_map": {tensor.name: file.name for file in files for tensor in file.tensors},
    }
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    return f"{_NAMES[ModelKind.MODEL]}.safetensors.index.json", text.encode()


def is_weights(name: str) -> bool:
    """Whether readers would take a file of this name for weights, or for a list of them."""
    return name.endswith((".safetensors", ".safetensors.index.json"))
