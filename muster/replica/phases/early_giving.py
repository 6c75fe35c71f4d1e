"""Between two inner steps: whether the others' contributions to the round are enough without this replica's.

A slow replica then gives what it has. Otherwise the round would wait for it in vain, or be committed without it. A look
takes one request while the others still train, and runs beside the training loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf
from threading import Event

from muster.contract.errors import MusterError
from muster.contract.run.commit import Commit
from muster.replica.rounds.background import Background
from muster.replica.rounds.grace_window import grace_window
from muster.replica.rounds.quorum import worth_waiting
from muster.replica.rounds.round_context import RoundContext
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.blocks import CONNECTIONS

# A look notices a quorum late by at most so much of the phase, and by at most a second.
LOOK_SHARE = 0.02
LOOK_MAX_SECONDS = 1.0
LOOK_MIN_SECONDS = 0.1
# What is left of the phase has to fit into this share of the grace window: the pace is an estimate.
WINDOW_SHARE = 0.5


@dataclass
class _Round:
    """What is known about the round that this replica trains for."""

    round: int
    needed: int
    keys: list[str]  # of the contributions that have not been seen
    window_seconds: float
    began: float
    present: int = 0
    stands_since: float = inf
    is_committed: bool = False
    is_over: Event = field(default_factory=Event)


class EarlyGiving:
    """Looks at one round after another, in a thread of its own."""

    def __init__(self, context: RoundContext, rank: int) -> None:
        self._context, self._rank = context, rank
        self._at_hand: _Round | None = None

    def begin(self, round_: int, recent: Sequence[Commit]) -> None:
        """A phase begins that is given to `round_`. `recent`: the commits before, oldest first.

        Where every contribution is needed, this replica's included, no look is made.
        """
        self.end()
        context, quorum = self._context, self._context.quorum
        previous = recent[-1] if recent else None
        ranks, epochs, finished = set(quorum.first), (1,) * len(quorum.first), 0
        if previous is not None:
            ranks = previous.expected
            epochs = previous.epochs
            finished = len(previous.finished_in(context.trained_by))
        others = [rendezvous_keys.contribution(round_, rank, epochs[rank]) for rank in sorted(ranks - {self._rank})]
        needed = quorum.wanted(len(ranks), finished)
        if len(others) >= needed:
            window = min(grace_window(quorum, recent), worth_waiting(previous, 1, len(others)))
            self._at_hand = at_hand = _Round(round_, needed, others, window, context.clock.monotonic())
            Background[None]().begin(lambda: self._watch(at_hand))

    def end(self) -> None:
        """The phase is over."""
        if self._at_hand is not None:
            self._at_hand.is_over.set()
        self._at_hand = None

    def is_late(self, left_seconds: float) -> bool:
        """Whether the round would be over before this replica ends its phase, which takes `left_seconds` more."""
        at_hand = self._at_hand
        if at_hand is None:
            return False
        waited = self._context.clock.monotonic() - at_hand.stands_since
        return at_hand.is_committed or left_seconds > WINDOW_SHARE * (at_hand.window_seconds - waited)

    def _watch(self, at_hand: _Round) -> None:
        clock = self._context.clock
        while not (at_hand.is_over.is_set() or self._context.stops.asked.is_set() or at_hand.is_committed):
            # What is wrong with the store is said by the exchange.
            with suppress(MusterError):
                self._look(at_hand)
            pause = LOOK_SHARE * (clock.monotonic() - at_hand.began)
            clock.wait(at_hand.is_over, min(LOOK_MAX_SECONDS, max(LOOK_MIN_SECONDS, pause)))

    def _look(self, at_hand: _Round) -> None:
        store = self._context.store
        while at_hand.present < at_hand.needed and at_hand.keys:
            # One that is not there goes to the end: it may never come.
            batch = at_hand.keys[: CONNECTIONS if at_hand.present else 1]
            there = self._context.side_by_side(store.exists, batch)
            missing = [key for key, is_there in zip(batch, there, strict=True) if not is_there]
            at_hand.keys[:] = at_hand.keys[len(batch) :] + missing
            at_hand.present += len(batch) - len(missing)
            if missing:
                break
        if at_hand.present and store.exists(rendezvous_keys.commit(at_hand.round)):
            at_hand.is_committed = True
        if at_hand.present >= at_hand.needed or at_hand.is_committed:
            at_hand.stands_since = min(at_hand.stands_since, self._context.clock.monotonic())
