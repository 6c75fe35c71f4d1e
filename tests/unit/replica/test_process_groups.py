"""Replicas of several processes: what each holds and sends, and that another number of them changes no byte."""

import itertools
import threading
import tracemalloc
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.frontends.saved_state import load_common
from muster.replica.parts import redistribution
from muster.replica.parts.cut import Cut
from muster.replica.parts.link import Link
from muster.replica.parts.local_shard import LocalShard
from muster.replica.parts.packing import WHOLE, Packing
from muster.replica.parts.redistribution import Redistribution
from muster.replica.phases import step_agreement
from muster.replica.phases.synchronizer import OwnState
from muster.replica.rendezvous import Outside
from muster.replica.replica_errors import StoppedError
from muster.replica.resizing.shared_parts import shared_blocks, stored_shard
from muster.replica.resizing.states import ResizedStates, resized_objects
from muster.replica.rounds import reduced_shards, snapshots
from muster.replica.rounds.round_context import Stops
from muster.replica.states.plain_state import StateDict
from muster.replica.states.state_buffer import PlainArrays, packed_state, unpacked_state
from muster.replica.store.checkpoints import Checkpoints
from muster.replica.wire import blocks
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.groups import Shared, ThreadGroup, ThreadLink
from tests.support.peers import Run, none_is_taken_for_dead, run_all

# --- Values between the local shards of a replica's processes and their slices, against the whole tensors -----------


@st.composite
def meshes(draw: st.DrawFn) -> list[list[LocalShard]]:
    """Up to four tensors, each split or copied along two dimensions of a mesh of up to eight processes."""
    rows, columns = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    tensors = []
    for shape in draw(st.lists(st.lists(st.integers(1, 6), max_size=3), min_size=1, max_size=4)):
        whole = LocalShard.whole(tuple(shape))
        over_rows = draw(st.integers(-1, len(whole.shape) - 1))
        over_columns = draw(st.integers(-1, len(whole.shape) - 1))
        factor = columns if over_rows == over_columns else 1
        held = []
        for row in range(rows):
            for column in range(columns):
                shard = whole if over_rows < 0 else whole.split(over_rows, rows, row, factor)
                held.append(shard if over_columns < 0 else shard.split(over_columns, columns, column))
        tensors.append(held)
    return tensors


def held_by(shard: LocalShard, whole: np.ndarray) -> np.ndarray:
    indices = [[index for run in runs for index in run] for runs in shard.held]
    return whole.reshape(shard.shape)[np.ix_(*indices)]


@given(meshes(), st.data())
def test_slices_are_read_from_shards_and_written_to_them(tensors: list[list[LocalShard]], data: st.DataObject) -> None:
    size = len(tensors[0])
    plan = Redistribution(tensors, data.draw(st.integers(0, len(tensors))))
    wholes = [np.random.default_rng(number).random(prod(held[0].shape)) for number, held in enumerate(tensors)]
    flat = np.concatenate(wholes)
    edges = sorted(data.draw(st.lists(st.integers(0, flat.size), min_size=size - 1, max_size=size - 1)))
    spans = [slice(start, stop) for start, stop in zip([0, *edges], [*edges, flat.size], strict=True)]
    written = [[np.full(held[rank].count, np.nan) for held in tensors] for rank in range(size)]
    for holder, span in enumerate(spans):
        values = np.full(span.stop - span.start, np.nan)
        for source in range(size):
            for run in plan.reads(source, holder, span):
                assert np.isnan(values[run.places]).all(), "an element is sent twice"
                values[run.places] = held_by(tensors[run.tensor][source], wholes[run.tensor]).reshape(-1)[run.local]
        assert values.tobytes() == flat[span].tobytes()
        for target in range(size):
            for run in plan.writes(target, span):
                written[target][run.tensor][run.local] = values[run.places]
    for rank in range(size):
        for held, whole, found in zip(tensors, wholes, written[rank], strict=True):
            assert found.tobytes() == held_by(held[rank], whole).tobytes()


