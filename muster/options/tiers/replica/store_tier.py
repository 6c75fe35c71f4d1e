"""States in S3, beside the rounds of the run: one object each, written once."""

from __future__ import annotations

from contextlib import suppress

from muster.options.tiers.replica.tier import Held, Tier, TierName, failing, superfluous
from muster.replica.states.state_buffer import Bytes
from muster.replica.store.transport import ObjectExistsError, Store, StoreError
from muster.replica.wire import rendezvous_keys

KEPT = 2


class StoreTier(Tier):
    """Survives the instance."""

    name = TierName.S3

    def __init__(self, store: Store, rank: int, part: int, parts: int) -> None:
        """The states of process `part` of the `parts` of replica `rank`."""
        self._store = store
        self._folder = rendezvous_keys.inner_states_of(rank, part, parts)
        self._is_first, self._of_replica = part == 0, rendezvous_keys.inner_states_of_rank(rank)

    @failing(StoreError)
    def held(self) -> list[Held]:
        """See `Tier`."""
        # A tilde sorts after everything that a name has.
        found = self._store.keys(self._folder, f"{self._folder}~")
        names = [key.removeprefix(self._folder) for key in found]
        return [held for name in names if (held := Held.named(name)) is not None]

    @failing(StoreError)
    def read(self, held: Held) -> Bytes:
        """See `Tier`."""
        return self._store.read(self._folder + held.name).body

    def write(self, held: Held, body: memoryview) -> None:
        """See `Tier`."""
        with failing(StoreError):
            with suppress(ObjectExistsError):  # this process has written it; the answer was lost
                self._store.upload(self._folder + held.name, body)
            self._store.delete([self._folder + state.name for state in superfluous(self.held(), held, KEPT)])

    @failing(StoreError)
    def clear(self) -> None:
        """The first process deletes those of groups of other sizes, too."""
        folder = self._of_replica if self._is_first else self._folder
        self._store.delete(self._store.keys(folder, f"{folder}~"))
