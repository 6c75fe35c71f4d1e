"""Reduce and gather: the members make shards of the mean, each of them some, and all replicas read the others'."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue
from threading import Lock

from muster.contract.run.commit import Commit, Exclusion, Member
from muster.replica.codecs.base import Payload
from muster.replica.free_memory import pages
from muster.replica.replica_errors import RoundGoneError
from muster.replica.rounds.commit_store import read_commit
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import Look, ReducedShards, Sink
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.weighted_mean import Rejection
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats, put_values
from muster.replica.wire.blocks import CONNECTIONS

# A replica takes over a shard after this many times as long as its own shard took, but not before the floor. Taking
# over too early costs work, nothing else: all members write the same bytes.
TAKEOVER_FACTOR = 2.0
TAKEOVER_FLOOR_SECONDS = 1.0
# Each is read over as many connections as there are members; few members make more at once.
MADE_AT_ONCE = 4
# A listing shows the shards of so many rounds, 1,000 a request.
LISTED_ROUNDS = 100


class Reduction:
    """One revision of one round: which shards this process makes, reads or takes over, and when."""

    _floor = TAKEOVER_FLOOR_SECONDS

    def __init__(
        self,
        context: RoundContext,
        commit: Commit,
        mine: Contribution | None,
        own: Contribution | None,
        shards: ReducedShards | None = None,
    ) -> None:
        """The reduction of a round as this process sees it.

        Args:
            own: the contribution `mine`, if its values are still in the memory.
            shards: those of the mean; None: as rounds of one place have them.
        """
        self._context = context
        self._commit = commit
        self._own = own
        self._shards = ReducedShards(context, commit) if shards is None else shards
        self._started, self._step = context.clock.monotonic(), self._floor
        self._position = None if mine is None else _position(commit, mine.header.member)
        link = context.link
        self._held = self._shards.held_by(link.rank, link.size)
        self.mean = context.buffers.floats("mean", max(0, self._held.stop - self._held.start))
        """What this process holds of the mean, once it has gathered it."""

    def gather(self, polling: Polling) -> None:
        """Make this process's own shards, read the others that it needs, take over late ones."""
        clock = self._context.clock
        started = clock.monotonic()
        own = [shard for shard in range(self._shards.number) if self._distance(shard) == 0]
        made = self._begin([shard for shard in own if self._is_maker(shard)])
        # What is read from now on takes the place of this process's own values.
        self._own = None
        # From this process's own shard on, so that not all processes read the same one first.
        begin, number = max(own, default=0), self._shards.number
        others = (shard % number for shard in range(begin, begin + number))
        missing = [shard for shard in others if shard not in made and self._needs(shard)]
        took = clock.monotonic() - started
        self._step = max(self._floor, TAKEOVER_FACTOR * took)
        self._started = clock.monotonic()
        # Many others take about as long as this process has, and their looks in vain would hold up each other.
        polling.reset(took if len(missing) > CONNECTIONS else 0.0)
        while missing:
            missing = self._read_all(missing)
            # If the round was complete once, a second look that finds nothing means that its data are deleted.
            if missing and self._position is None and self._was_complete() and self._read_all(missing):
                self._follow()
                raise RoundGoneError(self._commit.round)
            missing = self._help(missing, timed_out=polling.left_seconds <= 0)
            if missing:
                polling.rest()

    def settled(self, rejected: tuple[Exclusion, ...], polling: Polling) -> tuple[Exclusion, ...] | None:  # noqa: ARG002 - where contributions are gathered
        """What all replicas take for unusable, given what this one has found: shards say it, so it is the same.

        None: this process must read its own contribution as well, before anyone can know.
        """
        return rejected

    def _begin(self, own: list[int]) -> list[int]:
        """Make what is this process's part of these shards; returns those that are made."""
        self._make_all(own)
        return own

    def _help(self, missing: list[int], *, timed_out: bool) -> list[int]:
        """Take over what is late of the shards that are not there; returns those that still are not."""
        for shard in list(missing):
            if timed_out or self._takes_over(shard):
                log.warning("round=%d event=take-over shard=%d", self._commit.round, shard)
                self._make(shard)
                missing.remove(shard)
        return missing

    def _takes_over(self, shard: int) -> bool:
        """Whether this process makes a shard that is missing.

        A shard that another process of its replica makes, once the next round is committed: the other process may have
        had it before it was deleted, and looks for it no more.
        """
        if self._is_maker(shard):
            return self._is_due(shard)
        return self._have_passed(len(self._commit.makers)) and self._was_complete()

    def _is_due(self, shard: int) -> bool:
        """Whether those before this process have had their time for a shard."""
        return self._have_passed(self._distance(shard))

    def _have_passed(self, steps: int) -> bool:
        """Whether so many processes before this one have had their time."""
        return self._context.clock.monotonic() >= self._started + self._step * steps

    def _is_maker(self, shard: int) -> bool:
        link = self._context.link
        return self._shards.maker(shard, link.size) == link.rank

    def _needs(self, shard: int) -> bool:
        place = _both(self._held, self._shards.span(shard))
        return bool(place.start < place.stop)

    def _make_all(self, own: list[int]) -> None:
        """Make this process's own shards: one for small models, several in parallel for others."""
        if len(own) < 2:
            for shard in own:
                self._make(shard, partial(self._context.buffers.take, "reduced-0"))
            return
        at_once = min(len(own), self._made_at_once)
        rooms: SimpleQueue[str] = SimpleQueue()
        for number in range(at_once):
            rooms.put(f"reduced-{number}")

        def make(shard: int) -> None:
            # In the memory of those before: what is new comes from the system page by page.
            room = rooms.get()
            try:
                self._make(shard, partial(self._context.buffers.take, room) if self._context.link.size == 1 else pages)
            finally:
                rooms.put(room)

        # Separate threads: each of them waits for requests that run in the context's threads.
        with ThreadPoolExecutor(at_once, "reduce") as makers:
            for _ in makers.map(make, own):
                pass

    @property
    def _made_at_once(self) -> int:
        return max(MADE_AT_ONCE, CONNECTIONS // len(self._commit.members))

    def _make(self, shard: int, room: Callable[[int], Payload] = pages) -> None:
        self._shards.make(shard, self._sink(shard), self._own, room)

    def _sink(self, shard: int) -> Sink:
        """Puts what this process holds of a shard into the mean."""
        start = self._shards.span(shard).start

        def put(elements: slice, values: Floats) -> None:
            span = slice(start + elements.start, start + elements.stop)
            place = _both(self._held, span)
            put_values(self.mean[_within(self._held, place)], values, _within(span, place))

        return put

    def _read_all(self, shards: list[int]) -> list[int]:
        """Fill in those of `shards` that are stored; returns the others.

        Those that are not there are looked for again while the first look at another one still runs, unless first looks
        wait for a connection. Of more shards than connections a listing says which are there: of many replicas, looks
        in vain would take the requests that S3 serves from those that still make their shards.
        """
        is_listed = len(shards) > CONNECTIONS and self._context.snapshot_rounds <= LISTED_ROUNDS
        stored = self._stored(shards) if is_listed else shards
        first = _FirstLooks(len(stored))
        found = self._context.side_by_side(partial(self._read_meanwhile, first, self._context.polling()), stored)
        for shard, look in zip(stored, found, strict=True):
            if look is Look.DAMAGED:
                self._shards.repair(shard, self._sink(shard))
        read = {shard for shard, look in zip(stored, found, strict=True) if look is not Look.MISSING}
        return [shard for shard in shards if shard not in read]

    def _stored(self, shards: list[int]) -> list[int]:
        return self._shards.stored(shards)

    def _read_meanwhile(self, first: _FirstLooks, polling: Polling, shard: int) -> Look:
        """`_read`; as long as it finds nothing, again while `first` looks run and none waits."""
        with first:
            look = self._read(shard)
        while look is Look.MISSING and first.are_running:
            polling.rest()
            look = self._read(shard)
        return look

    def _read(self, shard: int) -> Look:
        """Fill in what this process holds of a shard, if it is stored."""
        return self._read_of(self._shards, shard)

    def _read_of(self, shards: ReducedShards, shard: int) -> Look:
        span = shards.span(shard)
        place = _both(self._held, span)
        within = None if place == span else _within(span, place)
        return shards.read(shard, self._sink(shard), within)

    def _was_complete(self) -> bool:
        """Whether all shards existed once: a replica reads them all before it contributes to the next round."""
        return self._context.store.exists(rendezvous_keys.commit(self._commit.round + 1))

    def _follow(self) -> None:
        """Return if the round has no later revision. The shards of this one may never come, and say nothing of it to a
        process that needs some of them alone.

        Raises:
            Rejection: it has.
        """
        commit = self._commit
        later = read_commit(self._context, commit.round, commit.revision + 1)
        if later is not None:
            rejected = tuple(item for item in later.excluded if item not in commit.excluded)
            raise Rejection(rejected, tuple(sorted(set(later.absent) - set(commit.absent))))

    def _distance(self, shard: int) -> int:
        """How many members take over `shard` before this process does; 0 for its owner.

        Ownership rotates by one member each round, so that with few shards the work does not always fall on the same
        members. Who leaves owns none.
        """
        makers = len(self._commit.makers)
        return makers if self._position is None else (self._position - shard - self._commit.round) % makers


class _FirstLooks:
    """How far a number of looks have come, in several threads."""

    def __init__(self, number: int) -> None:
        self._lock = Lock()
        self._waiting, self._running = max(0, number - CONNECTIONS), 0

    def __enter__(self) -> None:
        """One begins."""
        with self._lock:
            self._running += 1

    def __exit__(self, *_: object) -> None:
        """It has ended, and its connection is free for one that waits."""
        with self._lock:
            self._running -= 1
            self._waiting = max(0, self._waiting - 1)

    @property
    def are_running(self) -> bool:
        """Whether some are running, and none waits for a connection."""
        with self._lock:
            return not self._waiting and self._running > 0


def _both(one: slice, other: slice) -> slice:
    """The elements of both; as long as it is empty its end is its start."""
    start = max(one.start, other.start)
    return slice(start, max(start, min(one.stop, other.stop)))


def _within(outer: slice, inner: slice) -> slice:
    """`inner`, counted from the start of `outer`."""
    return slice(inner.start - outer.start, inner.stop - outer.start)


def _position(commit: Commit, member: Member) -> int | None:
    """The index of `member` among those who make the commit's mean, None if it is not one."""
    return commit.makers.index(member) if member in commit.makers else None
