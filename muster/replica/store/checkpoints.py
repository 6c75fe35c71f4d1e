"""The trainer's own state (inner optimizer, data position, random numbers) in a folder: the last few, in fixed slots.

SageMaker copies the folder to S3 file by file, at any time, and restores everything under the prefix when the replica
restarts. So the files are few and their names are fixed: `muster-<kind>-0.ckpt` to `muster-<kind>-2.ckpt`. Each holds
one state: one line of JSON (round, claim, bytes, sha256), then the state. A new state replaces the oldest one. The
checksum is in the file itself, so a copy that is damaged or mixed is noticed, and the state before it is used.

The user's own files lie in the same folder, under other names.

| kind | state | when |
|---|---|---|
| `trainer` | the trainer's whole state, as the front end packed it | every k-th round; every round if it is small |
| `progress` | what is small of it | the rounds between |
| `residual` | the residual of error feedback (float32, flat) | as `trainer` |
| `stopped` | the whole state, and the phase that was interrupted; one file | when the replica is asked to stop |

A round's state is written before the round's contribution is sent. The newest state that is not after the run's last
committed round is therefore at the end of that round's data: a process that continues from it sees no data twice.

Processes that follow each other may contribute to one round: the first one is lost after it has contributed, the next
one before the round is committed. Each saves a state of the round. The one of the contribution that the run has counted
is used: hence the claim in the file. No state is deleted because the run has not reached its round yet.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from pydantic import Field

from muster.contract.document import StoredDocument
from muster.contract.errors import DocumentError

# The newest may be one round ahead of the run's last committed round; the third is a spare if a file is damaged.
KEPT = 3
# Saved with every round: less than a round's exchange of a model whose state is larger.
SMALL_BYTES = 16 * 2**20
_HEADER_BYTES_MAX = 200
_DAMAGED = -1

State = tuple[int, int]
"""The round after which a state was saved, and the claim (epoch) of the process that saved it; 0 for none."""

log = logging.getLogger("muster.replica")


class Contributor(Protocol):
    """The replica whose states these are."""

    @property
    def epoch(self) -> int:
        """The claim under which this process contributes."""

    def counted(self, round_: int) -> int | None:
        """The claim of this replica's contribution that counts in a round; None if none does, or it is not known."""

    def counted_back(self, round_: int) -> Sequence[State]:
        """Known rounds without a gap, from `round_` back, each with the claim that counts in it; 0 if none does."""


class _NoContributor:
    """Where no state is the contribution of a replica."""

    epoch = 0

    def counted(self, round_: int) -> int | None:  # noqa: ARG002 - not known of any
        return None

    def counted_back(self, round_: int) -> Sequence[State]:
        return [(round_, 0)]


_NO_CONTRIBUTOR = _NoContributor()


def usable(held: Iterable[State], last_round: int, counted: int | None) -> list[State]:
    """The states from which a process can continue after `last_round`, the best one first.

    None of `last_round` that belongs to another contribution than the one with the claim `counted`, if that is known.
    """
    return sorted(
        (
            (round_, epoch)
            for round_, epoch in held
            if _DAMAGED < round_ < last_round or (round_ == last_round and (counted is None or epoch in {counted, 0}))
        ),
        reverse=True,
    )


def kept_beside(held: Collection[State], saved: State, number: int, counted: int | None = None) -> list[State]:
    """At most `number` of the states that are kept when `saved` is stored.

    First the one from which a process continues if the run does not commit the round of `saved`; `counted`: the claim
    that counts in the round before, if that is known.
    """
    others = sorted((state for state in held if state[0] > _DAMAGED and state != saved), reverse=True)
    earlier = usable(held, saved[0] - 1, counted)[:1]
    return (earlier + [state for state in others if state not in earlier])[:number]


class _Header(StoredDocument):
    round: int = Field(ge=0)
    epoch: int = Field(default=0, ge=0)
    bytes: int = Field(ge=0)
    sha256: str


