"""A replica's own state is continued by a group of another size."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.errors import StoppedError
from muster.replica.frontends.plain_state import StateDict, pack_plain, unpack_plain
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.parts.cut import Cut
from muster.replica.parts.local_shard import LocalShard
from muster.replica.resizing.shared_parts import copy_slice, shared_blocks, stored_shard
from muster.replica.resizing.states import ResizedStates, resized_objects
from muster.replica.rounds import pulse
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.wire.binary_format import Floats
from tests.support.copied_array import CopiedArray
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import Run

SIZES = st.integers(1, 5)


@given(
    count=st.integers(1, 9_000),
    fragments=st.integers(1, 3),
    old=SIZES,
    new=SIZES,
    codec=st.sampled_from(["fp32", "int4"]),
)
def test_every_element_of_the_flat_space_comes_from_where_it_was(
    count: int, fragments: int, old: int, new: int, codec: str
) -> None:
    whole = np.arange(count, dtype=np.float32)

    def cut(rank: int, size: int) -> Cut:
        return Cut(count, codec_named(codec), fragments, rank, size)

    def held(of: Cut) -> Floats:
        found = np.full(of.length, -1.0, np.float32)
        for span, place in of.runs:
            found[place] = whole[span]
        return found

    for rank in range(new):
        made = np.full(cut(rank, new).length, -1.0, np.float32)
        for former in range(old):
            copy_slice(made, cut(rank, new), held(cut(former, old)), former, old)
        assert np.array_equal(made, held(cut(rank, new)))


@given(
    shape=st.lists(st.integers(1, 7), min_size=1, max_size=3).map(tuple),
    dimension=st.integers(0, 2),
    old=SIZES,
    new=SIZES,
)
def test_every_element_of_a_sharded_tensor_comes_from_where_it_was(
    shape: tuple[int, ...], dimension: int, old: int, new: int
) -> None:
    dimension %= len(shape)
    whole = np.arange(np.prod(shape)).reshape(shape)

    def part(rank: int, size: int) -> LocalShard:
        return LocalShard.whole(shape).split(dimension, size, rank)

    def values(shard: LocalShard) -> np.ndarray:  # type: ignore[type-arg]
        return whole[np.ix_(*[[index for run in held for index in run] for held in shard.held])]

    for rank in range(new):
        own = part(rank, new)
        made = np.full(own.local_shape, -1)
        for former in range(old):
            found = values(part(former, old))
            theirs = stored_shard(shape, found.shape, former, old)
            assert theirs is not None
            for source, place in shared_blocks(theirs, own):
                made[place] = found[source]
        assert np.array_equal(made, values(own))


def test_a_part_of_two_dimensions_is_not_guessed() -> None:
    assert stored_shard((8, 8), (4, 4), 1, 4) is None
    # Copies of a sharded tensor in two groups of processes.
    assert stored_shard((8, 8), (4, 8), 3, 4) == LocalShard.whole((8, 8)).split(0, 2, 1)


class Position:
    """A position in data that the processes of a replica share: so many items each."""

    def resized(self, states: Sequence[StateDict], rank: int, size: int) -> StateDict:
        read = sum(state["items"] for state in states)
        return {"items": read // size + (rank < read % size)}


def test_an_object_says_itself_how_its_state_is_divided() -> None:
    states = [{"data": {"items": 5}, "schedule": {"step": 7}}, {"data": {"items": 4}, "schedule": {"step": 7}}]
    found = [resized_objects({"data": Position(), "schedule": object()}, states, rank, 4) for rank in range(4)]
    assert [state["data"]["items"] for state in found] == [3, 2, 2, 2]
    assert {state["schedule"]["step"] for state in found} == {7}


@dataclass(frozen=True)
class _Group:
    """What the processes of a replica have in common."""

    shared: Shared
    links: Shared
    board: LocalBoard
    stop: threading.Event


class Replica:
    """The processes of a replica that trains without others and saves what it has when it is stopped."""

    def __init__(self, place: Path, codec: str) -> None:
        self.run = Run(place / "run", replicas=1, min_participants=1, rounds=4, count=5_000, codec=codec)
        self.folder = place / "checkpoints"

    def train(self, size: int, *, stops_after: int | None) -> list[tuple[Floats, float, int]]:
        """Train with `size` processes, up to a step of the run or to its end; parameters, weight and steps of each."""
        shared, links, board, stop = Shared(size), Shared(size), LocalBoard(), threading.Event()
        errors: list[BaseException] = []
        found: dict[int, tuple[Floats, float, int]] = {}

        def work(index: int) -> None:
            try:
                found[index] = self._process(index, _Group(shared, links, board, stop), stops_after)
            except BaseException as error:
                errors.append(error)
                shared.barrier.abort()
                links.barrier.abort()

        threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        for error in errors:
            raise error
        return [found[index] for index in range(size)]

    def _process(self, index: int, group: _Group, stops_after: int | None) -> tuple[Floats, float, int]:
        shared, stop = group.shared, group.stop
        size = shared.size
        context = replace(
            self.run.context(stop=stop), group=InnerGroup(index, size, index), board=group.board, checkpoint_rounds=1
        )
        rendezvous = Rendezvous.open(context, 0, 1, Metrics())
        rendezvous.connect(ThreadLink(shared, index))
        parameters = np.zeros(self.run.count, np.float32)
        packing = CopiedArray(parameters, ThreadLink(group.links, index))
        algorithm = Algorithm(4, codec=self.run.codec)
        cut = Cut(self.run.count, codec_named(algorithm.codec), algorithm.fragments, index, size)
        checkpoints = rendezvous.checkpoints(self.folder, "trainer")
        assert checkpoints is not None

        def keep(round_: int, _: bool) -> Callable[[], None]:
            return lambda: checkpoints.save(round_, pack_plain({"rank": index, "round": round_}))

        def resize(readers: Sequence[Callable[[], StateDict]], rank: int, of: int) -> StateDict:
            states = [read() for read in readers]
            return {"rank": rank, "of": of, "from": [state["rank"] for state in states], "round": states[0]["round"]}

        resized = ResizedStates(rendezvous, self.folder, packing.link, cut)
        resized.adopt(pack_plain, unpack_plain, resize)
        outer = Synchronizer(rendezvous, packing, algorithm, OwnState(keep, lambda: None), self.folder)
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
                    shared.barrier.wait(30)
                outer.step(1.0)
            outer.finish()
        except StoppedError:
            pass
        assert rendezvous.training is not None
        return parameters.copy(), sum(commit.samples or 0.0 for commit in rendezvous.recent[-1:]), step


@pytest.mark.parametrize("codec", ["fp32", "int8"])
@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (3, 2), (2, 3, 2), (1, 4, 1)])
def test_a_replica_continues_in_the_middle_of_a_phase_with_another_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...], codec: str
) -> None:
    monkeypatch.setattr(pulse, "BEAT_SECONDS", 0.0)  # they compare after every step
    unbroken = Replica(tmp_path / "unbroken", codec).train(1, stops_after=None)
    replica = Replica(tmp_path / "resized", codec)
    # In the middle of a phase, also where the processes leave one step later.
    for stop, size in zip((6, 10), sizes[:-1], strict=False):
        replica.train(size, stops_after=stop)
    last = replica.train(sizes[-1], stops_after=None)
    assert {parameters.tobytes() for parameters, *_ in last} == {unbroken[0][0].tobytes()}
    # No step was trained twice, and none is missing.
    assert {steps for *_, steps in last} == {16}


def test_the_newest_state_counts_whatever_the_size(tmp_path: Path) -> None:
    replica = Replica(tmp_path, "fp32")
    replica.train(2, stops_after=2)
    replica.train(1, stops_after=6)
    replica.train(2, stops_after=7)
    names = {path.name for path in replica.folder.glob("muster-trainer-*")}
    assert "muster-trainer-p1of2-0.ckpt" in names
    bodies = [path.read_bytes().partition(b"\n")[2] for path in sorted(replica.folder.glob("muster-trainer-p1of2-*"))]
    # What two processes had saved at first is gone: it is older than what one has saved since.
    assert all(unpack_plain(body).get("from", [0]) == [0] for body in bodies)
