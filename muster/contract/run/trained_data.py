"""Which shards of a data set have been trained: what each contribution says, and what the commits add it up to. Pure.

A *use* is one pass over one shard: `epoch * shards + position`. A use has counted once contributions that count have
trained all of its items. What a contribution trained that does not count is open again: nothing has to give it back.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Annotated, NamedTuple, Protocol, Self

from pydantic import Field, model_validator

from muster.contract.document import StoredPart

SHARDS_MAX = 1_000_000
"""Of a data set: their order in an epoch is made in memory."""
PIECES_MAX = 24
"""How many pieces a contribution names: its header has room for so many beside metrics."""
TO_THE_END = -1
_USE_MAX, _ITEMS_MAX = 10**12, 10**10
_WINDOW = 128  # uses for each seat, of which a round trains at most PIECES_MAX

Use = Annotated[int, Field(ge=0, le=_USE_MAX)]
Items = Annotated[int, Field(ge=0, le=_ITEMS_MAX)]


class Turn(IntEnum):
    """Whose work counts where two contributions have trained the same: the lower one's."""

    DEALT = 0
    JOINED = 1
    SPARE = 2


class Piece(NamedTuple):
    """Items of a use, from `begin` to before `end`, or to its end. Without any: the replica goes on with the use."""

    use: Use
    begin: Items
    end: Annotated[int, Field(ge=TO_THE_END, le=_ITEMS_MAX)]


class Begun(NamedTuple):
    """A use of which so many items have counted, and the rank that goes on with it; none if it has not gone on."""

    use: Use
    items: Items
    holder: Annotated[int, Field(ge=0)] | None


class TrainedData(StoredPart):
    """What a contribution has trained."""

    shards: int = Field(ge=1, le=SHARDS_MAX, description="of the data set")
    pieces: tuple[Piece, ...] = Field(
        default=(), max_length=PIECES_MAX, description="use, first item, item after the last (-1: the use has ended)"
    )
    turn: int = Field(
        default=Turn.DEALT, ge=0, le=2, description="0: dealt to the replica; 1: it had joined; 2: another's as well"
    )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        is_twice = len({piece.use for piece in self.pieces}) < len(self.pieces)
        if is_twice or any(TO_THE_END < piece.end < piece.begin for piece in self.pieces):
            message = "a use is named twice, or a piece ends before it begins"
            raise ValueError(message)
        return self


class Contributor(Protocol):
    """A member of a round, as far as its data are concerned."""

    @property
    def rank(self) -> int:
        """Its rank."""

    @property
    def data(self) -> TrainedData | None:
        """What it has trained."""


class EpochShards(StoredPart):
    """How far a run is in its data."""

    epoch: int = Field(ge=0, description="the epoch that is being trained, from 0")
    done: int = Field(ge=0, description="how many shards of it have counted")
    shards: int = Field(ge=1, le=SHARDS_MAX, description="of the data set")

    @property
    def words(self) -> str:
        """`312 of 1,000 shards of epoch 2`: people count from 1."""
        return f"{self.done:,} of {self.shards:,} shards of epoch {self.epoch + 1:,}"