class Checkpoints:
    """The last `kept` states of one kind in one folder; of large states those of every `every`-th round."""

    def __init__(
        self, folder: Path, kind: str, every: int = 1, kept: int = KEPT, contributor: Contributor = _NO_CONTRIBUTOR
    ) -> None:
        self._folder = folder
        self._contributor = contributor
        self._every = every
        self._first: int | None = None
        self._slots = [folder / f"muster-{kind}-{slot}.ckpt" for slot in range(kept)]
        # Outside of the slots' names, so that it is no state, and always the same one.
        self._unfinished = folder / f"muster-{kind}.tmp"

    def is_due(self, round_: int, *, is_small: bool) -> bool:
        """Whether a state is saved in this round: a large one in the first round and in every `every`-th."""
        self._first = round_ if self._first is None else self._first
        return is_small or round_ == self._first or round_ % self._every == 0

    def save(self, round_: int, state: bytes | memoryview) -> None:
        """Store the state at the end of a round's inner steps atomically, in place of the oldest."""
        self.adopt((round_, self._contributor.epoch), state)

    def adopt(self, saved: State, state: bytes | memoryview) -> None:
        """Store a state that another process has saved, with its round and claim; else as `save`."""
        round_ = saved[0]
        header = _Header(round=round_, epoch=saved[1], bytes=len(state), sha256=hashlib.sha256(state).hexdigest())
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._unfinished.open("wb") as file:
            file.write(header.to_json().rstrip(b"\n") + b"\n")
            file.write(state)
            file.flush()
            os.fsync(file.fileno())
        held = self._held()
        counted = self._contributor.counted(round_ - 1)
        kept = _paths(held, kept_beside(held.values(), saved, len(self._slots) - 1, counted))
        slot = next(slot for slot in self._slots if slot not in kept)
        os.replace(self._unfinished, slot)  # noqa: PTH105
        for path in held.keys() - {slot, *kept}:
            path.unlink(missing_ok=True)

    def __len__(self) -> int:
        """How many states are kept."""
        return len(self._slots)

    def load(self, last_round: int, epoch: int | None = None) -> tuple[int, bytes] | None:
        """The newest intact state that is not after `last_round`, with its round.

        If it is of `last_round`, it was saved under the claim `epoch` (None: the one that counts in this round).
        """
        held = self._held()
        counted = self._contributor.counted(last_round) if epoch is None else epoch
        for path in _paths(held, usable(held.values(), last_round, counted)):
            if (state := read_state(path)) is not None:
                return held[path][0], state
        return None

    def of_last_counted(self, round_: int) -> bytes | None:
        """The intact state of the last contribution that counts in a round up to `round_`, or one that is of no
        contribution and newer; None if it is not stored, or not known to be the last."""
        newest = round_
        for number, claim in self._contributor.counted_back(round_):
            if number <= newest:
                found = self.load(number, claim)
                if found is None:
                    return None
                newest, state = found  # of the rounds between there is none
                if newest == number:
                    return state
            if claim:
                return None
        return None

    def discard(self) -> None:
        """Delete all states of this kind."""
        for path in self._held():
            path.unlink(missing_ok=True)

    def _held(self) -> dict[Path, State]:
        """The state in each file, as its header says; of the round _DAMAGED where it cannot be read."""
        return {path: state_of(path) for path in self._slots if path.exists()}


def _paths(held: dict[Path, State], states: Collection[State]) -> list[Path]:
    """The files of `states`, in their order; of two with the same state one."""
    by_state = {state: path for path, state in held.items()}
    return [by_state[state] for state in states]


def state_of(path: Path) -> State:
    """The state in a file, as its header says; of a round below 0 where it cannot be read."""
    header = _header(path)
    if header is None:
        log.warning("event=damaged-checkpoint path=%s reason='it does not begin with a header'", path)
        return _DAMAGED, 0
    return header.round, header.epoch


def _header(path: Path) -> _Header | None:
    with path.open("rb") as file:
        line = file.readline(_HEADER_BYTES_MAX)
    try:
        return _Header.from_json(line, str(path))
    except DocumentError:
        return None


def read_state(path: Path) -> bytes | None:
    """The state in the file; None where it is not the one of the header."""
    line, _, state = path.read_bytes().partition(b"\n")
    header = _Header.from_json(line, str(path))
    if (header.bytes, header.sha256) != (len(state), hashlib.sha256(state).hexdigest()):
        log.warning("event=damaged-checkpoint path=%s reason='its checksum does not match'", path)
        return None
    return state
