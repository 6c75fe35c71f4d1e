"""A trainer's own state in its checkpoints: all of it now and then, what is small of it with every round."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from muster.replica.parts.link import Link
from muster.replica.rendezvous import Rendezvous
from muster.replica.states.plain_state import StateDict, bytes_of
from muster.replica.states.state_buffer import packed_state, unpacked_state
from muster.replica.states.state_tree import Arrays
from muster.replica.store.checkpoints import SMALL_BYTES, Checkpoints


class SavedState:
    """Saves and loads the states of a front end. Without a folder it does nothing."""

    def __init__(self, rendezvous: Rendezvous, folder: Path | None, link: Link, arrays: Arrays) -> None:
        """`link` connects the processes of the replica for the training loop: they save in the same rounds."""
        self._whole = rendezvous.checkpoints(folder, "trainer")
        self._progress = rendezvous.checkpoints(folder, "progress")
        self._link = link
        self._arrays = arrays

    @property
    def is_kept(self) -> bool:
        """Whether states are saved at all."""
        return self._whole is not None

    def capture(self, state: StateDict, *, whole: bool) -> Callable[[], None]:
        """A function that stores `state`, which belongs after `state["round"]`; all of it if it is due, or `whole`."""
        kind, round_ = self._whole, state["round"]
        if kind is None or self._progress is None:
            return lambda: None
        is_small = not any(self._link.gather(bytes_of(state) > SMALL_BYTES))
        if not kind.is_due(round_, is_small=is_small) and not whole:
            kind, state = self._progress, small_part(state)
        packed = [packed_state(state, self._arrays)]
        # Once: what is written is not held during the exchange.
        return lambda: kind.save(round_, packed.pop())

    def load(self, link: Link, last_round: int, epoch: int | None = None) -> StateDict | None:
        """The newest state up to `last_round` that all processes of the replica have; None if there is none.

        `epoch`: as in `Checkpoints.load`.
        """
        if self._whole is None or self._progress is None:
            return None
        found = load_common(link, self._whole, last_round, epoch)
        newer = load_common(link, self._progress, last_round, epoch)
        if found is None:
            return None
        state = unpacked_state(found, self._arrays)
        return state if newer is None else with_progress(state, unpacked_state(newer, self._arrays))


def small_part(state: StateDict) -> StateDict:
    """What is saved with every round: objects of the trainer that are small, and what is small of the rest."""
    part = {name: item for name, item in state.items() if not isinstance(item, Mapping)}
    return part | {name: _small(item) for name, item in state.items() if isinstance(item, Mapping)}


def with_progress(state: StateDict, part: StateDict) -> StateDict:
    """The whole state with a later `part` of it, as `small_part` makes it; `state` itself if it is as new."""
    if part["round"] <= state["round"]:
        return state
    return {
        name: {**item, **part[name]} if isinstance(item, Mapping) and name in part else part.get(name, item)
        for name, item in state.items()
    }


def _small(items: Mapping[str, Any]) -> StateDict:
    return {name: item for name, item in items.items() if bytes_of(item) <= SMALL_BYTES}


def load_common(link: Link, checkpoints: Checkpoints, last_round: int, epoch: int | None = None) -> bytes | None:
    """This process's state after the newest round, at most `last_round`, of which every process has one; else None.

    `epoch`: as in `Checkpoints.load`.
    """
    while True:
        found = checkpoints.load(last_round, epoch)
        rounds: list[int] = link.gather(-1 if found is None else found[0])
        if found is None or min(rounds) < 0:
            return None
        if min(rounds) == max(rounds):
            return found[1]
        last_round, epoch = min(rounds), None
