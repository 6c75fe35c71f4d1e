"""A PyTorch model's tensors and the flat buffer: of any floating type, on any device, sharded or not.

Tied weights have one place. The tensors are looked up by name at every exchange; one that was replaced so that training
would go on without it is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

import numpy as np
import torch

from muster.replica.frontends.host_copies import HostCopies
from muster.replica.frontends.joined_optimizers import InnerOptimizer
from muster.replica.frontends.model_tensors import (
    buffers_of,
    local_tensor,
    parameters_of,
    problem_of,
    problem_of_model,
    shard_of,
    statistics_of,
)
from muster.replica.parts.cut import window_elements
from muster.replica.parts.link import Alone, Link
from muster.replica.parts.local_shard import LocalShard
from muster.replica.parts.packing import WHOLE, Packing, Piece
from muster.replica.parts.redistribution import Redistribution, Run, length
from muster.replica.replica_errors import ParametersError
from muster.replica.wire.binary_format import Floats

_ALONE = Alone()


class TensorPacking(Packing):
    """Trainable parameters in the model's order, followed by the buffers that are statistics (such as BatchNorm's).

    Statistics are averaged over the replicas; within a replica those of its first process count. Frozen parameters and
    all other buffers stay the replica's own.
    """

    def __init__(self, model: torch.nn.Module, optimizer: InnerOptimizer | None = None, link: Link = _ALONE) -> None:
        """Take the model's tensors.

        Args:
            optimizer: trains all or some of them.
            link: connects the processes of the replica, for the thread that reads and writes.

        Raises:
            ParametersError: lists everything that is wrong with them.
        """
        self._model, self._optimizer, self.link = model, optimizer, link
        self._copies = HostCopies()
        self._trainable = [name for name, tensor in parameters_of(model).items() if tensor.requires_grad]
        self._statistics = statistics_of(model)
        found = {name: tensor.detach() for name, tensor in self._named().items()}
        problems = [problem for name, tensor in found.items() if (problem := problem_of(name, tensor))]
        if (problem := problem_of_model(model)) is not None:
            problems = [problem]
        elif not self._trainable:
            problems.append("the model has no parameter that requires a gradient")
        own = {} if problems else {name: shard_of(tensor) for name, tensor in found.items()}
        # A process with problems takes part in this as well: all of them must end.
        answers = link.gather((own, problems))
        shards: list[dict[str, LocalShard]] = [held for held, _ in answers]
        problems = sorted({problem for _, found_there in answers for problem in found_there})
        problems = problems or _differences([set(held) for held in shards]) or _gaps(shards)
        self._shards: dict[str, LocalShard] = own
        self._followed = self._trained_names(found)
        self._types = {name: tensor.dtype for name, tensor in found.items()}
        super().__init__(
            {name: tensor.shape for name, tensor in found.items()},
            problems,
            sum(found[name].numel() for name in self._statistics),
        )
        held = [[shards[rank][name] for rank in range(link.size)] for name in self._shards]
        self._redistribution = Redistribution(held, len(self._trainable))

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        """A flat copy. A device needs memory for no more than a copy of one tensor beside the model."""
        tensors = self._look_up()
        span = part if self.link.size == 1 else self.cut.local(part)
        start, stop, _ = span.indices(self.count)
        flat = np.empty(stop - start, np.float32) if room is None else room
        if self.link.size > 1:
            self._collect(tensors, flat, part)
            return flat
        values = torch.from_numpy(flat)
        with self._copies.queued(tensors):
            for piece in self._copied_at_once(tensors, part):
                given = tensors[piece.name].reshape(-1)[piece.local]
                # A GPU casts faster than the CPU does.
                values[piece.place].copy_(given.float() if given.is_cuda else given, non_blocking=given.is_cuda)
        return flat

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        """Overwrite in place, tensor by tensor as `read`."""
        tensors = self._look_up()
        if self.link.size > 1:
            self._hand_out(tensors, flat, part)
            return
        values = torch.from_numpy(flat)
        with self._copies.queued(tensors):
            for piece in self._copied_at_once(tensors, part):
                _assign(tensors[piece.name], piece.local, values[piece.place])

    def lock(self, flat: Floats) -> None:
        """GPUs copy from and to these pages themselves, unless processes share the model."""
        if self.link.size == 1:
            self._copies.lock(flat)

    def rounded(self, flat: Floats, part: slice = WHOLE) -> Floats:
        """`flat` rounded to the tensors' types: pseudo-gradients are differences from that.

        The types are those of the last `read` or `write`: this may be called beside the training.
        """
        if all(dtype == torch.float32 for dtype in self._types.values()):
            return flat
        rounded = torch.from_numpy(flat).clone()
        start = 0
        for held, _ in self.cut.places(part):
            for piece in self.pieces(held):
                place = slice(start + piece.place.start, start + piece.place.stop)
                rounded[place] = rounded[place].to(self._types[piece.name]).float()
            start += held.stop - held.start
        return rounded.numpy()

    def _named(self) -> dict[str, torch.Tensor]:
        """The tensors of the known names, as they are now; those that are gone are missing."""
        parameters, buffers = parameters_of(self._model), buffers_of(self._model)
        known = {name: parameters.get(name) for name in self._trainable}
        known |= {name: buffers.get(name) for name in self._statistics}
        return {name: tensor for name, tensor in known.items() if tensor is not None}

    def _look_up(self) -> dict[str, torch.Tensor]:
        """What this process holds of each tensor now.

        Raises:
            ParametersError: one was replaced so that it cannot be followed.
        """
        found = self._named()
        trained = self._trained_names(found)
        problems = []
        for name, shard in self._shards.items():
            tensor = found.get(name)
            if tensor is None:
                problems.append(f"{name} is gone")
            elif (tuple(tensor.shape) or (1,)) != shard.shape:
                problems.append(f"{name} has the shape {tuple(tensor.shape)}, and had {shard.shape}")
            elif (problem := problem_of(name, tensor)) is not None:
                problems.append(problem)
            elif shard_of(tensor) != shard:
                problems.append(f"{name} is sharded in another way than before")
            elif name in self._followed and name not in trained:
                problems.append(f"{name} was replaced, and the inner optimizer trains the tensor before it")
        if problems:
            message = (
                "The model has changed since DiLoCo was created: " + "; ".join(problems) + ". "
                "Move, cast, load and shard the model before its optimizer and DiLoCo are created."
            )
            raise ParametersError(message)
        self._types = {name: tensor.dtype for name, tensor in found.items()}
        return {name: local_tensor(tensor) for name, tensor in found.items()}

    def _trained_names(self, found: dict[str, torch.Tensor]) -> set[str]:
        """The names of the tensors that the optimizer trains."""
        if self._optimizer is None:
            return set()
        trained = {id(tensor) for group in self._optimizer.param_groups for tensor in group["params"]}
        parameters = parameters_of(self._model)
        return {name for name in found if name in parameters and id(parameters[name]) in trained}

    def _collect(self, tensors: dict[str, torch.Tensor], flat: Floats, part: slice) -> None:
        """Fill in what this process holds of the flat space, from all processes' shards."""
        rank, plan, names = self.link.rank, self._redistribution, list(tensors)
        for windows, start in self._windows(part):
            reads = [list(plan.reads(rank, reader, span)) for reader, span in enumerate(windows)]
            with self._copies.queued(tensors):
                taken = [self._taken(tensors, names, given) for given in reads]
            runs = [list(plan.reads(source, rank, windows[rank])) for source in range(self.link.size)]
            received = self.link.swap([values.numpy() for values in taken], [length(given) for given in runs])
            window = flat[start : start + windows[rank].stop - windows[rank].start]
            for given, values in zip(runs, received, strict=True):
                place = 0
                for run in given:
                    count = run.local.stop - run.local.start
                    window[run.places] = values[place : place + count]
                    place += count

    def _hand_out(self, tensors: dict[str, torch.Tensor], flat: Floats, part: slice) -> None:
        """Write the local shards of all processes from what each holds of the flat space."""
        rank, plan, names = self.link.rank, self._redistribution, list(tensors)
        for windows, start in self._windows(part):
            window = flat[start : start + windows[rank].stop - windows[rank].start]
            nothing = np.empty(0, np.float32)
            sends = [
                np.concatenate([nothing, *(window[run.places] for run in plan.writes(target, windows[rank]))])
                for target in range(self.link.size)
            ]
            runs = [list(plan.writes(rank, span)) for span in windows]
            received = self.link.swap(sends, [length(needed) for needed in runs])
            with self._copies.queued(tensors):
                for needed, values in zip(runs, received, strict=True):
                    self._place(tensors, names, needed, torch.from_numpy(values))

    def _taken(self, tensors: dict[str, torch.Tensor], names: list[str], runs: list[Run]) -> torch.Tensor:
        """The values of `runs`, one after another, in the host's memory."""
        taken = self._copies.room(tensors, length(runs))
        place = 0
        for run in runs:
            count = run.local.stop - run.local.start
            held = tensors[names[run.tensor]].reshape(-1)[run.local]
            taken[place : place + count].copy_(held, non_blocking=held.is_cuda)
            place += count
        return taken

    @staticmethod
    def _place(tensors: dict[str, torch.Tensor], names: list[str], runs: list[Run], values: torch.Tensor) -> None:
        """Write `values`, those of `runs` one after another."""
        place = 0
        for run in runs:
            count = run.local.stop - run.local.start
            _assign(tensors[names[run.tensor]], run.local, values[place : place + count])
            place += count

    def _windows(self, part: slice) -> Iterator[tuple[list[slice], int]]:
        """Windows over what the processes hold of a part: one span for each, and where this process's starts."""
        cuts = [replace(self.cut, rank=rank) for rank in range(self.link.size)]
        step, start = window_elements(self.count, self.link.size), 0
        for spans in zip(*([held for held, _ in cut.places(part)] for cut in cuts), strict=True):
            longest = max(span.stop - span.start for span in spans)
            own = spans[self.link.rank]
            for first in range(0, longest, step):
                yield (
                    [
                        slice(min(span.start + first, span.stop), min(span.start + first + step, span.stop))
                        for span in spans
                    ],
                    start + min(first, own.stop - own.start),
                )
            start += own.stop - own.start

    def _copied_at_once(self, tensors: dict[str, torch.Tensor], part: slice) -> Iterator[Piece]:
        """The pieces of a part: whole tensors, or no more than a window where a GPU casts and has both types of it."""
        casts = any(tensor.is_cuda and tensor.dtype != torch.float32 for tensor in tensors.values())
        step = window_elements(self.count, 1) if casts else max(1, self.count)
        begin, end, _ = part.indices(self.count)
        for start in range(begin, end, step):
            for piece in self.pieces(slice(start, min(start + step, end))):
                place = slice(start - begin + piece.place.start, start - begin + piece.place.stop)
                yield replace(piece, place=place)


