"""What the processes of a replica hold of a model while they exchange it: live bytes of NumPy and Python, no times."""

from __future__ import annotations

import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.parts.link import Link
from muster.replica.rounds import reduced_shards
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire import blocks
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import WHOLE, Packing
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import Run, none_is_taken_for_dead, run_all

REPLICAS, PROCESSES = 2, 4
COUNT = 4 * 2**20  # 4 MiB in each process: many times the blocks and pieces that are coded at once
HELD = COUNT // PROCESSES * 4


class OwnSlice(Packing):
    """A flat array of which each process of the replica holds what it exchanges: nothing goes between them."""

    def __init__(self, link: Link) -> None:
        super().__init__({"parameters": (COUNT,)})
        self.link = link
        self.array = np.empty(0, np.float32)

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        if not self.array.size:
            self.array = np.zeros(self.cut.length, np.float32)
        held = self.array[self.cut.local(part)]
        if room is None:
            return held.copy()
        room[...] = held
        return room

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        if not self.array.size:
            self.array = np.zeros(self.cut.length, np.float32)
        self.array[self.cut.local(part)] = flat


def most_held(root: Path, algorithm: Algorithm) -> float:
    """The most that is live at once in two rounds: per process, in float32 slices, without the trainer's own array."""
    run = Run(root, replicas=REPLICAS, min_participants=REPLICAS, count=COUNT, snapshot_rounds=2)
    shared, links, boards = ([kind() for _ in range(REPLICAS)] for kind in (_shared, _shared, LocalBoard))
    errors: list[BaseException] = []

    def work(replica: int, process: int) -> None:
        try:
            context = replace(run.context(), group=InnerGroup(process, PROCESSES, process), board=boards[replica])
            rendezvous = Rendezvous.open(context, replica, 1, Metrics())
            rendezvous.connect(ThreadLink(shared[replica], process))
            packing = OwnSlice(ThreadLink(links[replica], process))
            outer = Synchronizer(rendezvous, packing, algorithm, OwnState(lambda *_: lambda: None, lambda: None), None)
            step = 0
            while outer.round < 2:
                step += 1
                packing.array -= np.float32(0.01 * (replica + step))
                outer.step(1)
            outer.finish()
        except BaseException as error:
            errors.append(error)
            shared[replica].barrier.abort()
            links[replica].barrier.abort()

    pairs = [(replica, process) for replica in range(REPLICAS) for process in range(PROCESSES)]
    tracemalloc.start(1)
    try:
        run_all([threading.Thread(target=work, args=pair, daemon=True) for pair in pairs])
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not errors, errors
    return most / len(pairs) / HELD - 1


def _shared() -> Shared:
    return Shared(PROCESSES)


@pytest.mark.parametrize(
    ("algorithm", "slices"),
    [
        # The global parameters, the momentum, and the pseudo-gradient, whose place the mean takes. Besides, the shard
        # that a process makes, as it is stored: half a slice with two replicas. And pieces: 0.4.
        (Algorithm(), 3.5),
        # The residual, and a quarter of the bytes in a shard.
        (Algorithm(codec="int8"), 4.25),
        # The pseudo-gradient of a fragment, and half the bytes.
        (Algorithm(sync_every=4, fragments=2, delay=1, codec="bf16"), 3.625),
    ],
    ids=["fp32", "int8", "bf16-fragments"],
)
def test_a_process_holds_no_array_of_its_slice_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm, slices: float
) -> None:
    # What comes from the system itself is not traced.
    for module in (blocks, reduced_shards):
        monkeypatch.setattr(module, "pages", lambda size: np.empty(size, np.uint8))
    # A process that stands in for a slow one makes a second shard.
    none_is_taken_for_dead(monkeypatch)
    assert most_held(tmp_path, algorithm) < slices + 0.7
