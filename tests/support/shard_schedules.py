"""Random lives of a run that divides its data: replicas join, leave, fail, are late and are rerun in every round.

`python -m tests.support.shard_schedules 0 20000` plays so many, and prints what they have reached.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from dataclasses import dataclass, field

from muster.contract.run.trained_data import PIECES_MAX, TO_THE_END, DataProgress, Piece, TrainedData
from muster.options.shards.replica.deal import Place, dealt

ROUNDS_MAX = 5_000
_SIZES = (1, 2, 5, 30)


@dataclass(frozen=True)
class Contributor:
    rank: int
    data: TrainedData | None


@dataclass
class Schedule:
    """One run; `play` returns once every item has counted as often as there are epochs."""

    seed: int
    rounds: int = 0
    left_out: int = 0
    resumed: int = 0
    widest: int = 0  # ranges and uses in part of a commit
    counted: Counter[tuple[int, int]] = field(default_factory=Counter)

    def play(self) -> None:
        draw = random.Random(self.seed)  # noqa: S311
        seats, shards = draw.choice([1, 2, 3, 5, 8, 16]), draw.choice([1, 2, 3, 7, 20, 100])
        stop = draw.choice([1, 1, 2, 3]) * shards
        self.sizes = [draw.choice(_SIZES) for _ in range(shards)]
        progress, most = DataProgress(shards=shards), 1
        expected = tuple(range(draw.randint(1, seats)))
        alive = set(expected)
        # What a process was stopped in the middle of, which its rerun continues while the round is open.
        kept: dict[int, tuple[int, tuple[Piece, ...]]] = {}
        while progress.low < stop:
            self.rounds += 1
            assert self.rounds < ROUNDS_MAX, f"seed {self.seed} does not end: {progress}"
            alive -= {rank for rank in sorted(alive) if draw.random() < 0.1}
            alive |= {rank for rank in range(seats) if draw.random() < 0.15}
            members, named = [], set()
            for rank in sorted(alive):
                lane = dealt(progress, Place(rank, expected, seats, self.rounds - 1, most), stop)
                assert lane.uses, "there is something to do until all has counted"
                round_, begun = kept.pop(rank, (0, ()))
                before = begun if round_ == self.rounds else ()
                self.resumed += bool(before)
                pieces = self._trained(lane.uses, before, draw.choice([1, 3, 10, 60]))
                fate = draw.random()
                if fate < 0.05:
                    kept[rank] = self.rounds + 1, pieces
                elif fate < 0.12:
                    named.add(rank)  # unusable
                elif fate > 0.2:
                    members.append(Contributor(rank, TrainedData(shards=shards, pieces=pieces, turn=lane.turn)))
            reasons = progress.left_out(members, seats)
            counts = [member for member in members if member.rank not in reasons]
            assert bool(counts) == bool(members), "somebody's work counts"
            self.left_out += len(reasons)
            if not counts:
                # No commit: the round goes on, and who was stopped continues in it.
                kept = {rank: (self.rounds + 1, begun) for rank, (_, begun) in kept.items()}
                continue
            kept.clear()
            self._count(counts)
            leaves = {member.rank for member in counts if draw.random() < 0.05}
            alive = alive - leaves or alive
            named |= {member.rank for member in members}
            expected = tuple(sorted(named - leaves))
            most = max(len(member.data.pieces) for member in counts if member.data)
            progress = DataProgress.model_validate_json(progress.after(counts).to_line())
            self.widest = max(self.widest, len(progress.counted) + len(progress.begun))
        items = {(use, item) for use in range(stop) for item in range(self.sizes[use % shards])}
        assert set(self.counted) == items, "an item was never trained"
        assert set(self.counted.values()) == {1}, "an item was trained twice"

    def _trained(self, uses: tuple[tuple[int, int], ...], before: tuple[Piece, ...], budget: int) -> tuple[Piece, ...]:
        pieces = {piece.use: piece for piece in before}
        for use, begin in uses:
            size = self.sizes[use % len(self.sizes)]
            first, at = (pieces[use].begin, pieces[use].end) if use in pieces else (begin, begin)
            if budget <= 0 or at == TO_THE_END or (use not in pieces and len(pieces) == PIECES_MAX):
                continue
            end = min(size, at + budget)
            budget -= end - at
            pieces[use] = Piece(use, first, TO_THE_END if end == size else end)
        return tuple(pieces.values())

    def _count(self, members: list[Contributor]) -> None:
        for member in members:
            for use, begin, end in member.data.pieces if member.data else ():
                stop = self.sizes[use % len(self.sizes)] if end == TO_THE_END else end
                self.counted.update((use, item) for item in range(begin, stop))


def play(seeds: range) -> list[Schedule]:
    """All of these schedules, played to their ends."""
    schedules = [Schedule(seed) for seed in seeds]
    for schedule in schedules:
        schedule.play()
    return schedules


if __name__ == "__main__":
    played = play(range(*map(int, sys.argv[1:])))
    items = sum(map(len, (one.counted for one in played)))
    print(
        f"{len(played)} schedules, {sum(one.rounds for one in played)} rounds, {items} items, "
        f"{sum(one.left_out for one in played)} contributions left out, "
        f"{sum(one.resumed for one in played)} phases resumed, at most {max(one.widest for one in played)} ranges"
    )
