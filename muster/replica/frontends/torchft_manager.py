"""A manager for torchft's `DiLoCo` and `LocalSGD`, which run unmodified over the rendezvous.

    manager = Manager(context.rendezvous, model, codec="int8", checkpoint_dir=context.checkpoint_dir)
    with torchft.local_sgd.DiLoCo(manager, [model], inner_optimizer, outer_optimizer, sync_every=500):
        while manager.current_step() < rounds and not context.stop.is_set():
            ...
            manager.add_samples(len(batch))
            inner_optimizer.step()
    manager.shutdown()

torchft asks for one all-reduce per parameter. They are collected, and go as one flat buffer in one exchange: when the
first of them is waited for, or when the next inner step begins (so that `fragment_sync_delay` overlaps the transfer).

The outer optimizer is torchft's own, so a round's mean cannot be replayed here. Instead one member stores the state
after every round (model, outer optimizer): who comes back, or was left out, goes on from there. What older rounds
carried is deleted once a state covers it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec
from muster.replica.errors import AlgorithmError, RendezvousError, RoundGoneError
from muster.replica.frontends.background import Background
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.replica.frontends.torch_state import pack_torch, unpack_torch
from muster.replica.frontends.torchft_states import TorchftStates
from muster.replica.rounds.exchange import Exchange
from muster.replica.rounds.rendezvous import Rendezvous, Trained
from muster.replica.rounds.residuals import Owed
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round_context import log
from muster.replica.stopwatch import Stopwatch
from muster.replica.wire.binary_format import Floats


class Work:
    """One tensor's part of an exchange, as `torch.distributed` hands out work."""

    def __init__(self, tensor: torch.Tensor, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.tensor = tensor
        # Brought to the host now, on the stream that torchft has chosen: what comes later may run on another one.
        self.values: Floats = tensor.detach().reshape(-1).float().cpu().numpy()
        self.future: torch.futures.Future[Any] = torch.futures.Future()

    def wait(self, timeout: object = None) -> bool:  # noqa: ARG002 - the rendezvous has a timeout of its own
        """Block until the tensor holds the mean."""
        self._wait()
        return True

    def get_future(self) -> torch.futures.Future[Any]:
        """Done once the tensor holds the mean."""
        return self.future


class Manager:
    """What torchft's algorithms ask of `torchft.Manager`."""

    _use_async_quorum = False

    def __init__(
        self,
        rendezvous: Rendezvous,
        model: torch.nn.Module,
        fragments: Sequence[torch.nn.Module] | None = None,
        *,
        codec: str = "fp32",
        checkpoint_dir: Path | None = None,
    ) -> None:
        """Join the run: overwrites `model` with the run's. Make the torchft algorithm afterwards.

        Args:
            fragments: the list that torchft's DiLoCo is given, if it is not `[model]`.
            codec: what the values are exchanged in, with error feedback where it loses something: see `Algorithm`.
            checkpoint_dir: where to keep what error feedback owes (the context's).

        Raises:
            AlgorithmError: no such codec, or other settings than the run's.
            ParametersError: a model that cannot be trained.
            FencedError, StoppedError, RendezvousError
        """
        self._model = model
        self._fragments = list(fragments or [model])
        self._codec = _codec(codec)
        self._rendezvous = rendezvous
        rendezvous.agree(codec, {"algorithm": "torchft", "fragments": len(self._fragments)})
        self._states = TorchftStates(rendezvous.meeting)
        self._keeper = Keeper(self._states, rendezvous.rank)
        self._hooks: dict[str, tuple[Callable[[Any], None], Callable[[], Any]]] = {}
        self._works: list[Work] = []
        self._exchange: Background[Exchange | None] = Background()
        self._took_part = True
        self._captured: tuple[int, bytes] | None = None
        self._keeps = False
        self._samples, self._weight = 0.0, 1.0
        self.stopwatch = Stopwatch(rendezvous.metrics)
        packing = TensorPacking(model)
        self._step, self._loaded = self._come_in()
        sizes = [sum(parameter.numel() for parameter in fragment.parameters()) for fragment in self._fragments]
        self._parts = [slice(end - size, end) for size, end in zip(sizes, accumulate(sizes), strict=True)]
        self._owed = Owed(self._codec, sum(sizes), checkpoint_dir, self._step)
        state = GlobalState(self._step, packing.read(), np.zeros(packing.count, np.float32))
        self._trained = Trained(packing=packing, state=state)
        rendezvous.enter(self._trained)

    def add_samples(self, samples: float) -> None:
        """Count samples or tokens before `inner_optimizer.step()`: their sum is the weight in the round's mean.

        Without it all replicas weigh the same; either all count, or none.

        Raises:
            ValueError: not a positive, finite number.
        """
        if not (math.isfinite(samples) and samples > 0):
            message = f"samples must be a positive number, not {samples!r}"
            raise ValueError(message)
        self._samples += samples

    def register_state_dict_fn(self, key: str, load: Callable[[Any], None], save: Callable[[], Any]) -> None:
        """Keep what `save` gives with every round's state; a process that came later gets it loaded at once."""
        self._hooks[key] = load, save
        if key in self._loaded:
            load(self._loaded[key])

    def current_step(self) -> int:
        """Rounds behind this replica."""
        return self._step

    def start_quorum(self, *_: object, **__: object) -> None:
        """A sync begins. Who takes part is agreed when the round is exchanged."""
        self._weight, self._samples = self._samples or 1.0, 0.0

    def disallow_state_dict_read(self) -> None:
        """An inner step begins: what the last sync left is complete, what it began can go on its way."""
        with self.stopwatch.blocked():
            self._capture()
            self._send()

    def allow_state_dict_read(self) -> None:
        """An inner step has ended: nothing to do."""

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False) -> Work:
        """Have `tensor` replaced by its mean over the participants, together with all others of this sync.

        Args:
            should_quantize: only with a codec that loses something; it is the codec then that says how.

        Raises:
            AlgorithmError: `should_quantize` without such a codec, or such a codec for the parameters themselves.
        """
        if should_quantize and not self._codec.loses:
            message = "should_quantize needs to know how: name the run's codec, as in Manager(..., codec='int8')."
            raise AlgorithmError(message)
        if self._codec.loses and not self._hooks:
            message = (
                "torchft's LocalSGD exchanges the parameters themselves, which a codec that loses something would "
                f"damage: codec is {self._codec.name}, only fp32 is possible."
            )
            raise AlgorithmError(message)
        with self.stopwatch.blocked():
            work = Work(tensor, self._receive)
        self._works.append(work)
        return work

    def should_commit(self, *_: object, **__: object) -> bool:
        """Whether this replica took part in the round. If not, it holds the run's current state afterwards."""
        self._receive()
        self._step += 1
        if not self._took_part:
            with self.stopwatch.blocked():
                self._fall_in()
        self.stopwatch.lap()
        return self._took_part

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - torchft's signature
        """After the last sync: leave the model as the replica's result."""
        self._capture()
        self._trained.state.parameters[...] = self._trained.packing.read()

    def _send(self) -> None:
        """Begin the exchange of what was collected."""
        if not self._works or self._exchange.busy:
            return
        gradient = np.concatenate([work.values for work in self._works])
        part = self._parts[self._step % len(self._parts)]
        if gradient.size != part.stop - part.start:
            message = (
                f"torchft's algorithm exchanges {gradient.size:,} values where the manager's fragment has "
                f"{part.stop - part.start:,}: give both the same model and fragments."
            )
            raise AlgorithmError(message)
        round_, weight, captured, keeps = self._step + 1, self._weight, self._captured, self._keeps

        def exchange() -> Exchange | None:
            if captured is not None and not keeps:
                # Its keeper may have died with it, and the one that comes back may be whom this round waits for.
                self._states.store(*captured)
            try:
                exchanged = self._rendezvous.exchange(
                    round_,
                    gradient,
                    weight,
                    residual=self._owed.of(part),
                    before_giving=lambda: self._owed.save(round_),
                )
            except RoundGoneError:
                return None
            if exchanged.took_part:
                self._keeper.keep(exchanged.commit)
            return exchanged

        self._exchange.begin(exchange)

    def _receive(self) -> None:
        """Wait for the exchange and hand out the means."""
        if not self._works:
            return
        with self.stopwatch.blocked():
            self._send()
            exchange = self._exchange.wait()
            self._took_part = exchange is not None and exchange.took_part
            self._captured = None
            works, self._works = self._works, []
            if exchange is not None:
                members = exchange.commit.members
                self._keeps = members[exchange.commit.round % len(members)].rank == self._rendezvous.rank
                means = np.split(exchange.mean, list(accumulate(work.values.size for work in works))[:-1])
                for work, mean in zip(works, means, strict=True):
                    work.tensor.copy_(torch.from_numpy(mean).view(work.tensor.shape))
        for work in works:
            work.future.set_result([work.tensor])

    def _capture(self) -> None:
        """The state after the last round, once everything of the sync is done; its keeper stores it."""
        if self._works or (self._captured is not None and self._captured[0] == self._step):
            return
        self._captured = self._step, pack_torch(self._state())
        self._trained.state.round = self._step
        if self._keeps:
            self._states.store(*self._captured)

    def _state(self) -> dict[str, Any]:
        return {
            "model": self._model.state_dict(),
            "hooks": {key: save() for key, (_load, save) in self._hooks.items()},
        }

    def _fall_in(self) -> None:
        """Left out of a round: go on from the state after the last one."""
        self._step, self._loaded = self._come_in()
        for key, (load, _save) in self._hooks.items():
            load(self._loaded[key])
        self._rendezvous.remember(self._step)
        self._rendezvous.report_back()
        log.warning("event=left-out now=%d", self._step)

    def _come_in(self) -> tuple[int, dict[str, Any]]:
        """Load the model as it is after the last committed round."""
        round_, body = self._states.latest(self._state)
        try:
            state = unpack_torch(body)
            self._model.load_state_dict(state["model"])
            hooks: dict[str, Any] = state["hooks"]
        except Exception as error:
            message = f"The stored state does not fit this model: {error}"
            raise RendezvousError(message) from None
        with torch.no_grad():
            for index, fragment in enumerate(self._fragments):
                shared = hooks.get(f"StreamingDiLoCoFragment_{index}", {}).get("original_parameters", {})
                for name, parameter in fragment.named_parameters():
                    if name in shared:
                        # The model that was stored may have trained on since this fragment's last turn.
                        parameter.copy_(shared[name])
        return round_, hooks


def _codec(name: str) -> Codec:
    try:
        return codec_named(name)
    except ValueError as error:
        raise AlgorithmError(str(error)) from None