def test_of_copies_a_process_reads_its_own_and_of_statistics_the_first_ones() -> None:
    whole = [[LocalShard.whole((4,))] * 3] * 2
    plan = Redistribution(whole, 1)
    senders = {
        (run.tensor, reader): source
        for reader in range(3)
        for source in range(3)
        for run in plan.reads(source, reader, slice(0, 8))
    }
    assert senders == {(0, 0): 0, (0, 1): 1, (0, 2): 2, (1, 0): 0, (1, 1): 0, (1, 2): 0}


def test_runs_of_scattered_elements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redistribution, "RUN_ELEMENTS", 4)
    columns = [[LocalShard.whole((6, 4)).split(1, 2, rank) for rank in range(2)]]
    runs = list(Redistribution(columns, 1).reads(1, 0, slice(2, 24)))
    assert [run.local for run in runs] == [slice(0, 4), slice(4, 8), slice(8, 12)]


@given(st.integers(1, 400_000), st.integers(1, 3), st.integers(1, 6), st.sampled_from(["fp32", "int4", "topk2-64"]))
def test_the_slices_of_all_processes_are_every_element_once(count: int, fragments: int, size: int, codec: str) -> None:
    cuts = [Cut(count, codec_named(codec), fragments, rank, size) for rank in range(size)]
    assert sum(cut.length for cut in cuts) == count
    held = sorted((span.start, span.stop) for cut in cuts for span, _ in cut.places() if span.start < span.stop)
    assert (held[0][0], held[-1][1]) == (0, count)
    assert all(one[1] == other[0] for one, other in itertools.pairwise(held))
    for cut in cuts:
        locals_ = [cut.local(part) for part in cut.parts]
        assert [local.stop - local.start for local in locals_] == [span.stop - span.start for span, _ in cut.places()]


def test_a_group_continues_from_the_newest_state_that_all_its_processes_have(tmp_path: Path) -> None:
    shared, found = Shared(3), dict[int, bytes | None]()

    def load(rank: int) -> None:
        checkpoints = Checkpoints(tmp_path, f"trainer-p{rank}of3")
        for round_ in ([1, 2, 3], [2, 3, 4], [1, 2])[rank]:
            checkpoints.save(round_, b"%d" % round_)
        found[rank] = load_common(ThreadLink(shared, rank), checkpoints, 4)

    run_all([threading.Thread(target=load, args=(rank,), daemon=True) for rank in range(3)])
    assert found == dict.fromkeys(range(3), b"2")


# --- A replica's own state is continued by a group of another size --------------------------------------------------


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    dimension=st.integers(0, 2),
    old=st.integers(1, 5),
    new=st.integers(1, 5),
)
def test_every_element_comes_from_where_it_was(shape: tuple[int, ...], dimension: int, old: int, new: int) -> None:
    dimension %= len(shape)
    whole = np.arange(np.prod(shape)).reshape(shape)

    def part(rank: int, size: int) -> LocalShard:
        return LocalShard.whole(shape).split(dimension, size, rank)

    for rank in range(new):
        own = part(rank, new)
        made = np.full(own.local_shape, -1)
        for former in range(old):
            found = held_by(part(former, old), whole)
            theirs = stored_shard(shape, found.shape, former, old)
            assert theirs is not None
            for source, place in shared_blocks(theirs, own):
                made[place] = found[source]
        assert np.array_equal(made, held_by(own, whole))


def test_a_part_of_two_dimensions_is_not_guessed() -> None:
    assert stored_shard((8, 8), (4, 4), 1, 4) is None
    # Copies of a sharded tensor in two groups of processes.
    assert stored_shard((8, 8), (4, 8), 3, 4) == LocalShard.whole((8, 8)).split(0, 2, 1)


