"""Saves a replica's inner state between two rounds as often as the spec says, and finds the newest one after a restart.

| tier | where | when |
|---|---|---|
| memory, or else disk | nodes of the cluster; the instance | every `memory_every` inner steps, and after a phase |
| S3 | the run's rendezvous | every `s3_every` inner steps |

The training loop waits while its state is copied. Checksums and writing follow beside it: one state at a time for each
of the two, and where the last one is still being written the next one is left out. A tier that fails or is slow costs
states, never the training.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from muster.contract.document import digest
from muster.contract.run.commit import Resumed
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.options.tiers.replica.disk_tier import DiskTier
from muster.options.tiers.replica.lane import Lane, Memory
from muster.options.tiers.replica.memory_tier import MemoryTier
from muster.options.tiers.replica.state_file import (
    HEADER_BYTES,
    Owner,
    StateHeader,
    opened,
    seal,
)
from muster.options.tiers.replica.store_tier import StoreTier
from muster.options.tiers.replica.tier import Held, Tier, TierError, TierName
from muster.replica.frontends.phase_states import Found, StateId, StatesBetweenRounds
from muster.replica.parts.link import Link
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.round_context import log
from muster.replica.states.state_buffer import Layout, UnusableStateError, state_in
from muster.replica.states.state_tree import Arrays, Room, Tree

LOOKED_AT = 6  # states that processes compare: more than all tiers keep of one round
_CLEAR_SECONDS = 10.0
_LOGGED_FAILURES = 3  # of a tier, one after the other; then each tenth


@dataclass
class Counts:
    """What has become of the states of one tier."""

    saved: int = 0
    failed: int = 0
    left_out: int = 0
    in_a_row: int = 0


@dataclass
class _Captured:
    """A state in memory, until every lane is done with it."""

    memory: Memory
    room: Room
    header: StateHeader
    users: int
    parameters: Sequence[slice]
    lock: threading.Lock = field(default_factory=threading.Lock)
    is_sealed: bool = False

    @property
    def held(self) -> Held:
        return Held(self.header.id, self.header.epoch)

    @property
    def is_finite(self) -> bool:
        """Whether its parameters hold neither NaN nor infinity."""
        return all(np.isfinite(self.room[place].view(np.float32)).all() for place in self.parameters)

    def sealed(self) -> memoryview:
        """All of it, with its header."""
        body = self.room[: HEADER_BYTES + self.header.bytes].data
        with self.lock:
            if not self.is_sealed:
                seal(body, self.header)
                self.is_sealed = True
        return body

    def release(self) -> None:
        """One of its users is done."""
        with self.lock:
            self.users -= 1
            is_last = self.users == 0
        if is_last:
            self.memory.give_back(self.room)


class Due(NamedTuple):
    """Where a state is due: in the fast tier, in S3."""

    fast: bool
    far: bool


class InnerStates:
    """The stored inner states of one process. All processes of a replica make the same calls."""

    def __init__(
        self, rendezvous: Rendezvous, link: Link, arrays: Arrays, interval: int, wanted: CheckpointTiers
    ) -> None:
        """`link` connects the processes for the training loop; `interval`: inner steps of a round."""
        context = rendezvous.context
        self._rendezvous, self._link, self._arrays, self._interval = rendezvous, link, arrays, interval
        self.owner = Owner(context.run, context.store.uri(""), rendezvous.rank, link.rank, link.size)
        self._fast, self._far = wanted.memory_every, wanted.s3_every
        self._s3 = StoreTier(context.store, rendezvous.rank, link.rank, link.size)
        folder = rendezvous.outside.local_states
        self._disk = None if folder is None else DiskTier(_folder(folder, self.owner))
        self._nodes = MemoryTier.of(self.owner, interval) if self._fast else None
        self._lanes = {"fast": Lane("fast-states"), "s3": Lane("s3-states")}
        self._memory = Memory(arrays.memory)
        self._last = 0
        self.counts = {tier.name: Counts() for tier in self._tiers()}

    def _tiers(self) -> Iterator[Tier]:
        """The fastest one first. All are read, whatever the spec says now: a continuation may have another spec."""
        yield from (tier for tier in (self._nodes, self._disk, self._s3) if tier is not None)

    def begin(self, round_: int, steps: int) -> None:
        """The next inner step is the one after `steps` of the phase after `round_`."""
        self._last = round_ * self._interval + steps

    def due(self, round_: int, steps: int) -> Due:
        """Where a state is due after an inner step of a phase. All processes call it after every step of it."""
        before, self._last = self._last, round_ * self._interval + steps
        return Due(_is_due(self._fast, before, self._last), _is_due(self._far, before, self._last))

    def after_step(
        self, id_: StateId, capture: Callable[[], Tree | None], blocked: Callable[[], AbstractContextManager[None]]
    ) -> None:
        """See `PhaseStates`."""
        if any(due := self.due(*id_)):
            with blocked():
                self.save(due, id_, capture)

    def save(self, due: Due, id_: StateId, capture: Callable[[], Tree | None]) -> None:
        """Save what `capture` returns where it is due; None if no state can be taken now.

        All processes of the replica call it after the same step.
        """
        due = Due(self._ready(due.fast, "fast"), self._ready(due.far, "s3"))
        if self._link.size > 1:
            # Reading the parameters takes all processes.
            answers = self._link.gather(tuple(due))
            due = Due(*(all(answer) for answer in zip(*answers, strict=True)))
        if any(due) and (state := capture()) is not None:
            self._start(self._captured(id_, state, due), due)

    def ended_phase(self, round_: int, capture: Callable[[], Tree]) -> Callable[[], None]:
        """At the end of the inner steps that go into `round_`: capture the replica's own state.

        Returns:
            what saves it. It is what the next phase begins with, so it waits for a state that is still being written.
        """
        before, self._last = self._last, round_ * self._interval
        is_short = self._fast is not None and self._fast <= self._interval
        fast = is_short or _is_due(self._fast, before, self._last)
        due = Due(fast, self._ready(_is_due(self._far, before, self._last), "s3"))
        if not any(due):
            return lambda: None
        captured = self._captured(StateId(round_, 0), {"own": capture()}, due)
        return lambda: self._start(captured, due)

    def newest(self, last_round: int, counted: int | None) -> Found | None:
        """The newest state after the run's last committed round that every process has whole; None without one.

        Args:
            counted: the claim of this replica's contribution that counts in that round; None if that is not known.
        """
        held = self._held(last_round)
        common: set[StateId] = set.intersection(*(set(ids) for ids in self._link.gather(sorted(held)[-LOOKED_AT:])))
        for id_ in sorted(common, reverse=True):
            found = self._whole(id_, held[id_], counted)
            epochs = self._link.gather(None if found is None else found.epoch)
            if found is not None and len(set(epochs)) == 1:
                return found
        return None

    def resumed(self, found: Found) -> None:
        """The replica continues from `found`: its contributions say so."""
        round_, step = found.id
        log.warning("event=resumed tier=%s round=%d step=%d claim=%d", found.tier, round_, step, found.epoch)
        self._rendezvous.statistics.resumed = Resumed(tier=found.tier, round=round_, step=step)

    def clear(self) -> None:
        """The training is over: delete the states. What a tier does not delete in time stays."""
        for lane in self._lanes.values():
            lane.wait(_CLEAR_SECONDS)
        cleaner = threading.Thread(target=self._clear, name="clear-states", daemon=True)
        cleaner.start()
        cleaner.join(_CLEAR_SECONDS)
        log.info("event=inner-states %s", " ".join(map(_counted, self.counts.items())))

    def wait(self, seconds: float) -> bool:
        """Wait until nothing is being written; whether that is so before the time is over."""
        return all(lane.wait(seconds) for lane in self._lanes.values())

    def _ready(self, due: bool, lane: str) -> bool:
        if due and not self._lanes[lane].is_free:
            tier = TierName.S3 if lane == "s3" else self._quick().name
            self.counts[tier].left_out += 1
            log.warning("event=inner-state-left-out tier=%s reason='the last one is still being written'", tier)
            return False
        return due

    def _captured(self, id_: StateId, state: Tree, due: Due) -> _Captured:
        layout = Layout.of(state, self._arrays, HEADER_BYTES)
        room = self._memory.take(layout.size)
        layout.copy_to(room, self._arrays)
        header = StateHeader(
            **vars(self.owner),
            round=id_.round,
            step=id_.step,
            epoch=self._rendezvous.seat.epoch,
            tree=len(layout.tree),
            bytes=layout.size - HEADER_BYTES,
        )
        return _Captured(self._memory, room, header, users=sum(due), parameters=layout.filled)

    def _start(self, captured: _Captured, due: Due) -> None:
        if due.fast:
            self._lanes["fast"].run(partial(self._write, captured, self._write_fast), captured.release)
        if due.far:
            self._lanes["s3"].run(partial(self._write, captured, partial(self._write_to, self._s3)), captured.release)

    def _write(self, captured: _Captured, write: Callable[[_Captured], None]) -> None:
        """In the thread of a lane."""
        try:
            if captured.is_finite:
                write(captured)
            else:
                # A restart would bring back what the round heals.
                log.warning("event=inner-state-left-out step=%d reason='it is not finite'", captured.header.step)
        except Exception:
            log.exception("event=inner-state-failed")
        finally:
            captured.release()

    def _write_fast(self, captured: _Captured) -> None:
        """To the memory of the nodes, and to the disk where that fails."""
        tier = self._quick()
        try:
            self._write_to(tier, captured, raises=True)
        except TierError:
            if tier is self._nodes and self._disk is not None:
                self._write_to(self._disk, captured)

    def _quick(self) -> Tier:
        """The fast tier for the next state. Without any, states of `memory_every` go to S3."""
        if self._nodes is not None and not self._nodes.is_paused:
            return self._nodes
        return self._disk or self._s3

    def _write_to(self, tier: Tier, captured: _Captured, *, raises: bool = False) -> None:
        counts = self.counts[tier.name]
        try:
            tier.write(captured.held, captured.sealed())
        except TierError as error:
            counts.failed += 1
            counts.in_a_row += 1
            if counts.in_a_row <= _LOGGED_FAILURES or counts.in_a_row % 10 == 0:
                round_, step = captured.held.id
                log.warning(
                    *("event=inner-state-failed tier=%s round=%d step=%d failures=%d reason=%r",),
                    *(tier.name, round_, step, counts.failed, str(error)),
                )
            if raises:
                raise
        else:
            counts.saved += 1
            counts.in_a_row = 0
            if counts.saved == 1:
                log.info("event=first-inner-state tier=%s bytes=%d", tier.name, captured.header.bytes)

    def _held(self, last_round: int) -> dict[StateId, list[tuple[Tier, Held]]]:
        """The states of the phase after `last_round` that the tiers seem to hold; of each the fastest tier first."""
        found: dict[StateId, list[tuple[Tier, Held]]] = {}
        for tier in self._tiers():
            try:
                states = tier.held()
            except TierError as error:
                log.warning("event=tier-not-read tier=%s reason=%r", tier.name, str(error))
                continue
            later = sum(held.id.round > last_round for held in states)
            if later:
                log.warning("event=inner-states-ignored tier=%s number=%d last_round=%d", tier.name, later, last_round)
            for held in sorted(states, reverse=True):
                if held.id.round == last_round:
                    found.setdefault(held.id, []).append((tier, held))
        return found

    def _whole(self, id_: StateId, places: list[tuple[Tier, Held]], counted: int | None) -> Found | None:
        """The state from the fastest tier that has it whole."""
        for tier, held in places:
            try:
                body = tier.read(held)
                header = opened(body, self.owner, id_, self._rendezvous.seat.epoch)
                if id_.step == 0 and counted not in {None, header.epoch}:
                    message = f"claim {header.epoch} has saved it, and the contribution of claim {counted} counts"
                    raise UnusableStateError(message)
                return Found(id_, tier.name, header.epoch, state_in(body, header.tree, self._arrays, HEADER_BYTES))
            except (TierError, UnusableStateError) as error:
                log.warning(
                    *("event=damaged-inner-state tier=%s round=%d step=%d reason=%r",),
                    *(tier.name, id_.round, id_.step, str(error)),
                )
        return None

    def _clear(self) -> None:
        for tier in self._tiers():
            try:
                tier.clear()
            except TierError as error:
                log.warning("event=inner-states-not-deleted tier=%s reason=%r", tier.name, str(error))


def _is_due(every: int | None, before: int, now: int) -> bool:
    """Whether a multiple of `every` inner steps lies after the inner step `before`, and not after `now`."""
    return every is not None and now // every > before // every


def _folder(root: Path, owner: Owner) -> Path:
    """A folder of the process's own: the disk may be that of a node, for all its pods."""
    lineage = f"{owner.run}-{digest(owner.rendezvous)[:8]}"
    return root / lineage / f"r{owner.rank}" / f"p{owner.part}of{owner.parts}"


def _counted(item: tuple[TierName, Counts]) -> str:
    name, counts = item
    return f"{name}_saved={counts.saved} {name}_failed={counts.failed} {name}_left_out={counts.left_out}"


OFFER = StatesBetweenRounds(InnerStates)
