"""Which shards of the data this replica has trained since its last contribution (`context.shards`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from muster.contract.run.commit import Commit
from muster.contract.run.trained_data import PIECES_MAX, DataProgress, Items, Piece, TrainedData, Turn, Use
from muster.replica.replica_errors import ParametersError
from muster.replica.rounds.seen_rounds import SeenRounds

Pieces = dict[Use, tuple[Items, Items]]
"""For each use the first item and the one after the last, or -1."""


@dataclass(frozen=True)
class Lane:
    """What a replica trains next: uses in their order, each from an item on. Without any, all uses have counted."""

    uses: tuple[tuple[Use, Items], ...]
    turn: Turn


class PhaseData:
    """The pieces of one process, empty where its trainer has no shards. All processes of a replica have the same.

    What the trainer has received counts as trained when it asks for more, or reports its step.
    """

    def __init__(self, seen: SeenRounds) -> None:
        self._seen = seen
        self._shards: int | None = None
        self._received: list[Piece] = []
        self._given: Pieces = {}
        self.trained: Pieces = {}
        """What was trained since the last contribution."""
        self.lane = Lane((), Turn.DEALT)
        """What was dealt to this replica last."""
        self.deals = 0
        """How often that has changed."""
        self.commit: Commit | None = None
        """The last round at that time; None: before the first one."""
        self.overlaps = False
        """Whether the trainer goes on while a round is exchanged."""
        self.complete: Callable[[], None] | None = None
        """Gives what was trained to the present round, and merges it; None before a front end has joined the run."""

    def begin(self, shards: int, deal: Callable[[Commit | None], Lane]) -> None:
        """The trainer divides its data into so many shards, of which `deal` says what to train after a commit.

        Raises:
            ParametersError: it has said so before.
        """
        if self._shards is not None:
            message = "context.shards was called before: keep what it has returned; a run trains one data set."
            raise ParametersError(message)
        self._shards, self._dealer = shards, deal
        self._deal()

    @property
    def room(self) -> int:
        """How many uses the present contribution can name that it does not name yet."""
        return (PIECES_MAX // 2 if self.overlaps else PIECES_MAX) - len(self.trained)

    @property
    def open(self) -> Pieces:
        """What was trained and is in no commit that this replica has merged."""
        return self._given | {use: (self._given.get(use, span)[0], span[1]) for use, span in self.trained.items()}

    @property
    def progress(self) -> DataProgress | None:
        """What had counted when uses were dealt last; None before anything has."""
        return None if self.commit is None else self.commit.data_after

    def receive(self, pieces: Iterable[Piece]) -> None:
        """The trainer gets these items now."""
        self._received.extend(pieces)

    def forget(self) -> None:
        """The trainer has left its loop: what it has received last is not trained."""
        self._received.clear()

    def reached(self) -> None:
        """The trainer is done with all that it has received."""
        for use, begin, end in self._received:
            self.trained[use] = self.trained.get(use, (begin, end))[0], end
        self._received.clear()

    def give(self) -> TrainedData | None:
        """What the contribution of this moment says.

        Where training goes on meanwhile it names the next uses as well: they are then dealt to this replica again.
        """
        given, self._given, self.trained = self.trained, self.trained, {}
        if self._shards is None:
            return None
        pieces = [Piece(use, begin, end) for use, (begin, end) in given.items()]
        if self.overlaps:
            more = [Piece(use, begin, begin) for use, begin in self.lane.uses if use not in given]
            pieces += more[: min(len(given) + 1, PIECES_MAX - len(given))]
        return TrainedData(shards=self._shards, pieces=tuple(pieces), turn=self.lane.turn)

    def merged(self) -> None:
        """A round is over, and training goes on from what it has counted."""
        self._given = {}
        self._deal()

    def drop(self) -> None:
        """All work since the last round that this replica holds is dropped, and its shards with it."""
        self._received, self.trained, self._given = [], {}, {}
        self._deal()

    def _deal(self) -> None:
        # Now: the next round may be committed in the middle of a step, and other processes would see it elsewhere.
        self.commit = self._seen.commits[-1] if self._seen.commits else None
        if self._shards is not None:
            self.lane = self._dealer(self.commit)
            self.deals += 1

    def packed(self) -> NDArray[np.int64] | None:
        """All that no commit has yet, for a state from which the present phase continues; None without shards."""
        if self._shards is None:
            return None
        return np.array([(use, *span) for use, span in self.open.items()], np.int64).reshape(-1, 3)

    def restore(self, packed: NDArray[np.int64] | None) -> None:
        """Continue from `packed`."""
        rows = [] if packed is None else packed.tolist()
        self.trained = {use: (begin, end) for use, begin, end in rows}
        self.deals += 1