class SharedPosition:
    """A position in data that the processes of a replica share: so many items each."""

    def resized(self, states: Sequence[StateDict], rank: int, size: int) -> StateDict:
        read = sum(state["items"] for state in states)
        return {"items": read // size + (rank < read % size)}


def test_an_object_says_itself_how_its_state_is_divided() -> None:
    states = [{"data": {"items": 5}, "schedule": {"step": 7}}, {"data": {"items": 4}, "schedule": {"step": 7}}]
    found = [resized_objects({"data": SharedPosition(), "schedule": object()}, states, rank, 4) for rank in range(4)]
    assert [state["data"]["items"] for state in found] == [3, 2, 2, 2]
    assert {state["schedule"]["step"] for state in found} == {7}


class Replica:
    """The processes of a replica that trains without others and saves what it has when it is stopped."""

    def __init__(self, place: Path, codec: str = "fp32", fragments: int = 1) -> None:
        self.run = Run.alone(place / "run", rounds=4, count=5_000, codec=codec)
        self.algorithm = Algorithm(4 * fragments, codec=codec, fragments=fragments)
        self.folder = place / "checkpoints"

    def train(self, size: int, *, stops_after: int | None = None) -> set[tuple[bytes, int]]:
        """Train with `size` processes, to a step of the run or to its end; the parameters and steps of all."""
        group, stop, found = ThreadGroup(size), threading.Event(), set[tuple[bytes, int]]()
        group.run(lambda index: found.add(self._process(index, group, stop, stops_after)))
        return found

    def _process(
        self, index: int, group: ThreadGroup, stop: threading.Event, stops_after: int | None
    ) -> tuple[bytes, int]:
        rendezvous = group.open(self.run.context(stops=Stops(stop)), index, outside=Outside(checkpoint_rounds=1))
        parameters, algorithm = np.zeros(self.run.count, np.float32), self.algorithm
        packing = CopiedArray(parameters, group.link(index))
        cut = Cut(self.run.count, codec_named(algorithm.codec), algorithm.fragments, index, group.size)
        checkpoints = rendezvous.checkpoints(self.folder, "trainer")
        assert checkpoints is not None

        def keep(round_: int, _: bool) -> Callable[[], None]:
            return lambda: checkpoints.save(round_, packed_state({"rank": index, "round": round_}, PlainArrays()))

        def resize(readers: Sequence[Callable[[], StateDict]], rank: int, of: int) -> StateDict:
            states = [read() for read in readers]
            return {"rank": rank, "of": of, "from": [state["rank"] for state in states], "round": states[0]["round"]}

        resized = ResizedStates(rendezvous, self.folder, packing.link, cut)
        resized.adopt(PlainArrays(), resize)
        outer = group.trainer(rendezvous, packing, algorithm, OwnState(keep, lambda: None), self.folder)
        phase = outer.interrupted()
        if phase is not None:
            outer.resume(phase)
        step = outer.round * 4 + outer.steps
        try:
            while outer.round < self.run.rounds:
                step += 1
                parameters -= np.float32(step) * np.arange(self.run.count, dtype=np.float32)
                if step == stops_after:
                    stop.set()
                    group.shared.barrier.wait(30)
                outer.step(1.0)
            outer.finish()
        except StoppedError:
            pass
        return parameters.tobytes(), step


@pytest.mark.parametrize(
    ("sizes", "codec", "fragments"),
    [((1, 2), "fp32", 1), ((2, 3, 2), "int8", 1), ((1, 4, 1), "topk2-64", 1), ((2, 3), "int4", 2)],
)
def test_a_replica_continues_in_the_middle_of_a_phase_with_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], codec: str, fragments: int
) -> None:
    monkeypatch.setattr(step_agreement, "BEAT_SECONDS", 0.0)  # they compare after every step
    unbroken = Replica(tmp_path / "unbroken", codec, fragments).train(1)
    replica = Replica(tmp_path / "resized", codec, fragments)
    # In the middle of a phase, also where the processes leave one step later.
    for stop, size in zip((6, 10), sizes[:-1], strict=False):
        replica.train(size, stops_after=stop)
    # No step was trained twice, and none is missing.
    assert replica.train(sizes[-1]) == unbroken
    assert {steps for _, steps in unbroken} == {16}


