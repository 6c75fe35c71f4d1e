"""The state of torchft's algorithms after each round, as one object, from which a replica continues.

Their outer optimizer is torchft's own, so a round's mean cannot be replayed: every round has a state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from muster.replica.errors import RendezvousError
from muster.replica.frontends.plain_state import StateDict
from muster.replica.frontends.torch_state import pack_torch, unpack_torch
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.round_history import last_committed
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys


@dataclass(frozen=True)
class TorchftStates:
    """The states of a run; see `retention.States`."""

    context: RoundContext

    def store(self, round_: int, body: bytes) -> None:
        """Store the state after `round_`, unless another member has: all hold the same."""
        if not self.is_complete(round_):
            try:
                self.context.store.create(keys.torchft_state(round_), body)
            except ObjectExistsError:
                return

    def latest(self, initial: Callable[[], StateDict]) -> tuple[int, bytes]:
        """The last committed round and the state after it, which one of its members stores.

        Args:
            initial: returns the state before the first round, to be stored if no replica has stored it yet.

        Raises:
            StoppedError
            RendezvousError: no member stored it before the time-out.
        """
        polling = self.context.polling()
        while True:
            round_ = last_committed(self.context.store)
            if round_ == 0:
                self.store(0, pack_torch(initial()))
            try:
                return round_, bytes(self.context.store.read(keys.torchft_state(round_)).body)
            except ObjectMissingError:
                polling.pause(lambda: "the members of the last round have not stored the state after it.")

    def rounds(self, last: int) -> range:
        """Every round has a state."""
        return range(last, 0, -1)

    def is_complete(self, round_: int, *, complete: bool = False) -> bool:  # noqa: ARG002 - nothing to complete
        """Whether the state exists."""
        return self.context.store.exists(keys.torchft_state(round_))

    def shards(self, round_: int) -> int:  # noqa: ARG002 - the same for all
        """A state is one object."""
        return 1

    def folder(self, shard: int) -> str:
        """The folder of the states."""
        return keys.torchft_states_of(shard)


def load_state(body: bytes, model: torch.nn.Module, fragments: Sequence[torch.nn.Module]) -> StateDict:
    """Load a stored state into `model`; returns the states of torchft's own parts.

    Raises:
        RendezvousError: it does not fit the model.
    """
    try:
        state = unpack_torch(body)
        model.load_state_dict(state["model"])
        hooks: StateDict = state["hooks"]
    except Exception as error:
        message = f"The stored state does not fit this model: {error}"
        raise RendezvousError(message) from None
    with torch.no_grad():
        for index, fragment in enumerate(fragments):
            shared = hooks.get(f"StreamingDiLoCoFragment_{index}", {}).get("original_parameters", {})
            for name, parameter in fragment.named_parameters():
                if name in shared:
                    # The stored model may have trained on since this fragment was last exchanged.
                    parameter.copy_(shared[name])
    return hooks
