"""A manager for torchft's `DiLoCo` and `LocalSGD`, which run unmodified over the rendezvous.

    manager = Manager(context.rendezvous, model)
    with torchft.local_sgd.DiLoCo(manager, [model], inner_optimizer, outer_optimizer, sync_every=500):
        while manager.current_step() < rounds: ...train, inner_optimizer.step()
    manager.shutdown()

torchft asks for one all-reduce per parameter. They are collected, and go as one flat buffer in one exchange: when the
first of them is waited for, or when the next inner step begins (so that `fragment_sync_delay` overlaps the transfer).

The outer optimizer is torchft's own, so a round's mean cannot be replayed here. Instead one member stores the state
after every round (model, outer optimizer): who comes back, or was left out, goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from muster.replica import keys
from muster.replica.background import Background
from muster.replica.codec import Floats
from muster.replica.errors import RendezvousError
from muster.replica.exchange import Exchange
from muster.replica.history import last_committed
from muster.replica.meeting import log
from muster.replica.outer import GlobalState
from muster.replica.rendezvous import Rendezvous, Trained
from muster.replica.tensor_packing import TensorPacking
from muster.replica.torch_state import pack_torch, unpack_torch
from muster.replica.transport import ObjectExistsError, ObjectMissingError

# States of so many rounds are kept: whoever reads one has begun before the next two were stored.
STATES_KEPT = 3


class Work:
    """One tensor's part of an exchange, as `torch.distributed` hands out work."""

    def __init__(self, tensor: torch.Tensor, wait: Callable[[], None]) -> None:
        self._wait = wait
        self.tensor = tensor
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
        self, rendezvous: Rendezvous, model: torch.nn.Module, fragments: Sequence[torch.nn.Module] | None = None
    ) -> None:
        """Join the run: overwrites `model` with the run's. Make the torchft algorithm afterwards.

        Args:
            fragments: the list that torchft's DiLoCo is given, if it is not `[model]`.

        Raises:
            FencedError, StoppedError, RendezvousError
        """
        self._rendezvous = rendezvous
        self._meeting = rendezvous.meeting
        self._model = model
        self._fragments = list(fragments or [model])
        self._hooks: dict[str, tuple[Callable[[Any], None], Callable[[], Any]]] = {}
        self._works: list[Work] = []
        self._exchange: Background[Exchange] = Background()
        self._took_part = True
        self._captured: tuple[int, bytes] | None = None
        self._keeps = False
        packing = TensorPacking(model)
        self._step, self._loaded = self._come_in()
        state = GlobalState(self._step, packing.read(), np.zeros(packing.count, np.float32))
        self._trained = Trained(packing=packing, state=state)
        rendezvous.enter(self._trained)

    def register_state_dict_fn(self, key: str, load: Callable[[Any], None], save: Callable[[], Any]) -> None:
        """Keep what `save` gives with every round's state; a process that came later gets it loaded at once."""
        self._hooks[key] = load, save
        if key in self._loaded:
            load(self._loaded[key])

    def current_step(self) -> int:
        """Rounds behind this replica."""
        return self._step

    def start_quorum(self, *_: object, **__: object) -> None:
        """Nothing: who takes part is agreed when the round is exchanged."""

    def disallow_state_dict_read(self) -> None:
        """An inner step begins: what the last sync left is complete, what it began can go on its way."""
        self._capture()
        self._send()

    def allow_state_dict_read(self) -> None:
        """An inner step has ended: nothing to do."""

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False) -> Work:  # noqa: ARG002 - the run's codec
        """Have `tensor` replaced by its mean over the participants, together with all others of this sync."""
        work = Work(tensor, self._receive)
        self._works.append(work)
        return work

    def should_commit(self, *_: object, **__: object) -> bool:
        """Whether this replica took part in the round. If not, it holds the run's current state afterwards."""
        self._receive()
        self._step += 1
        if self._took_part:
            return True
        self._step, self._loaded = self._come_in()
        for key, (load, _save) in self._hooks.items():
            load(self._loaded[key])
        self._rendezvous.remember(self._step)
        self._rendezvous.report_back()
        log.warning("event=left-out now=%d", self._step)
        return False

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - torchft's signature
        """After the last sync: leave the model as the replica's result."""
        self._capture()
        self._trained.state.parameters[...] = self._trained.packing.read()

    def _send(self) -> None:
        """Begin the exchange of what was collected."""
        if not self._works or self._exchange.busy:
            return
        gradient = torch.cat([work.tensor.detach().reshape(-1).float().cpu() for work in self._works]).numpy()
        round_, captured, keeps = self._step + 1, self._captured, self._keeps

        def exchange() -> Exchange:
            if captured is not None and not keeps:
                # Its keeper may have died with it, and the one that comes back may be whom this round waits for.
                self._store_state(*captured)
            return self._rendezvous.exchange(round_, gradient, 1.0)

        self._exchange.begin(exchange)

    def _receive(self) -> None:
        """Wait for the exchange and hand out the means."""
        self._send()
        exchange = self._exchange.wait()
        if exchange is None:
            return
        self._took_part = exchange.took_part
        members = exchange.commit.members
        self._keeps = members[exchange.commit.round % len(members)].rank == self._rendezvous.rank
        self._captured = None
        works, self._works = self._works, []
        start = 0
        for work in works:
            stop = start + work.tensor.numel()
            work.tensor.copy_(_as_tensor(exchange.mean, start, stop).view(work.tensor.shape))
            start = stop
            work.future.set_result([work.tensor])

    def _capture(self) -> None:
        """The state after the last round, once everything of the sync is done; its keeper stores it."""
        if self._works or (self._captured is not None and self._captured[0] == self._step):
            return
        state = {key: save() for key, (_load, save) in self._hooks.items()}
        self._captured = self._step, pack_torch({"model": self._model.state_dict(), "hooks": state})
        self._trained.state.round = self._step
        if self._keeps:
            self._store_state(*self._captured)
            if (old := self._step - STATES_KEPT) > 0:
                self._meeting.store.delete([keys.torchft_state(old)])

    def _store_state(self, round_: int, body: bytes) -> None:
        if not self._meeting.store.exists(keys.torchft_state(round_)):
            try:
                self._meeting.store.create(keys.torchft_state(round_), body)
            except ObjectExistsError:
                return

    def _come_in(self) -> tuple[int, dict[str, Any]]:
        """Load the model as it is after the last round that has a state; wait for that of the last committed one."""
        patience = self._meeting.patience()
        while True:
            round_ = last_committed(self._meeting.store)
            if round_ == 0:
                self._store_state(0, pack_torch({"model": self._model.state_dict(), "hooks": {}}))
            try:
                body = bytes(self._meeting.store.read(keys.torchft_state(round_)).body)
            except ObjectMissingError:
                patience.pause(lambda: "the state after the last round was not stored by its members.")
                continue
            return round_, self._load(body)

    def _load(self, body: bytes) -> dict[str, Any]:
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
        return hooks


def _as_tensor(mean: Floats, start: int, stop: int) -> torch.Tensor:
    return torch.from_numpy(mean[start:stop])