def test_the_newest_state_counts_whatever_the_size(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.train(2, stops_after=2)
    replica.train(1, stops_after=6)
    replica.train(2, stops_after=7)
    names = {path.name for path in replica.folder.glob("muster-trainer-*")}
    assert "muster-trainer-p1of2-0.ckpt" in names
    bodies = [path.read_bytes().partition(b"\n")[2] for path in sorted(replica.folder.glob("muster-trainer-p1of2-*"))]
    # What two processes had saved at first is gone: it is older than what one has saved since.
    assert all(unpacked_state(body, PlainArrays()).get("from", [0]) == [0] for body in bodies)


# --- What the processes of a replica hold of a model while they exchange it: live bytes of NumPy and Python, no times


REPLICAS, PROCESSES = 2, 4
COUNT = 2 * 2**20  # 2 MiB in each process: many times the blocks and pieces that are coded at once
HELD = COUNT // PROCESSES * 4


class OwnSlice(Packing):
    """A flat array of which each process of the replica holds what it exchanges: nothing goes between them."""

    def __init__(self, link: Link) -> None:
        super().__init__({"parameters": (COUNT,)})
        self.link = link

    @cached_property
    def array(self) -> Floats:
        return np.zeros(self.cut.length, np.float32)

    def read(self, part: slice = WHOLE, room: Floats | None = None) -> Floats:
        held = self.array[self.cut.local(part)]
        if room is None:
            return held.copy()
        room[...] = held
        return room

    def write(self, flat: Floats, part: slice = WHOLE) -> None:
        self.array[self.cut.local(part)] = flat


def most_held(root: Path, algorithm: Algorithm) -> float:
    """The most that is live at once in two rounds: per process, in float32 slices, without the trainer's own array."""
    run = Run(root, replicas=REPLICAS, min_participants=REPLICAS, count=COUNT, snapshot_rounds=2)
    groups = [ThreadGroup(PROCESSES) for _ in range(REPLICAS)]

    def work(replica: int, process: int) -> None:
        group = groups[replica]
        packing = OwnSlice(group.link(process))
        outer = group.trainer(group.open(run.context(), process, replica), packing, algorithm)
        step = 0
        while outer.round < 2:
            step += 1
            packing.array -= np.float32(0.01 * (replica + step))
            outer.step(1)
        outer.finish()

    threads = [thread for replica, group in enumerate(groups) for thread in group.threads(partial(work, replica))]
    tracemalloc.start(1)
    try:
        run_all(threads)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for group in groups:
        group.check()
    return most / len(threads) / HELD - 1


@pytest.mark.parametrize(
    ("algorithm", "slices"),
    [
        # The global parameters, the momentum, and the pseudo-gradient, whose place the mean takes. Besides, the shard
        # that a process makes, as it is stored: half a slice with two replicas. And pieces: 0.4.
        (Algorithm(), 3.5),
        # The residual, as it is and as it was, and a quarter of the bytes in a shard.
        (Algorithm(codec="int8"), 5.25),
        # The pseudo-gradient of a fragment and the residual before it, and half the bytes.
        (Algorithm(sync_every=4, fragments=2, delay=1, codec="bf16"), 4.125),
    ],
    ids=["fp32", "int8", "bf16-fragments"],
)
def test_a_process_holds_no_array_of_its_slice_more_than_it_must(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: Algorithm, slices: float
) -> None:
    # What comes from the system itself is not traced.
    for module in (blocks, reduced_shards, snapshots):
        monkeypatch.setattr(module, "pages", lambda size: np.empty(size, np.uint8))
    # A process that stands in for a slow one makes a second shard.
    none_is_taken_for_dead(monkeypatch)
    assert most_held(tmp_path, algorithm) < slices + 0.7
