"""The state of torchft's algorithms after each round, as one object, from which a replica continues.

A member stores it before it contributes to the next round. So the state of the last committed round may not be there
yet, and if all its members have ended it never will be; that of the round before is. The round's mean is then replayed.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from muster.replica.frontends.torch_arrays import TorchArrays
from muster.replica.replica_errors import AlgorithmError, RendezvousError
from muster.replica.rounds.round_context import RoundContext
from muster.replica.rounds.round_history import LOADS_MAX, last_committed
from muster.replica.states.plain_state import StateDict
from muster.replica.states.state_buffer import Packed, packed_state, unpacked_state
from muster.replica.store.transport import ObjectMissingError, create_once
from muster.replica.wire import rendezvous_keys


@dataclass(frozen=True)
class TorchftStates:
    """The states of a run; see `retention.States`."""

    context: RoundContext

    def store(self, round_: int, body: Packed) -> None:
        """Store the state after `round_`, unless another member has: all hold the same."""
        if not self.is_complete(round_):
            create_once(self.context.store, rendezvous_keys.torchft_state(round_), body)

    def latest(self, initial: Callable[[], StateDict]) -> tuple[int, bytes]:
        """The newest state and its round: the last committed one, or the one before.

        Args:
            initial: returns the state before the first round, to be stored if no replica has stored it yet.

        Raises:
            RendezvousError: both are gone, again and again.
        """
        last = 0
        for _ in range(LOADS_MAX):
            last = last_committed(self.context.store)
            if last == 0:
                self.store(0, packed_state(initial(), TorchArrays()))
            for round_ in range(last, max(last - 2, -1), -1):
                # Both are missing only if a newer one covers them, and they were deleted meanwhile.
                with suppress(ObjectMissingError):
                    return round_, bytes(self.context.store.read(rendezvous_keys.torchft_state(round_)).body)
        uri = self.context.store.uri(rendezvous_keys.torchft_state(last))
        message = f"Round {last} is committed, but neither {uri} nor the state of the round before is stored."
        raise RendezvousError(message)

    def rounds(self, last: int) -> range:
        """Every round has a state."""
        return range(last, 0, -1)

    def is_complete(self, round_: int, *, complete: bool = False) -> bool:  # noqa: ARG002 - nothing to complete
        """Whether the state exists."""
        return self.context.store.exists(rendezvous_keys.torchft_state(round_))

    def shards(self, round_: int) -> int:  # noqa: ARG002 - the same for all
        """A state is one object."""
        return 1

    def folder(self, shard: int) -> str:
        """The folder of the states."""
        return rendezvous_keys.torchft_states_of(shard)


def load_state(body: Packed, model: torch.nn.Module, fragments: Sequence[torch.nn.Module]) -> StateDict:
    """Load a stored state into `model`; returns the states of torchft's own parts.

    Raises:
        RendezvousError: it does not fit the model.
    """
    try:
        state = unpacked_state(body, TorchArrays())
        model.load_state_dict(state["model"])
        hooks: StateDict = state["hooks"]
    except Exception as error:
        message = f"The stored state does not fit this model: {error}"
        raise RendezvousError(message) from None
    with torch.no_grad():
        for index, fragment in enumerate(fragments):
            shared = hooks.get(fragment_key(index), {}).get("original_parameters", {})
            for name, parameter in fragment.named_parameters():
                if name in shared:
                    # The stored model may have trained on since this fragment was last exchanged.
                    parameter.copy_(shared[name])
    return hooks


Load = Callable[[StateDict], None]
Save = Callable[[], StateDict]


def fragment_key(index: int) -> str:
    """The name under which torchft's DiLoCo registers the state of one of its fragments."""
    return f"StreamingDiLoCoFragment_{index}"


@runtime_checkable
class SyncedFragment(Protocol):
    """The part of torchft's fragment with which a round is replayed."""

    def prepare_sync(self) -> None:
        """Compute the pseudo-gradient, and request its mean from the manager."""

    def perform_sync(self) -> bool:
        """Wait for the mean, and let the outer optimizer apply it to the parameters of the last sync."""

    def restore_parameters(self) -> None:
        """Copy the parameters of the last sync into the model."""


def fragment_of(key: str, load: Load) -> SyncedFragment:
    """The fragment whose state `load` restores: torchft registers functions that refer to it as `self`.

    Raises:
        AlgorithmError: this version of torchft registers something else.
    """
    found = inspect.getclosurevars(load).nonlocals.get("self")
    if not isinstance(found, SyncedFragment):
        message = (
            f"torchft's DiLoCo registered {key} with {load!r}, through which no round can be replayed; allowed: the "
            "DiLoCo of torchft-nightly 2026.10.26, with which Muster is tested."
        )
        raise AlgorithmError(message)
    return found