def _differences(names: list[set[str]]) -> list[str]:
    """The tensors that some processes have and others do not."""
    everywhere = set.intersection(*names) if names else set()
    return [
        f"{name} is in {sum(name in held for held in names)} of the replica's {len(names)} processes; allowed: in all"
        for name in sorted(set.union(*names) - everywhere if names else ())
    ]


def _gaps(shards: list[dict[str, LocalShard]]) -> list[str]:
    """The tensors that the processes do not hold every element of."""
    problems = []
    for name in shards[0]:
        parts = {held[name] for held in shards}
        shapes = {part.shape for part in parts}
        if len(shapes) > 1:
            problems.append(
                f"{name} has the shapes {' and '.join(map(str, sorted(shapes)))} in the replica's processes"
            )
        elif sum(part.count for part in parts) != prod(shards[0][name].shape):
            problems.append(f"{name} is placed so that its processes do not hold each element of it in one part")
    return problems


def _assign(tensor: torch.Tensor, local: slice, values: torch.Tensor) -> None:
    if tensor.is_cuda and tensor.dtype != values.dtype:
        values = values.to(tensor.device, non_blocking=True)
    if values.numel() == tensor.numel():
        tensor.copy_(values.view(tensor.shape), non_blocking=tensor.is_cuda)
    elif tensor.is_contiguous():
        tensor.view(-1)[local].copy_(values, non_blocking=tensor.is_cuda)
    else:
        flat = tensor.reshape(-1).clone()
        flat[local].copy_(values, non_blocking=tensor.is_cuda)
        tensor.copy_(flat.view(tensor.shape))
