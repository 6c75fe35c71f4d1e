"""A replica's own state after its inner group has another number of processes than the one that has saved it.

On a cluster the operator may change the instances of a replica between two starts of its program, and a rerun of a
training job may get instances with another number of GPUs. The global state is in the rendezvous, whatever the size. A
replica's own state is in the checkpoints, a part of each process: all of them are there, because all instances share
one prefix in S3. Before the processes load anything, each writes what it would have saved itself, under its own names.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link
from muster.replica.phases.interrupted_phase import Phase, packed_phase, unpacked_phase
from muster.replica.rendezvous import Rendezvous
from muster.replica.resizing.shared_parts import copy_slice
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict
from muster.replica.states.state_buffer import Packed, packed_state, unpacked_state
from muster.replica.states.state_tree import Arrays
from muster.replica.store.checkpoints import KEPT, State, read_state, state_of
from muster.replica.wire.binary_format import Floats

_STOPPED = "stopped"
_STATES = ("trainer", "progress")
KINDS = (*_STATES, "residual", _STOPPED)
_NAME = re.compile(r"muster-(?P<kind>[a-z]+)(?:-p(?P<rank>\d+)of(?P<size>\d+))?-\d\.ckpt")

Resize = Callable[[Sequence[Callable[[], StateDict]], int, int], StateDict]
"""Makes a process's state from functions that read the states of all processes of a group of another size: of its rank
and the size of its own group."""


@runtime_checkable
class Resizable(Protocol):
    """A stateful object of the trainer whose state depends on how many processes the replica has.

    A position in data that the processes share is such a state: what all have read counts, not what one has.
    """

    def resized(self, states: Sequence[StateDict], rank: int, size: int) -> StateDict:
        """The state of process `rank` of `size`, from those of the processes that were there before, in order."""


def resized_objects(
    objects: Mapping[str, object], states: Sequence[StateDict], rank: int, size: int
) -> dict[str, StateDict]:
    """The states of the trainer's objects: as an object itself says, else that of the process in the same place."""
    names = states[0].keys()
    return {
        name: item.resized([state[name] for state in states], rank, size)
        if isinstance(item := objects.get(name), Resizable)
        else states[rank % len(states)][name]
        for name in names
    }


@dataclass
class _Stored:
    """The states that a group has saved in a folder: of each kind the files by state and rank."""

    parts: int = 1
    """How many processes have a part of each state."""
    files: dict[str, dict[State, dict[int, Path]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )

    def whole(self, kind: str) -> dict[State, list[Path]]:
        """The states of which all parts are there, with these by rank."""
        return {
            state: [paths[rank] for rank in range(self.parts)]
            for state, paths in self.files[kind].items()
            if all(rank in paths for rank in range(self.parts))
        }

    @property
    def newest(self) -> tuple[int, int]:
        """Claim and round of the newest whole state: a later claim is newer, whatever its round."""
        states = [state for kind in (*_STATES, _STOPPED) for state in self.whole(kind)]
        return max(((epoch, round_) for round_, epoch in states), default=(-1, -1))


class ResizedStates:
    """Finds the newest state in a folder, and stores it as this group's if another size has saved it."""

    def __init__(
        self, rendezvous: Rendezvous, folder: Path | None, link: Link, cut: Cut, *, one_saves: bool = False
    ) -> None:
        """`cut`: what this process holds of the flat element space. `one_saves`: the first process, for all."""
        self._rendezvous, self._folder, self._link, self._cut = rendezvous, folder, link, cut
        self._one_saves = one_saves

    def adopt(self, arrays: Arrays, resize: Resize) -> bool:
        """Store the states of another size as those of this process, if they are newer; whether they are.

        All processes of the replica call this before any of them loads a state.
        """
        if self._folder is None:
            return False
        stored = _scan(self._folder, one_saves=self._one_saves)
        here = self._rendezvous.context.group.size
        own = stored.pop(here, _Stored())
        size = max(stored, key=lambda item: stored[item].newest, default=0)
        newest = stored[size].newest if size else (-1, -1)
        found = (size, *newest) if newest > own.newest else None
        # Their folders are copies of one, made at about the same time.
        if len(set(self._link.gather(found))) != 1:
            log.warning("event=not-resized reason='the processes of the replica have found different states'")
            return False
        if found is None:
            return False
        coding = _Coding(arrays, resize)
        for kind in KINDS:
            self._replace(stored[size], kind, coding)
        # None of them begins before all have stored their part.
        self._link.gather(None)
        log.info("event=resized from=%d to=%d round=%d", size, here, newest[1])
        return True

    def _replace(self, stored: _Stored, kind: str, coding: _Coding) -> None:
        """Replace what this process has of a kind, which is older."""
        kept = 1 if kind == _STOPPED else KEPT
        target = self._rendezvous.checkpoints(self._folder, kind, kept)
        if target is None:
            return
        target.discard()
        for state, paths in sorted(stored.whole(kind).items())[-kept:]:
            # A damaged copy of a part is as a missing one. Of the others one at a time is in memory.
            if all(read_state(path) is not None for path in paths):
                target.adopt(state, self._made(kind, paths, coding))

    def _made(self, kind: str, paths: Sequence[Path], coding: _Coding) -> Packed:
        if kind in _STATES:
            readers = [partial(_unpacked, path, coding.arrays) for path in paths]
            return packed_state(coding.resize(readers, self._link.rank, self._link.size), coding.arrays)
        if kind == _STOPPED:
            return packed_phase(self._phase(paths))
        return self._joined(len(paths), (np.frombuffer(_body(path), np.float32) for path in paths)).data.cast("B")

    def _phase(self, paths: Sequence[Path]) -> Phase:
        """The phase as this process would have stored it. The first one counts for what all have trained on."""
        first, arrays = _phase_in(paths[0]), {}
        for name in ("parameters", "begun", "residual"):
            if getattr(first, name) is not None:
                arrays[name] = self._joined(len(paths), (getattr(_phase_in(path), name) for path in paths))
        samples = sum((_phase_in(path).samples for path in paths), np.zeros_like(first.samples))
        return replace(
            first,
            samples=samples if self._link.rank == 0 else np.zeros_like(samples),
            parameters=arrays["parameters"],
            begun=arrays.get("begun"),
            residual=arrays.get("residual"),
        )

    def _joined(self, count: int, parts: Iterable[Floats]) -> Floats:
        """What this process holds of an array of which the former ones held `parts`: one of these at a time."""
        made = np.zeros(self._cut.length, np.float32)
        for rank, part in enumerate(parts):
            copy_slice(made, self._cut, part, rank, count)
        return made


@dataclass(frozen=True)
class _Coding:
    """How a front end's states become bytes, and those of another size its own."""

    arrays: Arrays
    resize: Resize


def _phase_in(path: Path) -> Phase:
    return unpacked_phase(_body(path))


def _body(path: Path) -> bytes:
    return read_state(path) or b""


def _unpacked(path: Path, arrays: Arrays) -> StateDict:
    return unpacked_state(_body(path), arrays)


def _scan(folder: Path, *, one_saves: bool) -> dict[int, _Stored]:
    """The states in a folder, by the size of the group that has saved them."""
    found: dict[int, _Stored] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is None or match["kind"] not in KINDS:
            continue
        size, state = int(match["size"] or 1), state_of(path)
        stored = found.setdefault(size, _Stored(1 if one_saves else size))
        if state[0] >= 0:
            stored.files[match["kind"]][state][int(match["rank"] or 0)] = path
    return found
