"""A PyTorch model's tensors as they are stored at the end of a run: trained, frozen, and persistent buffers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from muster.replica.frontends.model_tensors import buffers_of, local_tensor, parameters_of, saved_names, shard_of
from muster.replica.model.final_model import adapter_name
from muster.replica.model.safetensors_layout import Tensor
from muster.replica.model.weights_writer import Raw
from muster.replica.parts.local_shard import LocalShard
from muster.replica.replica_errors import ParametersError

# The format's names of PyTorch's types.
_TYPES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.uint16: "U16",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.uint32: "U32",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.uint64: "U64",
    torch.int64: "I64",
    torch.float64: "F64",
}


class StoredTensors:
    """The tensors as they are now: under the names of the unwrapped model, tied ones once, in their own types."""

    made_for = "pt"

    def __init__(self, model: torch.nn.Module, is_first: bool, adapter: str | None = None) -> None:
        """Look the tensors up.

        Args:
            is_first: whether this is the replica's first process, whose buffers are stored.
            adapter: store the trained parameters alone, under the names of a PEFT adapter of this name.

        Raises:
            ParametersError: lists the tensors that cannot be stored.
        """
        parameters, buffers, saved = parameters_of(model), buffers_of(model), saved_names(model)
        found = {name: tensor for name, tensor in parameters.items() if adapter is None or tensor.requires_grad}
        if adapter is None:
            found |= {name: buffer for name, buffer in buffers.items() if name in saved}
        problems = [
            f"{name} is {tensor.dtype} on {tensor.device}"
            for name, tensor in found.items()
            if tensor.dtype not in _TYPES or tensor.is_meta
        ]
        if problems:
            message = f"The model cannot be stored as safetensors: {'; '.join(problems)}."
            raise ParametersError(message)
        self.tensors = [
            Tensor(name if adapter is None else adapter_name(name, adapter), _TYPES[tensor.dtype], tuple(tensor.shape))
            for name, tensor in found.items()
        ]
        self._found = list(found.values())
        # The copies of a buffer may differ from process to process: counters, statistics.
        self._held_here = [is_first or name not in buffers for name in found]

    def shards(self) -> Sequence[LocalShard]:
        """See `TensorSource`."""
        shards = [shard_of(tensor) for tensor in self._found]
        return [
            shard if held else LocalShard(shard.shape, tuple(() for _ in shard.shape))
            for shard, held in zip(shards, self._held_here, strict=True)
        ]

    def read(self, number: int, local: slice) -> Raw:
        """See `TensorSource`."""
        part = local_tensor(self._found[number]).reshape(-1)[local].contiguous().view(torch.uint8).cpu()
        return np.asarray(part.numpy())
