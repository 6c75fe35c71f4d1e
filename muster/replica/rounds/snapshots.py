"""Snapshots: the global state after a round, in shards that several members write, and a manifest that comes last.

A snapshot exists once its manifest does. All replicas hold the same state, so any of them writes the same bytes to a
shard. Only the initial state (round 0) differs from process to process: each writes its shards under a name of its own,
and the first manifest decides which count.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from muster.contract.errors import DocumentError
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.errors import ParametersError, RendezvousError
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys
from muster.replica.wire.binary_format import HEADER_BYTES, CodecError, Floats, decode_blocks, decode_header, encode
from muster.replica.wire.blocks import Blocks
from muster.replica.wire.headers import SnapshotHeader, SnapshotManifest
from muster.replica.wire.stream_decoder import READ_TRIES

# A broken connection costs only seconds, and the time of a request depends on its bytes rather than its latency. Far
# below the 5 GiB of a single PUT: no model is too large.
SHARD_BYTES_MAX = 64 * 2**20
ELEMENT_BYTES = 4
SHARED = "shared"  # the source of every snapshot but the first: all replicas hold the same


@dataclass(frozen=True)
class Snapshots:
    """The snapshots of a run whose model has `count` elements, named and shaped as `layout` (a digest) says."""

    context: RoundContext
    count: int
    layout: str

    def shards(self, round_: int) -> int:
        """The number of shards of a round's snapshot: depends on the run and the model alone."""
        elements = self.count * _arrays(round_)
        least = -(-elements * ELEMENT_BYTES // SHARD_BYTES_MAX)
        return max(least, Blocks(elements).shards(self.context.quorum.replicas))

    def put(self, state: GlobalState, shards: range | list[int], source: str = SHARED) -> None:
        """Write some shards of `state`; existing ones are left as they are."""
        self.context.side_by_side(lambda shard: self._put(state, shard, source), shards)

    def missing(self, round_: int) -> list[int]:
        """The shards that do not exist yet."""
        shards = range(self.shards(round_))
        there = self.context.side_by_side(
            lambda shard: self.context.store.exists(keys.snapshot(round_, SHARED, shard)), shards
        )
        return [shard for shard, exists in zip(shards, there, strict=True) if not exists]

    def seal(self, round_: int, source: str = SHARED) -> None:
        """Write the manifest, the last object of a snapshot; the first one written counts."""
        manifest = SnapshotManifest(
            run=self.context.run,
            round=round_,
            count=self.count,
            layout=self.layout,
            shards=self.shards(round_),
            source=source,
        )
        try:
            self.context.store.create(keys.manifest(round_), manifest.to_json())
        except ObjectExistsError:
            return

    def is_sealed(self, round_: int) -> bool:
        """Whether the snapshot is complete."""
        return self.context.store.exists(keys.manifest(round_))

    def is_complete(self, round_: int, *, complete: bool) -> bool:
        """Whether the snapshot is sealed. With `complete`, seals it if all its shards exist."""
        if not self.is_sealed(round_):
            if not complete or self.missing(round_):
                return False
            self.seal(round_)
            log.info("round=%d event=snapshot shards=%d", round_, self.shards(round_))
        return True

    def rounds(self, last: int, after: int = 0) -> range:
        """The rounds after `after` that may have a snapshot, from `last` down."""
        every = self.context.snapshot_rounds
        return range(last - last % every, after, -every)

    def folder(self, shard: int) -> str:
        """The folder of that shard of all snapshots."""
        return keys.snapshots_of(shard)

    def load(self, round_: int) -> GlobalState | None:
        """The state after `round_`; None if there is no such snapshot.

        Raises:
            ObjectMissingError: it was deleted meanwhile, because a newer one is complete.
            ParametersError: it belongs to another model.
            RendezvousError: it is damaged.
        """
        manifest = self._manifest(round_)
        if manifest is None:
            return None
        state = GlobalState(round_, np.empty(self.count, np.float32), np.zeros(self.count, np.float32))
        self.context.side_by_side(lambda shard: self._load(state, shard, manifest.source), range(manifest.shards))
        return state

    def _manifest(self, round_: int) -> SnapshotManifest | None:
        key = keys.manifest(round_)
        try:
            body = self.context.store.read(key).body
        except ObjectMissingError:
            return None
        try:
            manifest = SnapshotManifest.from_json(bytes(body), self.context.store.uri(key))
        except DocumentError as error:
            raise RendezvousError(str(error)) from None
        if (manifest.layout, manifest.count) != (self.layout, self.count):
            message = (
                f"This trainer's parameters ({self.count:,} elements) differ in names or shapes from the run's initial "
                f"parameters ({manifest.count:,} elements). Every replica must build the same model."
            )
            raise ParametersError(message)
        if (manifest.run, manifest.round, manifest.shards) != (self.context.run, round_, self.shards(round_)):
            message = (
                f"{self.context.store.uri(key)} is not a manifest of round {round_} of the run {self.context.run}."
            )
            raise RendezvousError(message)
        return manifest

    def _put(self, state: GlobalState, shard: int, source: str) -> None:
        key = keys.snapshot(state.round, source, shard)
        header = SnapshotHeader(run=self.context.run, round=state.round, shard=shard, layout=self.layout)
        values = [array[span] for array, span in self._places(state, shard)]
        body = encode(key, values[0] if len(values) == 1 else np.concatenate(values), lambda _: header)
        try:
            self.context.store.create(key, body)
        except ObjectExistsError:
            return

    def _load(self, state: GlobalState, shard: int, source: str) -> None:
        key = keys.snapshot(state.round, source, shard)
        reason = ""
        for _ in range(READ_TRIES):
            body = self.context.store.read(key).body
            try:
                values = self._decode(key, body, state.round, shard)
            except CodecError as error:
                # A retry helps against damage in transfer, not against damage in the bucket.
                reason = str(error)
                continue
            start = 0
            for array, span in self._places(state, shard):
                array[span] = values[start : start + span.stop - span.start]
                start += span.stop - span.start
            return
        message = f"{self.context.store.uri(key)} is damaged: {reason}."
        raise RendezvousError(message)

    def _decode(self, key: str, body: memoryview, round_: int, shard: int) -> Floats:
        header = decode_header(key, body, SnapshotHeader)
        if (header.run, header.round, header.shard, header.layout) != (self.context.run, round_, shard, self.layout):
            message = "its header belongs to another run, round, shard or model"
            raise CodecError(message)
        start, stop = self._span(round_, shard)
        blocks = Blocks(stop - start)
        return decode_blocks(key, body[HEADER_BYTES:], blocks, range(blocks.number))

    def _span(self, round_: int, shard: int) -> tuple[int, int]:
        elements, shards = self.count * _arrays(round_), self.shards(round_)
        return elements * shard // shards, elements * (shard + 1) // shards

    def _places(self, state: GlobalState, shard: int) -> list[tuple[Floats, slice]]:
        """Where the values of a shard lie: in the parameters, in the momentum that follows them, or in both."""
        start, stop = self._span(state.round, shard)
        places = []
        for index, array in enumerate((state.parameters, state.momentum)):
            offset = index * self.count
            span = slice(max(start - offset, 0), min(stop - offset, self.count))
            if span.start < span.stop:
                places.append((array, span))
        return places


def _arrays(round_: int) -> int:
    """Parameters alone before the first round, when the momentum is zero; both after it."""
    return 1 if round_ == 0 else 2
