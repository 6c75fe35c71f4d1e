"""torchft's all-reduces: those of one sync are collected and sent as one exchange of one flat buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import numpy as np
import torch

from muster.replica.replica_errors import AlgorithmError
from muster.replica.rounds.background import Background
from muster.replica.rounds.error_feedback import StoredErrorFeedback
from muster.replica.rounds.exchange import Exchange, LocalUpdate, checked_samples
from muster.replica.wire.binary_format import Floats


class Work:
    """One tensor's part of an exchange, with the interface of `torch.distributed.Work`."""

    def __init__(self, tensor: torch.Tensor, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.tensor = tensor
        # Queued now, on the stream that torchft has selected: later code may run on another one.
        self._copy = torch.empty(tensor.numel(), dtype=torch.float32, pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor.detach().reshape(-1), non_blocking=tensor.is_cuda)
        self._copied = torch.cuda.current_stream(tensor.device).record_event() if tensor.is_cuda else None
        self.future: torch.futures.Future[list[torch.Tensor]] = torch.futures.Future()

    def take(self) -> Floats:
        """The tensor's values when it was given, in the host's memory; they are not kept."""
        copy, self._copy = self._copy, torch.empty(0)
        if self._copied is not None:
            self._copied.synchronize()
        return copy.numpy()

    def wait(self, timeout: object = None) -> bool:  # noqa: ARG002 - the rendezvous has a time-out of its own
        """Block until the tensor holds the mean."""
        self._wait()
        return True

    def get_future(self) -> torch.futures.Future[list[torch.Tensor]]:
        """Done once the tensor holds the mean."""
        return self.future


class SyncExchange:
    """The exchange of one sync after another: collect its tensors, start it, finish it."""

    def __init__(
        self, fragments: Sequence[torch.nn.Module], feedback: Callable[[int, int], StoredErrorFeedback]
    ) -> None:
        """`feedback` returns that of so many values, those of all fragments in their order, after a round."""
        sizes = [sum(parameter.numel() for parameter in fragment.parameters()) for fragment in fragments]
        self._parts = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
        self._count = sum(sizes)
        self._load_feedback = feedback
        self._feedback: StoredErrorFeedback | None = None
        self._works: list[Work] = []
        self._running: Background[Exchange | None] = Background()

    @property
    def pending(self) -> bool:
        """Whether tensors were collected whose means have not been received."""
        return bool(self._works)

    def collect(self, work: Work) -> None:
        """Add a tensor to the sync."""
        self._works.append(work)

    def start(self, round_: int, weight: float, exchange: Callable[[LocalUpdate], Exchange | None]) -> None:
        """Start the exchange of the collected tensors in `round_`, unless there are none or it is running already.

        Raises:
            AlgorithmError: the tensors are not the round's fragment.
        """
        if not self._works or self._running.busy:
            return
        part = self._part(round_)
        if self._feedback is None:
            self._feedback = self._load_feedback(self._count, round_ - 1)
        feedback, gradient = self._feedback, np.concatenate([work.take() for work in self._works])
        update = LocalUpdate(gradient, weight, feedback.of(part), lambda _: feedback.save(round_), measured=True)
        self._running.begin(lambda: exchange(update))

    def replay(self, exchanged: Exchange) -> None:
        """Give the collected tensors the mean of a committed round, whatever they hold; raises as `start`."""
        self._part(exchanged.commit.round)
        self._running.begin(lambda: exchanged)

    def _part(self, round_: int) -> slice:
        """Which values of all fragments the round exchanges."""
        part = self._parts[(round_ - 1) % len(self._parts)]
        collected = sum(work.tensor.numel() for work in self._works)
        if collected != part.stop - part.start:
            message = (
                f"torchft's algorithm exchanges {collected:,} values, but the manager's fragment has "
                f"{part.stop - part.start:,}: give both the same model and fragments."
            )
            raise AlgorithmError(message)
        return part

    def finish(self) -> tuple[Exchange | None, list[Work]]:
        """Wait for the exchange and copy the means into the tensors.

        Returns:
            The exchange (None: the round's data were deleted), and the works whose futures can be completed.
        """
        exchange = self._running.wait()
        works, self._works = self._works, []
        if exchange is not None:
            means = np.split(exchange.mean, list(accumulate(work.tensor.numel() for work in works))[:-1])
            for work, mean in zip(works, means, strict=True):
                work.tensor.copy_(torch.from_numpy(mean).view(work.tensor.shape))
        return exchange, works


class FragmentWeights:
    """Counts since each fragment was last exchanged.

    torchft exchanges one fragment after another. A replica that joins between two of them has trained those that come
    first for less than the others have, and they count for less.
    """

    def __init__(self, fragments: int) -> None:
        self._samples = [0.0] * fragments
        self._steps = [0] * fragments
        self._has_samples = False

    def add_samples(self, samples: float) -> None:
        """Count samples for all fragments. From then on they are the weights.

        Raises:
            ParametersError: negative, infinite or NaN.
        """
        self._has_samples = True
        checked = checked_samples(samples)
        self._samples = [counted + checked for counted in self._samples]

    def add_step(self) -> None:
        """Count an inner step for all fragments."""
        self._steps = [counted + 1 for counted in self._steps]

    def take(self, fragment: int) -> float:
        """The weight of a fragment that is exchanged now; its count starts again."""
        weight = self._samples[fragment] if self._has_samples else float(self._steps[fragment] or 1)
        self._samples[fragment], self._steps[fragment] = 0.0, 0
        return weight

    def clear(self) -> None:
        """The local progress of all fragments is dropped."""
        self._samples = [0.0] * len(self._samples)
        self._steps = [0] * len(self._steps)
