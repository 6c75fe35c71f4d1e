"""A PyTorch model's tensors and the flat buffer: of any floating type, on any device, tied weights once."""

from __future__ import annotations

import torch

from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import WHOLE, Packing


class TensorPacking(Packing):
    """Trainable parameters in the model's order, followed by the buffers that are statistics (such as BatchNorm's).

    Statistics are averaged: persistent buffers of a floating type whose initial values are finite (a mask of -inf is
    not one). Frozen parameters and all other buffers stay the replica's own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Take the model's tensors.

        Raises:
            ParametersError: lists everything that is wrong with them.
        """
        trainable = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        saved = model.state_dict(keep_vars=True).keys()
        statistics = {name: tensor for name, tensor in model.named_buffers() if name in saved and _is_statistic(tensor)}
        self._tensors = {name: tensor.detach() for name, tensor in (trainable | statistics).items()}
        problems = [
            f"{name} is {tensor.dtype} on {tensor.device}; allowed: a floating type on a device of this process"
            for name, tensor in self._tensors.items()
            if not tensor.is_floating_point() or tensor.is_meta
        ]
        if not trainable:
            problems.append("the model has no parameter that requires a gradient")
        averaged = sum(tensor.numel() for tensor in statistics.values())
        super().__init__({name: tensor.shape for name, tensor in self._tensors.items()}, problems, averaged)
        self._all_float32 = all(tensor.dtype == torch.float32 for tensor in self._tensors.values())

    def read(self, part: slice = WHOLE) -> Floats:
        """A flat copy. A device needs memory for no more than one tensor beside the model."""
        begin, end, _ = part.indices(self.count)
        flat = torch.empty(end - begin, dtype=torch.float32)
        for piece in self.pieces(part):
            flat[piece.place].copy_(self._tensors[piece.name].reshape(-1)[piece.local])
        return flat.numpy()

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite in place, tensor by tensor as `read`."""
        for piece in self.pieces(part):
            _assign(self._tensors[piece.name], piece.local, torch.from_numpy(flat[piece.place]))

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:
        """`flat` rounded to the tensors' types: pseudo-gradients are differences from that."""
        if self._all_float32:
            return flat
        rounded = torch.from_numpy(flat).clone()
        for piece in self.pieces(part):
            rounded[piece.place] = rounded[piece.place].to(self._tensors[piece.name].dtype).float()
        return rounded.numpy()


def _is_statistic(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() and not buffer.is_meta and bool(torch.isfinite(buffer).all())


def _assign(tensor: torch.Tensor, local: slice, values: torch.Tensor) -> None:
    if values.numel() == tensor.numel():
        tensor.copy_(values.view(tensor.shape))
    elif tensor.is_contiguous():
        tensor.view(-1)[local].copy_(values)
    else:
        flat = tensor.reshape(-1).clone()
        flat[local].copy_(values)
        tensor.copy_(flat.view(tensor.shape))
