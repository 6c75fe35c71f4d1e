"""Snapshots: the global state after a round, in shards that several members write, and a manifest that comes last.

A snapshot exists once its manifest does. All replicas hold the same state, so any of them writes the same bytes to a
shard. Only the initial state (round 0) differs from process to process: each writes its shards under a name of its own,
and the first manifest decides which count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import zip_longest

import numpy as np

from muster.contract.spec.elastic import snapshot_writers
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.free_memory import pages
from muster.replica.parts.cut import Cut, window_elements
from muster.replica.parts.link import jointly
from muster.replica.replica_errors import ParametersError, RendezvousError
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.read_ahead import ByteRange
from muster.replica.store.transport import ObjectWriter, create_once
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import (
    HEADER_BYTES,
    PLAIN,
    CodecError,
    Floats,
    Records,
    byte_range,
    decode_header,
    encode,
    encoded_pieces,
    object_bytes,
    put_header,
    put_values,
)
from muster.replica.wire.blocks import CONNECTIONS, Blocks
from muster.replica.wire.headers import SnapshotHeader, SnapshotManifest
from muster.replica.wire.stream_decoder import READ_TRIES, ByteStream, decoded_stream

# A broken connection costs only seconds, and the time of a request depends on its bytes rather than its latency. Far
# below the 5 GiB of a single PUT: no model is too large.
SHARD_BYTES_MAX = 64 * 2**20
# One connection to S3 carries 85 MB/s: all of them are used. Smaller pieces would be faster still, but each is a
# request that is paid for.
READ_BYTES_MIN = 8 * 2**20
ELEMENT_BYTES = 4
SHARED = "shared"  # the source of every snapshot but the first: all replicas hold the same


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a run whose model is cut by `cut`, its arrays named and shaped as `layout` (a digest) says.

    Each process of a replica writes and loads what it holds.
    """

    context: RoundContext
    cut: Cut
    layout: str

    def shards(self, round_: int) -> int:
        """The number of shards of a round's snapshot: depends on the run and the model alone."""
        return self._shards[_arrays(round_) - 1]

    @cached_property
    def _shards(self) -> tuple[int, int]:
        """Of parameters alone, and with their momentum."""
        quorum = self.context.quorum
        writers = snapshot_writers(quorum.replicas, elastic=quorum.is_elastic)
        alone, both = (
            max(-(-elements * ELEMENT_BYTES // SHARD_BYTES_MAX), Blocks(elements).shards(writers))
            for elements in (self.cut.count, 2 * self.cut.count)
        )
        return alone, both

    def put(self, state: GlobalState, shards: range | list[int], source: str = SHARED) -> None:
        """Write some shards of `state`, the same in all processes of the replica; existing ones are left as they are.

        A shard is written by the process that holds its first element; the others send it what they hold of it.
        """
        link = self.context.link
        if link.size == 1:
            self.context.side_by_side(lambda shard: self._put(state, shard, source, self._values(state, shard)), shards)
            return
        tracks: list[list[_Window]] = [[] for _ in range(link.size)]
        for shard in shards:
            tracks[self._writer(state.round, shard)] += self._windows(state.round, shard)
        own = _OwnShards(self, state.round, source)
        try:
            for windows in zip_longest(*tracks):
                values = self._assembled(state, windows)
                jointly(link, partial(own.append, windows[link.rank], values))
        except BaseException:
            own.discard()
            raise

    def _writer(self, round_: int, shard: int) -> int:
        """The process that writes a shard."""
        held = (list(self._held_of(rank, round_, shard)) for rank in range(self.context.link.size))
        firsts = {min(within.start for _, within, _ in pieces): rank for rank, pieces in enumerate(held) if pieces}
        return firsts[min(firsts)]

    def _windows(self, round_: int, shard: int) -> list[_Window]:
        start, stop = self._span(round_, shard)
        blocks = Blocks(stop - start)
        step = max(1, window_elements(self.cut.count, self.context.link.size) // blocks.elements)
        firsts = range(0, blocks.number, step)
        return [_Window(shard, range(first, min(first + step, blocks.number)), blocks) for first in firsts]

    def _assembled(self, state: GlobalState, windows: Sequence[_Window | None]) -> Floats:
        """The values of this process's window, from the processes that hold them."""
        link = self.context.link
        held = [[list(self._held_in(rank, state.round, window)) for window in windows] for rank in range(link.size)]
        arrays = (state.parameters, state.momentum)
        nothing = np.empty(0, np.float32)
        sends = [np.concatenate([nothing, *(arrays[array][local] for array, _, local in to)]) for to in held[link.rank]]
        mine = [held[rank][link.rank] for rank in range(link.size)]
        counts = [sum(within.stop - within.start for _, within, _ in pieces) for pieces in mine]
        values = np.empty(sum(counts), np.float32)
        for pieces, found in zip(mine, link.swap(sends, counts), strict=True):
            offset = 0
            for _, within, _ in pieces:
                values[within] = found[offset : offset + within.stop - within.start]
                offset += within.stop - within.start
        return values

    def missing(self, round_: int) -> list[int]:
        """The shards that do not exist yet."""
        shards = range(self.shards(round_))
        there = self.context.side_by_side(
            lambda shard: self.context.store.exists(rendezvous_keys.snapshot(round_, SHARED, shard)), shards
        )
        return [shard for shard, exists in zip(shards, there, strict=True) if not exists]

    def seal(self, round_: int, source: str = SHARED) -> None:
        """Write the manifest, the last object of a snapshot; the first one written counts."""
        manifest = SnapshotManifest(
            run=self.context.run,
            round=round_,
            count=self.cut.count,
            exact=self.cut.exact,
            layout=self.layout,
            shards=self.shards(round_),
            source=source,
        )
        create_once(self.context.store, rendezvous_keys.manifest(round_), manifest.to_json())

    def is_sealed(self, round_: int) -> bool:
        """Whether the snapshot is complete."""
        return self.context.store.exists(rendezvous_keys.manifest(round_))

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        """Whether the snapshot is sealed. With `complete`, seals it if all its shards exist."""
        if not self.is_sealed(round_):
            if not complete or self.missing(round_):
                return False
            self.seal(round_)
            log.info("round=%d event=snapshot shards=%d", round_, self.shards(round_))
        return True

    def rounds(self, last: int) -> range:
        """The rounds from 1 on that may have a snapshot, from `last` down."""
        return rounds_with_snapshots(self.context, last)

    def folder(self, shard: int) -> str:
        """The folder of that shard of all snapshots."""
        return rendezvous_keys.snapshots_of(shard)

    def load(self, manifest: SnapshotManifest) -> GlobalState:
        """The state that a complete snapshot holds.

        Raises:
            ObjectMissingError: it was deleted meanwhile, because a newer one is complete.
            ParametersError: it belongs to another model.
            RendezvousError: it is damaged.
        """
        return jointly(self.context.link, lambda: self._loaded(manifest))

    def ranges(self, manifest: SnapshotManifest) -> list[ByteRange]:
        """What `load` asks the store for in this process, in this order."""
        return [self._range(piece, manifest) for piece in self._all_pieces(manifest)]

    def _loaded(self, manifest: SnapshotManifest) -> GlobalState:
        self._check_model(manifest)
        length = self.cut.length
        state = GlobalState(manifest.round, pages(4 * length).view(np.float32), np.zeros(length, np.float32))
        self.context.side_by_side(lambda piece: self._load(state, piece, manifest), self._all_pieces(manifest))
        return state

    def _all_pieces(self, manifest: SnapshotManifest) -> list[_Window]:
        return [piece for shard in range(manifest.shards) for piece in self._pieces(manifest.round, shard)]

    def _pieces(self, round_: int, shard: int) -> Iterator[_Window]:
        """What this process holds of a shard, in as many pieces as it has connections for each shard."""
        held = [within for _, within, _ in self._held_of(self.cut.rank, round_, shard)]
        if not held:
            return
        start, stop = self._span(round_, shard)
        blocks = Blocks(stop - start)
        needed = blocks.covering(slice(min(part.start for part in held), max(part.stop for part in held)))
        size = len(needed) * blocks.record_bytes
        pieces = max(1, min(CONNECTIONS // self.shards(round_), size // READ_BYTES_MIN))
        for number in range(pieces):
            first, last = (len(needed) * edge // pieces for edge in (number, number + 1))
            yield _Window(shard, needed[first:last], blocks)

    def _check_model(self, manifest: SnapshotManifest) -> None:
        if (manifest.layout, manifest.count) != (self.layout, self.cut.count):
            message = (
                f"This trainer's parameters ({self.cut.count:,} elements) differ in names or shapes from the run's "
                f"initial parameters ({manifest.count:,} elements). Every replica must build the same model."
            )
            raise ParametersError(message)
        if manifest.shards != self.shards(manifest.round):
            raise _foreign(self.context, manifest.round)

    def _values(self, state: GlobalState, shard: int) -> Floats:
        """The values of a shard, all of which this process holds."""
        arrays = (state.parameters, state.momentum)
        values = [arrays[array][local] for array, _, local in self._held_of(0, state.round, shard)]
        return values[0] if len(values) == 1 else np.concatenate(values)

    def header(self, round_: int, shard: int) -> SnapshotHeader:
        """The header of a shard."""
        return SnapshotHeader(run=self.context.run, round=round_, shard=shard, layout=self.layout)

    def _put(self, state: GlobalState, shard: int, source: str, values: Floats) -> None:
        key = rendezvous_keys.snapshot(state.round, source, shard)
        body = encode(key, values, lambda _: self.header(state.round, shard))
        create_once(self.context.store, key, body)

    def _load(self, state: GlobalState, piece: _Window, manifest: SnapshotManifest) -> None:
        wanted = self._range(piece, manifest)
        reason = ""
        for _ in range(READ_TRIES):
            try:
                self._read(state, wanted, piece)
            except CodecError as error:
                # A retry helps against damage in transfer, not against damage in the bucket.
                reason = str(error)
            else:
                return
        message = f"{self.context.store.uri(wanted.key)} is damaged: {reason}."
        raise RendezvousError(message)

    def _range(self, piece: _Window, manifest: SnapshotManifest) -> ByteRange:
        """The bytes of a piece of a shard."""
        blocks, which = piece.blocks, piece.which
        first, last = byte_range(blocks, which)
        # What the header says is also in the key, to which each block's checksum is bound: who reads the shard's first
        # block reads it. And one byte more than the object can have.
        start, stop = first if which.start else 0, last + (which.stop == blocks.number)
        return ByteRange(rendezvous_keys.snapshot(manifest.round, manifest.source, piece.shard), start, stop)

    def _read(self, state: GlobalState, wanted: ByteRange, piece: _Window) -> None:
        """Load what this process holds of a piece of a shard, while it arrives."""
        key, blocks, which = wanted.key, piece.blocks, piece.which
        sizes = (blocks.stream_bytes if wanted.start else HEADER_BYTES, blocks.stream_bytes)
        arrays = (state.parameters, state.momentum)
        with closing(ByteStream(self.context.stream(wanted, sizes))) as stream:
            if wanted.start == 0:
                self._check(decode_header(key, stream.take(HEADER_BYTES), SnapshotHeader), state.round, piece.shard)
            for run, values in decoded_stream(key, stream, blocks, which):
                window = _Window(piece.shard, run, blocks)
                for array, within, local in self._held_in(self.cut.rank, state.round, window):
                    put_values(arrays[array][local], values, within)

    def _check(self, header: SnapshotHeader, round_: int, shard: int) -> None:
        found = (header.run, header.round, header.shard, header.layout)
        if found != (self.context.run, round_, shard, self.layout):
            message = "its header belongs to another run, round, shard or model"
            raise CodecError(message)

    def _span(self, round_: int, shard: int) -> tuple[int, int]:
        elements, shards = self.cut.count * _arrays(round_), self.shards(round_)
        return elements * shard // shards, elements * (shard + 1) // shards

    def _held_of(
        self, rank: int, round_: int, shard: int, span: slice | None = None
    ) -> Iterator[tuple[int, slice, slice]]:
        """What process `rank` of the replica holds of a shard, or of its `span`: of parameters (0) and momentum (1).

        Yields the array, where its values lie in the shard or span, and where in the process's array.
        """
        start, stop = self._span(round_, shard)
        if span is not None:
            start, stop = start + span.start, start + span.stop
        cut = self.cut if rank == self.cut.rank else replace(self.cut, rank=rank)
        for array in range(_arrays(round_)):
            offset = array * cut.count
            for within, local in cut.within(slice(start - offset, stop - offset)):
                yield array, within, local

    def _held_in(self, rank: int, round_: int, window: _Window | None) -> Iterator[tuple[int, slice, slice]]:
        """As `_held_of`, of a window of a shard."""
        if window is not None:
            yield from self._held_of(rank, round_, window.shard, window.blocks.span(window.which))


@dataclass(frozen=True)
class _Window:
    """Blocks of a shard that are written at once."""

    shard: int
    which: range
    blocks: Blocks


class _OwnShards:
    """The shards that one process of a replica writes, one after another."""

    def __init__(self, snapshots: Snapshots, round_: int, source: str) -> None:
        self._snapshots, self._round, self._source = snapshots, round_, source
        self._writer: ObjectWriter | None = None
        self._is_there = False

    def append(self, window: _Window | None, values: Floats) -> None:
        """Write a window to its shard, unless it exists."""
        if window is None:
            return
        store, key = self._snapshots.context.store, rendezvous_keys.snapshot(self._round, self._source, window.shard)
        if window.which.start == 0:
            self._is_there = store.exists(key)
        if self._is_there:
            return
        if self._writer is None:
            self._writer = store.writer(key, object_bytes(window.blocks.count))
            start = memoryview(bytearray(HEADER_BYTES))
            put_header(start, self._snapshots.header(self._round, window.shard))
            self._writer.write(start)
        for piece, _ in encoded_pieces(Records(key, window.blocks, window.which), values, PLAIN):
            self._writer.write(piece)
        if window.which.stop == window.blocks.number:
            writer, self._writer = self._writer, None
            writer.close()

    def discard(self) -> None:
        """Give up the shard that is being written."""
        if self._writer is not None:
            self._writer.discard()


def rounds_with_snapshots(context: RoundContext, last: int, after: int = 0) -> range:
    """The rounds after `after` that may have a snapshot, from `last` down."""
    every = context.snapshot_rounds
    return range(last - last % every, after, -every)


def read_manifest(context: RoundContext, round_: int) -> SnapshotManifest | None:
    """The manifest of a round's snapshot; None if there is no complete one.

    Raises:
        RendezvousError: the object is not a manifest of this round.
    """
    manifest = stored_document(context.store, rendezvous_keys.manifest(round_), SnapshotManifest)
    if manifest is not None and (manifest.run, manifest.round) != (context.run, round_):
        raise _foreign(context, round_)
    return manifest


def _foreign(context: RoundContext, round_: int) -> RendezvousError:
    uri = context.store.uri(rendezvous_keys.manifest(round_))
    return RendezvousError(f"{uri} is not a manifest of round {round_} of the run {context.run}.")


def _arrays(round_: int) -> int:
    """Parameters alone before the first round, when the momentum is zero; both after it."""
    return 1 if round_ == 0 else 2
