"""What torchft's algorithms hold after a round, as one object: who comes back goes on from there.

Their outer optimizer is torchft's own, so a round's mean cannot be replayed: every round has a state.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from muster.replica.frontends.torch_state import pack_torch
from muster.replica.rounds.round_context import Meeting
from muster.replica.rounds.round_history import last_committed
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys


@dataclass(frozen=True)
class TorchftStates:
    """The states of a run; see `retention.States`."""

    meeting: Meeting

    def store(self, round_: int, body: bytes) -> None:
        """Store the state after `round_`; the first one stands, and all hold the same."""
        if not self.is_complete(round_):
            try:
                self.meeting.store.create(keys.torchft_state(round_), body)
            except ObjectExistsError:
                return

    def latest(self, beginning: Callable[[], dict[str, Any]]) -> tuple[int, bytes]:
        """The last committed round and the state after it, which its members store as they go on.

        Args:
            beginning: gives the state before the first round, should nobody have stored it yet.

        Raises:
            StoppedError
            RendezvousError: it did not come in time.
        """
        patience = self.meeting.patience()
        while True:
            round_ = last_committed(self.meeting.store)
            if round_ == 0:
                self.store(0, pack_torch(beginning()))
            try:
                return round_, bytes(self.meeting.store.read(keys.torchft_state(round_)).body)
            except ObjectMissingError:
                patience.pause(lambda: "the state after the last round was not stored by its members.")

    def rounds(self, last: int) -> range:
        """Every round has a state."""
        return range(last, 0, -1)

    def is_complete(self, round_: int, *, complete: bool = False) -> bool:  # noqa: ARG002 - there is nothing to do
        """Whether the state is there."""
        return self.meeting.store.exists(keys.torchft_state(round_))

    def shards(self, round_: int) -> int:  # noqa: ARG002 - the same for all
        """A state is one object."""
        return 1

    def folder(self, shard: int) -> str:
        """Where the states lie."""
        return keys.torchft_states_of(shard)
