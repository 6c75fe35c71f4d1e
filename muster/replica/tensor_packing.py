"""A PyTorch model's tensors and the flat buffer: of any floating type, on any device, tied weights once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import torch

from muster.replica.codec import Floats
from muster.replica.packing import WHOLE, Packing, Piece


class TensorPacking(Packing):
    """Trainable parameters in the model's order, behind them the buffers that are statistics (as BatchNorm's).

    The buffers are averaged: persistent ones of a floating type, finite at the beginning (a mask of -inf is none).
    Frozen parameters and all other buffers stay the replica's own.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        """Take hold of the tensors.

        Raises:
            ParametersError: with everything that is wrong with them.
        """
        trainable = {name: tensor for name, tensor in model.named_parameters() if tensor.requires_grad}
        saved = model.state_dict(keep_vars=True).keys()
        statistics = {name: tensor for name, tensor in model.named_buffers() if name in saved and _is_statistic(tensor)}
        self._tensors = {name: tensor.detach() for name, tensor in (trainable | statistics).items()}
        problems = [
            f"{name} is {tensor.dtype} on {tensor.device}, not of a floating type that this process holds"
            for name, tensor in self._tensors.items()
            if not tensor.is_floating_point() or tensor.is_meta
        ]
        if not trainable:
            problems.append("the model has no parameter that requires a gradient")
        averaged = sum(tensor.numel() for tensor in statistics.values())
        super().__init__({name: tensor.shape for name, tensor in self._tensors.items()}, problems, averaged)
        self._all_float32 = all(tensor.dtype == torch.float32 for tensor in self._tensors.values())

    def read(self, part: slice = WHOLE) -> Floats:
        """A flat copy; one transfer for each run of tensors on the same device."""
        begin, end, _ = part.indices(self.count)
        flat = torch.empty(end - begin, dtype=torch.float32)
        for device, pieces in self._runs(part):
            values = [self._tensors[piece.name].reshape(-1)[piece.local] for piece in pieces]
            place = flat[pieces[0].place.start : pieces[-1].place.stop]
            if device.type == "cpu":
                torch.cat(values, out=place)
            else:
                place.copy_(torch.cat([value.float() for value in values]))
        return flat.numpy()

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite in place; one transfer for each run of tensors on the same device."""
        for device, pieces in self._runs(part):
            start = pieces[0].place.start
            values = torch.from_numpy(flat[start : pieces[-1].place.stop]).to(device)
            for piece in pieces:
                place = slice(piece.place.start - start, piece.place.stop - start)
                _assign(self._tensors[piece.name], piece.local, values[place])

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:
        """What is left of `flat` in the tensors' types: gradients are counted from there."""
        if self._all_float32:
            return flat
        rounded = torch.from_numpy(flat).clone()
        for piece in self.pieces(part):
            rounded[piece.place] = rounded[piece.place].to(self._tensors[piece.name].dtype).float()
        return rounded.numpy()

    def _runs(self, part: slice) -> Iterator[tuple[torch.device, list[Piece]]]:
        for device, pieces in groupby(self.pieces(part), lambda piece: self._tensors[piece.name].device):
            yield device, list(pieces)


def _is_statistic(buffer: torch.Tensor) -> bool:
    return buffer.is_floating_point() and not buffer.is_meta and bool(torch.isfinite(buffer).all())


def _assign(tensor: torch.Tensor, local: slice, values: torch.Tensor) -> None:
    if values.numel() == tensor.numel():
        tensor.copy_(values.view(tensor.shape))
    elif tensor.is_contiguous():
        tensor.view(-1)[local].copy_(values)
    else:
        flat = tensor.reshape(-1).clone()
        flat[local] = values.to(flat.dtype)
        tensor.copy_(flat.view(tensor.shape))
