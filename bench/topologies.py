"""Bytes of a round of sparse contributions: as its members choose, against shards of the mean and against gathering.

The replicas' own code runs on the simulated S3 of the exploration, which counts. Only values count: headers and
documents are a few KiB, whatever the size of the model.
"""

from __future__ import annotations

from dataclasses import replace

from bench.table import Row
from muster.replica.codecs import codec_named
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import HEADER_BYTES
from muster.replica.wire.blocks import Blocks
from tests.exploration.judge import problems
from tests.exploration.schedules import fair
from tests.exploration.simulated import scaled, simulated
from tests.exploration.trainers import ALGORITHMS, train_diloco
from tests.exploration.world import Process, Setting, World

_CHUNKS, _ROUNDS = 8, 2
_ALGORITHM = "sparse"
_CODEC = codec_named(ALGORITHMS[_ALGORITHM].codec)
# Of the bytes of a round with shards: what gathering must save.
_AIMS = {2: "<= 0.55", 4: "<= 0.7", 8: "<= 0.75"}


class Counted(World):
    """A world that counts the bytes of values that its replicas send and read."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting, train_diloco)
        given = Blocks(setting.count, _CODEC)
        mean = Blocks(setting.count, _CODEC.for_mean(setting.replicas))
        self._records = {rendezvous_keys.CONTRIBUTIONS: given, rendezvous_keys.REDUCED: mean}
        self.bytes = dict.fromkeys((True, False), 0)
        """By direction (up)."""

    def moved(self, process: Process, path: str, size: int, *, is_home: bool, up: bool) -> float:
        """Count them."""
        for folder, blocks in self._records.items():
            if path.startswith(folder):
                self.bytes[up] += max(0, size - (HEADER_BYTES if size % blocks.record_bytes else 0))
        return super().moved(process, path, size, is_home=is_home, up=up)


def run() -> list[Row]:
    """A few seconds."""
    rows = []
    for replicas in (2, 4, 8, 16, 32):
        chosen, shared, gathered = (_of_a_round(replicas, border) for border in (None, 0, replicas))
        least = min(sum(shared), sum(gathered))
        name, note = f"bytes of a round, {_CODEC.name}, {replicas} replicas", _note(chosen, shared, gathered)
        rows.append(Row(f"{name}: of the better topology's", sum(chosen) / least, "times", "<= 1.03", note=note))
        rows.append(Row(f"{name}: of those with shards", sum(chosen) / sum(shared), "times", _AIMS.get(replicas)))
    return rows


def _note(chosen: tuple[float, float], shared: tuple[float, float], gathered: tuple[float, float]) -> str:
    told = [
        f"{name} {sent:.0f} + {read:.0f}"
        for name, (sent, read) in zip(("chosen", "shards", "gathered"), (chosen, shared, gathered), strict=True)
    ]
    return f"sent and read by a replica for 4,096 values: {', '.join(told)}"


def _of_a_round(replicas: int, border: int | None) -> tuple[float, float]:
    """The bytes that a replica sends and reads in a round, per chunk; rounds of up to `border` members are gathered."""
    setting = Setting(
        replicas,
        replicas,
        _ROUNDS,
        snapshot_rounds=10,
        grace_seconds=60.0,
        count=_CHUNKS * _CODEC.grain,
        gathers=border,
    )
    setting = replace(setting, front_end="diloco", algorithm=_ALGORITHM, codec=_CODEC.name)
    with simulated(), scaled(setting):
        world = Counted(setting)
        for rank in range(replicas):
            world.start(rank)
        while able := [process for process in world.living if not process.is_stuck]:
            world.take_step(fair(world, able))
        world.end()
        found = problems(world)
    if found:
        raise RuntimeError("; ".join(found))
    sent, read = (world.bytes[up] / (_CHUNKS * _ROUNDS * replicas) for up in (True, False))
    return sent, read