class DataProgress(StoredPart):
    """Which uses have counted. Other replicas write it, so it is checked like all that is read."""

    shards: int = Field(ge=1, le=SHARDS_MAX, description="of the data set")
    low: Use = Field(default=0, description="all uses before it have counted")
    counted: tuple[tuple[Use, Use], ...] = Field(
        default=(), description="further uses that have: ranges, first and the one after the last"
    )
    begun: tuple[Begun, ...] = Field(
        default=(), description="uses that have in part: use, items, the rank that goes on with it"
    )

    @model_validator(mode="after")
    def _is_sound(self) -> Self:
        borders = [self.low, *(use for span in self.counted for use in span)]
        uses = [item.use for item in self.begun]
        if any(sorted(set(found)) != found for found in (borders, uses)) or any(map(self.has_counted, uses)):
            message = "uses that have counted are not ascending, or have counted in part as well"
            raise ValueError(message)
        return self

    @property
    def epoch(self) -> int:
        """The epoch of the first use that has not counted, from 0."""
        return self.low // self.shards

    @property
    def done(self) -> int:
        """How many shards of this epoch have counted."""
        first, stop = self.epoch * self.shards, (self.epoch + 1) * self.shards
        return self.low - first + sum(max(0, min(b, stop) - a) for a, b in self.counted)

    @property
    def shown(self) -> EpochShards:
        """As people see it."""
        return EpochShards(epoch=self.epoch, done=self.done, shards=self.shards)

    def has_counted(self, use: int) -> bool:
        """Whether all of a use has counted."""
        place = bisect_right(self.counted, use, key=lambda span: span[0])
        return use < self.low or (place > 0 and use < self.counted[place - 1][1])

    def items(self, use: int) -> int:
        """How many items of a use have counted that has not ended."""
        return next((item.items for item in self.begun if item.use == use), 0)

    def open(self, stop: int) -> Iterator[int]:
        """The uses before `stop` that have not counted, ascending."""
        at = self.low
        for first, after in (*self.counted, (stop, stop)):
            yield from range(at, min(first, stop))
            at = after

    def window(self, seats: int) -> int:
        """The use before which replicas of a run with so many seats train: what is stored here stays small."""
        return self.low + _WINDOW * seats

    def after(self, members: Iterable[Contributor]) -> DataProgress:
        """What has counted after a round with these members, of which no two have trained the same."""
        found = [(member.rank, piece) for member in members if member.data for piece in member.data.pieces]
        ended = {piece.use for _, piece in found if piece.end == TO_THE_END and not self.has_counted(piece.use)}
        begun = {item.use: item._replace(holder=None) for item in self.begun if item.items and item.use not in ended}
        for rank, piece in found:
            if piece.use not in ended and not self.has_counted(piece.use):
                begun[piece.use] = Begun(piece.use, piece.end, rank)
        low, counted = _joined([*self.counted, *((use, use + 1) for use in ended)], self.low)
        return self.model_copy(
            update={"low": low, "counted": counted, "begun": tuple(begun[use] for use in sorted(begun))}
        )

    def left_out(self, members: Sequence[Contributor], seats: int) -> Mapping[int, str]:
        """The members whose contributions cannot count beside what has counted and each other, each with the reason.

        Args:
            members: by rank.
            seats: of the run.
        """
        taken: dict[int, int] = {}
        reasons: dict[int, str] = {}
        for member in sorted(members, key=lambda one: (_turn(one), one.rank)):
            if member.data is None:
                continue
            reason = self._reason(member.data, taken, seats)
            if reason is None:
                taken |= dict.fromkeys((piece.use for piece in member.data.pieces), member.rank)
            else:
                reasons[member.rank] = reason
        return reasons

    def _reason(self, data: TrainedData, taken: Mapping[int, int], seats: int) -> str | None:
        if data.shards != self.shards:
            return f"it trains {data.shards} shards, and the run has {self.shards}"
        for use, begin, _ in data.pieces:
            shard = f"it has trained use {use} of the shards"
            if use in taken:
                return f"{shard}, which counts for rank {taken[use]}"
            if self.has_counted(use) or begin != self.items(use):
                return f"{shard} from item {begin} on, which has counted before or is not next"
            if use >= self.window(seats):
                return f"{shard}, which is too far ahead of use {self.low}"
        return None


def _turn(member: Contributor) -> int:
    return Turn.DEALT if member.data is None else member.data.turn


def _joined(spans: Iterable[tuple[int, int]], low: int) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The low-water mark and the ranges after it that cover all before `low` and these spans."""
    joined = [(0, low)]
    for first, stop in sorted(spans):
        begin, end = joined[-1]
        if first <= end:
            joined[-1] = begin, max(end, stop)
        else:
            joined.append((first, stop))
    return joined[0][1], tuple(joined[1:])
