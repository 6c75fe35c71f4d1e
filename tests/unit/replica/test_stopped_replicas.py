"""A replica that is asked to stop loses no step; one that is killed at most an inner phase."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Commit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.entry.main import Stops
from muster.replica.errors import StoppedError
from muster.replica.frontends import saved_state
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.parts.link import Alone
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.synchronizer import OwnState, Synchronizer
from muster.replica.store import checkpoints
from muster.replica.store.local_store import LocalStore
from muster.replica.wire import keys
from tests.support.copied_array import CopiedArray
from tests.support.groups import Shared, ThreadLink
from tests.support.peers import Faults, FaultyStore, Run, run_all
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.waiting import wait_until

STEPS = 4  # inner steps of a phase
ROUNDS = 3
STOPPED = 1  # the rank that is stopped


class Reader:
    """Draws one item after the other; its state has an array of `size` elements, filled with the position."""

    def __init__(self, size: int = 1) -> None:
        self.position, self._size = 0, size

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position, "rest": np.full(self._size, self.position)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.position = state_dict["position"]

    def draw(self) -> int:
        self.position += 1
        return self.position - 1


class Replica:
    """One process of a replica whose every item moves an element of its own by the number of replicas."""

    def __init__(
        self, run: Run, rank: int, folder: Path, algorithm: Algorithm | None = None, faults: Faults | None = None
    ) -> None:
        self.stop = threading.Event()
        context = run.context(FaultyStore(run.store, faults or Faults()), self.stop)
        self.rendezvous = Rendezvous.open(replace(context, trainer_stop=self.stop), rank, 1, Metrics())
        self.counts = np.zeros((run.replicas, ROUNDS * STEPS * 2), np.float32)
        self.reader = Reader()
        self.rank, self.drawn = rank, list[int]()
        self.outer = DiLoCo(
            self.rendezvous,
            self.counts,
            algorithm or Algorithm(sync_every=STEPS, learning_rate=1.0, momentum=0.0),
            trainer_state={"reader": self.reader},
            checkpoint_dir=folder,
        )

    def train(self, steps: int) -> None:
        """So many inner steps."""
        for _ in range(steps):
            item = self.reader.draw()
            self.drawn.append(item)
            self.counts[self.rank, item] += self.rendezvous.world_size
            self.outer.step()

    def train_to_the_end(self, rounds: int = ROUNDS) -> None:
        """As the loop of the documentation."""
        while self.outer.round < rounds and not self.stop.is_set():
            self.train(1)
        self.outer.finish()


class Pair:
    """A run of two replicas; rank 0 trains in a thread, from when it may."""

    def __init__(self, root: Path, algorithm: Algorithm | None = None, **fields: Any) -> None:
        self.run = Run(root / "run", replicas=2, min_participants=2, **fields)
        self.folder = root / "checkpoints"
        self._algorithm = algorithm
        self._may = threading.Event()
        self.first: list[Replica] = []
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self) -> None:
        first = Replica(self.run, 0, self.folder / "0", self._algorithm)
        self._may.wait()
        first.train_to_the_end()
        self.first.append(first)

    def replica(self, faults: Faults | None = None) -> Replica:
        return Replica(self.run, STOPPED, self.folder / "1", self._algorithm, faults)

    def let_the_other_train(self, round_: int) -> None:
        """Let rank 0 train on, until `round_` is committed."""
        self._may.set()
        if round_:
            wait_until(f"round {round_}", (self.run.root / keys.commit(round_)).exists)

    def counts(self) -> np.ndarray[Any, Any]:
        """What entered the model of each item that was drawn."""
        self._may.set()
        self._thread.join(60)
        assert self.first, "rank 0 hangs or has failed"
        return self.first[0].counts


def expected(weights: dict[int, int], replicas: int = 2) -> np.ndarray[Any, Any]:
    """Each item once: in a round in which rank 1 made fewer steps (`weights`), with its weight."""
    found = np.zeros((replicas, ROUNDS * STEPS * 2), np.float32)
    drawn = [0, 0]
    for round_ in range(1, ROUNDS + 1):
        steps = STEPS, weights.get(round_, STEPS)
        for rank in range(replicas):
            found[rank, drawn[rank] : drawn[rank] + steps[rank]] = replicas * steps[rank] / sum(steps)
            drawn[rank] += steps[rank]
    return found


@pytest.mark.parametrize("steps", [1, 3])
@pytest.mark.parametrize("ends_by_itself", [False, True], ids=["called on", "leaves its loop"])
def test_the_steps_of_a_stopped_replica_are_part_of_the_round(tmp_path: Path, steps: int, ends_by_itself: bool) -> None:
    pair = Pair(tmp_path)
    first = pair.replica()
    first.train(steps)
    first.stop.set()
    if ends_by_itself:
        first.train_to_the_end()
    else:
        steps += 1
        with pytest.raises(StoppedError):
            first.train(1)
    assert first.drawn == list(range(steps))
    # The others end their round without waiting for the restart.
    pair.let_the_other_train(1)
    second = pair.replica()
    assert second.outer.round == 1
    second.train_to_the_end()
    assert second.drawn == list(range(steps, steps + (ROUNDS - 1) * STEPS))
    np.testing.assert_allclose(pair.counts(), expected({1: steps}))
    assert second.counts.tobytes() == pair.counts().tobytes()


@pytest.mark.parametrize("algorithm", [{}, {"codec": "int8"}], ids=["fp32", "int8"])
def test_a_phase_that_is_still_open_continues_where_it_was_stopped(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    def trained(root: Path, stops: tuple[int, ...]) -> bytes:
        pair = Pair(root, Algorithm(sync_every=STEPS, **algorithm))
        replica = pair.replica()
        for steps in stops:
            replica.train(steps)
            replica.stop.set()
            replica.outer.finish()
            replica = pair.replica()
            assert replica.outer.round == 0
        pair.let_the_other_train(0)
        replica.train_to_the_end()
        assert replica.counts.tobytes() == pair.counts().tobytes()
        return replica.counts.tobytes()

    unbroken = trained(tmp_path / "unbroken", ())
    assert trained(tmp_path / "once", (3,)) == unbroken
    assert trained(tmp_path / "twice", (1, 2)) == unbroken


@pytest.mark.parametrize("committed", [False, True], ids=["round open", "round committed"])
def test_a_replica_that_is_stopped_while_it_waits_for_others_loses_nothing(tmp_path: Path, committed: bool) -> None:
    pair = Pair(tmp_path)
    first: list[Replica] = []

    def stop(key: str) -> None:
        if is_like(key, of_round(keys.CONTRIBUTIONS, 1)):
            first[0].stop.set()

    first.append(pair.replica(Faults(after_create=stop)))
    with pytest.raises(StoppedError):
        first[0].train(STEPS)
    assert first[0].drawn == list(range(STEPS))
    if committed:
        pair.let_the_other_train(1)
    second = pair.replica()
    assert second.outer.round == committed
    pair.let_the_other_train(0)
    second.train_to_the_end()
    # An exchange that has to be repeated comes after one more step.
    assert second.drawn == list(range(STEPS, ROUNDS * STEPS + (not committed)))
    np.testing.assert_allclose(pair.counts(), expected({} if committed else {1: STEPS + 1}))


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(sync_every=STEPS, delay=2, alpha=0.5), Algorithm(STEPS, fragments=2), Algorithm(STEPS, eager=True)],
    ids=["delayed", "fragments", "eager"],
)
@pytest.mark.parametrize("steps", [1, 3, 5, 7])
def test_any_algorithm_continues_after_a_stop(tmp_path: Path, algorithm: Algorithm, steps: int) -> None:
    # Alone, so nobody commits a round meanwhile.
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    first = Replica(run, 0, tmp_path / "checkpoints", algorithm)
    first.train(steps)
    first.stop.set()
    first.outer.finish()
    second = Replica(run, 0, tmp_path / "checkpoints", algorithm)
    assert second.reader.position == steps
    second.train_to_the_end(5)
    assert set(np.flatnonzero(second.counts[0])) >= set(range(steps)), "the steps before the stop are lost"


def test_a_stopped_replica_stays_in_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1, on_early_finish=OnEarlyFinish.STOP)
    stop, results = threading.Event(), tmp_path / "results"
    context = replace(run.context(stop=stop), results=LocalStore(results))
    outer = DiLoCo(Rendezvous.open(context, 0, 1, Metrics()), np.zeros(4, np.float32), Algorithm(sync_every=STEPS))
    outer.step()
    stop.set()
    outer.finish()
    assert not run.store.exists(keys.claim(0, 2))  # the rank is not given up
    assert not results.exists()


def test_a_killed_replica_repeats_its_phase_with_an_older_inner_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_state, "SMALL_BYTES", 1000)
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    loaded: list[int] = []

    class Optimizer(Reader):
        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            loaded.append(state_dict["position"])

    def train(steps: int, *, every: int) -> tuple[int, int]:
        """The position of the data before and after the steps; then the process is killed."""
        context = replace(run.context(run.store), checkpoint_rounds=every)
        reader, optimizer = Reader(), Optimizer(5000)
        outer = DiLoCo(
            Rendezvous.open(context, 0, 1, Metrics()),
            np.zeros(4, np.float32),
            Algorithm(sync_every=STEPS, codec="int8"),
            trainer_state={"reader": reader, "optimizer": optimizer},
            checkpoint_dir=tmp_path / "checkpoints",
        )
        first = reader.position
        for _ in range(steps):
            reader.draw()
            optimizer.position = reader.position
            outer.step()
        return first, reader.position

    assert train(5 * STEPS + 3, every=3) == (0, 5 * STEPS + 3)
    # The phase that was broken off is repeated, and no other: nothing is seen twice that counts already.
    assert train(1, every=3)[0] == 5 * STEPS
    assert loaded == [3 * STEPS]
    names = {path.name.rsplit("-", 1)[0] for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"muster-trainer", "muster-progress", "muster-residual"}


def test_a_state_that_belongs_to_another_stop_is_not_mixed_with_the_phase(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    first = pair.replica()
    first.train(3)
    first.stop.set()
    first.outer.finish()
    # SageMaker copies file by file: the state after the phase did not arrive.
    for path in (pair.folder / "1").glob("muster-trainer-*.ckpt"):
        path.unlink()
    second = pair.replica()
    assert (second.reader.position, second.counts.any()) == (0, False)
    pair.let_the_other_train(0)
    second.train_to_the_end()
    np.testing.assert_allclose(pair.counts(), expected({}))


def test_the_processes_of_a_replica_stop_after_the_same_step(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1, count=100_000)
    shared, links = Shared(2), Shared(2)
    stops = [Stops(), Stops()]
    steps, errors = [0, 0], list[BaseException]()
    warned = 5

    def work(index: int) -> None:
        context = replace(
            run.context(stop=stops[index].asked),
            trainer_stop=stops[index].trainer,
            stops_at_steps=stops[index].at_steps,
            group=InnerGroup(index, 2, index),
        )
        if index == 0:
            boards.append(context.board)
        wait_until("the board", lambda: bool(boards))
        rendezvous = Rendezvous.open(replace(context, board=boards[0]), 0, 1, Metrics())
        rendezvous.connect(ThreadLink(shared, index))
        parameters = np.zeros(run.count, np.float32)
        packing = CopiedArray(parameters, ThreadLink(links, index))
        outer = Synchronizer(
            rendezvous, packing, Algorithm(10_000), OwnState(lambda *_: lambda: None, lambda: None), tmp_path / "own"
        )
        try:
            while not stops[index].trainer.is_set():
                steps[index] += 1
                if (index, steps[index]) == (1, warned):
                    # The warning has reached one of the two processes only.
                    stops[1].terminate()
                    assert not stops[1].trainer.is_set()
                parameters += 1
                # As with tensor parallelism: the first process counts for both.
                outer.step(1 - index)
            outer.finish()
        except BaseException as error:
            errors.append(error)
            links.barrier.abort()

    boards: list[Any] = []
    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors, errors
    assert steps[0] == steps[1] >= warned
    assert stops[0].asked.is_set()
    assert run.store.exists(keys.contribution(1, 0, 1))
    names = {path.name for path in (tmp_path / "own").iterdir()}
    assert names == {f"muster-stopped-p{rank}of2-0.ckpt" for rank in range(2)}


def test_the_processes_of_a_replica_learn_of_the_end_of_the_run_after_the_same_step(tmp_path: Path) -> None:
    algorithm = Algorithm(4, delay=3)
    run = Run(
        tmp_path / "run", replicas=2, min_participants=2, rounds=9, on_early_finish=OnEarlyFinish.STOP, count=100_000
    )
    shared, links, inner = Shared(2), Shared(2), threading.Barrier(2, timeout=20)
    board, stops = LocalBoard(), [Stops(), Stops()]
    processes: list[Rendezvous | None] = [None, None]
    steps, errors, returned = [0, 0], list[BaseException](), threading.Event()
    last = 8  # of the second round's phase; it is given after the fifth

    def train(rendezvous: Rendezvous, packing: CopiedArray, rounds: int) -> Iterator[None]:
        outer = Synchronizer(rendezvous, packing, algorithm, OwnState(lambda *_: lambda: None, lambda: None), None)
        while outer.round < rounds and not rendezvous.context.trainer_stop.is_set():
            yield
            outer.step(1)
        if rendezvous is processes[0]:
            returned.set()
        outer.finish()

    def alone() -> None:
        rendezvous = Rendezvous.open(run.context(), 0, 1, Metrics())
        for _ in train(rendezvous, CopiedArray(np.zeros(run.count, np.float32), Alone()), rounds=1):
            pass
        rendezvous.finish("its trainer returned")

    def learn_late(rendezvous: Rendezvous) -> None:
        """The second process learns it in its last step before the exchange is merged, the first one before."""
        note = rendezvous._note

        def noted(commit: Commit) -> None:
            if commit.round == 2:
                wait_until("the first process", lambda: processes[0] is not None and processes[0].has_ended)
                wait_until("its last step", lambda: steps[0] == last or returned.is_set())
            note(commit)

        rendezvous._note = noted  # type: ignore[method-assign]

    def process(index: int) -> None:
        stop = stops[index]
        context = replace(
            run.context(stop=stop.asked),
            trainer_stop=stop.trainer,
            stops_at_steps=stop.at_steps,
            group=InnerGroup(index, 2, index),
            board=board,
        )
        processes[index] = rendezvous = Rendezvous.open(context, 1, 1, Metrics())
        if index:
            learn_late(rendezvous)
        rendezvous.connect(ThreadLink(shared, index))
        packing = CopiedArray(np.zeros(run.count, np.float32), ThreadLink(links, index))
        for _ in train(rendezvous, packing, rounds=9):
            steps[index] += 1
            if (index, steps[index]) == (0, last - 2):
                wait_until("the end of the run", lambda: rendezvous.has_ended)
            inner.wait()  # an inner step needs both, as with FSDP

    def work(action: Callable[[], None]) -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)
            for barrier in (shared.barrier, links.barrier, inner):
                barrier.abort()

    actions: list[Callable[[], None]] = [alone, partial(process, 0), partial(process, 1)]
    run_all([threading.Thread(target=work, args=(action,), daemon=True) for action in actions])
    assert not errors, errors
    assert steps[0] == steps[1]
    assert run.commit(2).finished
    assert not run.store.exists(keys.commit(3))


def test_a_stop_reaches_a_trainer_at_once_where_no_front_end_passes_it_on() -> None:
    stops = Stops()
    stops.terminate()
    assert stops.asked.is_set()
    assert stops.trainer.is_set()


@pytest.mark.parametrize(
    ("kept", "rounds", "found"), [(1, [4], 4), (1, [4, 4], 4), (1, [4, 3], 3), (3, [1, 2, 3, 4], 4)]
)
def test_a_kind_of_one_file_holds_the_last_state(tmp_path: Path, kept: int, rounds: list[int], found: int) -> None:
    stored = checkpoints.Checkpoints(tmp_path, "stopped", kept=kept)
    for number, round_ in enumerate(rounds):
        stored.save(round_, b"state %d" % number)
    assert len(list(tmp_path.iterdir())) == min(kept, len(rounds))
    assert stored.load(9) == (found, b"state %d" % (len(rounds) - 1))
    stored.discard()
    assert stored.load(9) is None


def test_what_is_large_is_saved_in_the_first_round_and_every_kth(tmp_path: Path) -> None:
    stored = checkpoints.Checkpoints(tmp_path, "trainer", every=10)
    assert [round_ for round_ in range(7, 32) if stored.is_due(round_, is_small=False)] == [7, 10, 20, 30]
    assert all(stored.is_due(round_, is_small=True) for round_ in range(40))
