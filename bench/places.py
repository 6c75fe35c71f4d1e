"""Rounds over several places: the bytes between them, and how long a round takes over long links, in virtual time.

The replicas' own code runs on the simulated S3 of the exploration. A request takes the latency of its way, and its
bytes share the links of the place, one after another; in a region each connection carries 85 MB/s. What the processors
do takes no time. The model is small: its bytes stand for those of 256 MiB, and headers for none.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from unittest.mock import patch

from bench.table import Row
from muster.replica.codecs import FP32
from muster.replica.wire import blocks, rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES, Floats
from muster.replica.wire.blocks import Blocks
from tests.exploration import simulated_s3
from tests.exploration.activities import Activity, current
from tests.exploration.judge import problems
from tests.exploration.schedules import fair
from tests.exploration.simulated import scaled, simulated
from tests.exploration.trainers import train_arrays
from tests.exploration.world import Process, Setting, Trainer, World

_PLACES = ("home", "oregon", "tokyo")
_MODEL_BYTES = 256 * 2**20
_COUNT = 18 * 4 * 256  # elements: as many shards as 256 MiB have with six replicas, of four blocks each
_CONNECTIONS = 16
_ROUNDS = 3  # with more the grace window is learnt
_WAITS = 4  # for an answer over the long way, which the aim of a round's time allows


@dataclass(frozen=True)
class Links:
    """Seconds of a request, and bytes a second: between regions in each direction, and of a connection within one."""

    latency: float = 0.150
    rate: float = 2.5e9 / 8
    near_latency: float = 0.030
    connection_rate: float = 85e6


LONG = Links()
_FAST = 1e18


class Linked(World):
    """A world whose replicas train at `where`. The run may know it (two levels), or not (flat)."""

    def __init__(self, setting: Setting, where: tuple[str, ...], links: Links, trainer: Trainer = train_arrays) -> None:
        super().__init__(setting, trainer)
        self._where, self._links = where, links
        cut = Blocks(setting.count, FP32)
        self._record_bytes = cut.record_bytes
        self._scale = _MODEL_BYTES / (cut.number * cut.record_bytes)
        self._free: dict[tuple[str, bool], float] = {}
        self._reads: dict[Activity, float] = {}
        self.applied: dict[int, float] = {}
        """When the last replica had the mean of each round."""
        self.values: dict[tuple[str, bool], float] = {}
        """Bytes of values over each place's link, by direction (up), as those of a model of 256 MiB."""

    def latency(self, process: Process, *, is_home: bool) -> float:
        """That of the request's way."""
        return self._links.latency if self._is_far(process, is_home) else self._links.near_latency

    def moved(self, process: Process, path: str, size: int, *, is_home: bool, up: bool) -> float:
        """Once the connection and the link have carried all bytes before and these."""
        data = (rendezvous_keys.CONTRIBUTIONS, rendezvous_keys.REDUCED, rendezvous_keys.SUMS)
        if not path.startswith(data):
            return self.seconds
        bytes_ = self._scale * max(0, size - (HEADER_BYTES if size % self._record_bytes else 0))
        # A shard is sent while it is made of what arrives.
        reads, since = self._reads, self.seconds
        if up:
            since = reads.pop(current(), since)
        else:
            reads.setdefault(current(), since)
        # A contribution is sent in parts, over all connections.
        is_whole = path.startswith(rendezvous_keys.CONTRIBUTIONS) and up
        until = since + bytes_ / (self._links.connection_rate * (_CONNECTIONS if is_whole else 1))
        if self._is_far(process, is_home):
            link = self._where[process.rank], up
            self.values[link] = self.values.get(link, 0.0) + bytes_
            self._free[link] = max(since, self._free.get(link, 0.0)) + bytes_ / self._links.rate
            until = max(until, self._free[link])
        return until

    def saw_mean(self, round_: int, mean: Floats, first: int = 0) -> None:
        """A replica has it."""
        super().saw_mean(round_, mean, first)
        self.applied[round_] = self.seconds

    def _is_far(self, process: Process, is_home: bool) -> bool:
        return is_home and self._where[process.rank] != "home"


def run() -> list[Row]:
    """Bytes for two and three places, whatever the number of replicas, and the time of a round."""
    rows = []
    for places in (2, 3):
        for replicas in (4, 8, 16):
            world = _trained(places, replicas, LONG)
            worst = max(world.values.values()) / _ROUNDS
            name = f"between regions, {places} places, {replicas} replicas: bytes a round, of each place and direction"
            aim = 1.05 * 2 * (places - 1) / places
            note = f"home, where all meet, {places - 1} times as many"
            rows.append(Row(name, worst / _MODEL_BYTES, "of B", f"<= {aim:.3f}", note=note))
    two, flat = _seconds(_trained(3, 6, LONG)), _seconds(_trained(3, 6, LONG, flat=True))
    least = 2 * _MODEL_BYTES / LONG.rate + _WAITS * LONG.latency
    waits = _seconds(_trained(3, 6, Links(1.0, _FAST, 0.0, _FAST)))
    name = "round over 150 ms and 2.5 Gb/s, 256 MiB, 3 places, 6 replicas"
    bound = f"virtual time; bytes over the link and {_WAITS} latencies: {least:.2f} s"
    return [
        *rows,
        Row(name, two, "s", f"<= {1.3 * least:.2f}", note=bound),
        Row(f"{name}: of the flat round's time", two / flat, "times", "<= 0.5", note=f"flat: {flat:.2f} s"),
        Row("waits for an answer from another region, one after another, in a round", waits, "", note="looks included"),
    ]


def _trained(places: int, replicas: int, links: Links, *, flat: bool = False) -> Linked:
    with linked(places, replicas, links, flat=flat) as world:
        found = problems(world)
    if found:
        raise RuntimeError("; ".join(found))
    return world


@contextmanager
def linked(
    places: int, replicas: int, links: Links, trainer: Trainer = train_arrays, *, flat: bool = False
) -> Iterator[Linked]:
    """A world whose replicas have trained, evenly over these places. `flat`: the run does not know them."""
    where = tuple(_PLACES[rank * places // replicas] for rank in range(replicas))
    size = Blocks(_COUNT, FP32)
    setting = Setting(
        replicas, replicas, _ROUNDS, snapshot_rounds=10, grace_seconds=60.0, count=_COUNT, connections=_CONNECTIONS
    )
    aim = size.number * size.record_bytes // 16  # 16 MiB of 256
    setting = replace(setting, shard_bytes=aim, where=() if flat else where)
    with (
        simulated(),
        scaled(setting),
        patch.object(simulated_s3, "PAGE_KEYS", 1000),
        patch.object(blocks, "PIECE_ELEMENTS", 256),
        patch.object(blocks, "STREAM_BYTES", 1),
    ):
        world = Linked(setting, where, links, trainer)
        for rank in range(replicas):
            world.start(rank)
        while able := [process for process in world.living if not process.is_stuck]:
            world.take_step(fair(world, able))
        world.end()
        yield world


def _seconds(world: Linked) -> float:
    """Of a round: from the last replica's mean to that of the next round."""
    ends = [world.applied[round_] for round_ in sorted(world.applied)]
    return max(later - earlier for earlier, later in pairwise(ends))
