"""A replica that is asked to stop or is slow loses no step; one that is killed at most an inner phase."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.run.commit import Commit
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends import saved_state
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.phases import early_giving
from muster.replica.phases.early_giving import EarlyGiving
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.replica_errors import StoppedError
from muster.replica.rounds import agreement
from muster.replica.rounds.exchange import RoundOutcome
from muster.replica.rounds.round_context import Stops
from muster.replica.store import checkpoints
from muster.replica.store.local_store import LocalStore
from muster.replica.wire import rendezvous_keys
from tests.support.data_position import DataPosition
from tests.support.groups import ThreadGroup
from tests.support.peers import Faults, FaultyStore, Killed, Run, run_all
from tests.support.rendezvous_keys import is_like, of_round
from tests.support.waiting import wait_until

STEPS = 4  # inner steps of a phase
ROUNDS = 3
STOPPED = 1  # the rank that is stopped


class Replica:
    """One process of a replica whose every item moves an element of its own by the number of replicas."""

    def __init__(
        self, run: Run, rank: int, folder: Path, algorithm: Algorithm | None = None, faults: Faults | None = None
    ) -> None:
        self.stop = threading.Event()
        store = FaultyStore(run.store, faults or Faults())
        self.rendezvous = run.open(rank, store=store, stops=Stops(self.stop, self.stop))
        self.counts = np.zeros((run.replicas, ROUNDS * STEPS * 2), np.float32)
        self.reader = DataPosition()
        self.rank, self.drawn = rank, list[int]()
        algorithm = algorithm or Algorithm(sync_every=STEPS, learning_rate=1.0, momentum=0.0)
        own: dict[str, Any] = {"trainer_state": {"reader": self.reader}, "checkpoint_dir": folder}
        self.outer = DiLoCo(self.rendezvous, self.counts, algorithm, **own)

    def train(self, steps: int) -> Replica:
        """So many inner steps."""
        for _ in range(steps):
            item = self.reader.draw()
            self.drawn.append(item)
            self.counts[self.rank, item] += self.rendezvous.world_size
            self.outer.step()
        return self

    def stopped(self) -> Replica:
        """It is asked to stop, and leaves its loop."""
        self.stop.set()
        self.outer.finish()
        return self

    def train_to_the_end(self, rounds: int = ROUNDS) -> None:
        """As the loop of the documentation."""
        while self.outer.round < rounds and not self.stop.is_set():
            self.train(1)
        self.outer.finish()


class Pair:
    """A run of two replicas; rank 0 trains in a thread, from when it may."""

    def __init__(
        self, root: Path, algorithm: Algorithm | None = None, faults: Faults | None = None, **fields: Any
    ) -> None:
        """`faults`: those of rank 0's store."""
        self.run = Run(root / "run", replicas=2, min_participants=2, **fields)
        self.folder = root / "checkpoints"
        self._algorithm, self._faults = algorithm, faults
        self._may = threading.Event()
        self.first: list[Replica] = []
        self._thread = threading.Thread(target=self._train, daemon=True)
        self._thread.start()

    def _train(self) -> None:
        first = Replica(self.run, 0, self.folder / "0", self._algorithm, self._faults)
        self._may.wait()
        first.train_to_the_end()
        self.first.append(first)

    def replica(self, faults: Faults | None = None) -> Replica:
        return Replica(self.run, STOPPED, self.folder / "1", self._algorithm, faults)

    def let_the_other_train(self, round_: int) -> None:
        """Let rank 0 train on, until `round_` is committed."""
        self._may.set()
        if round_:
            wait_until(f"round {round_}", (self.run.root / rendezvous_keys.commit(round_)).exists)

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


@pytest.mark.parametrize(("steps", "ends_by_itself"), [(1, False), (3, True)], ids=["called on", "leaves its loop"])
def test_the_steps_of_a_stopped_replica_are_part_of_the_round(tmp_path: Path, steps: int, ends_by_itself: bool) -> None:
    pair = Pair(tmp_path)
    first = pair.replica().train(steps)
    if ends_by_itself:
        first.stopped()
    else:
        first.stop.set()
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
    def trained(name: str, *stops: int) -> bytes:
        pair = Pair(tmp_path / name, Algorithm(sync_every=STEPS, **algorithm))
        replica = pair.replica()
        for steps in stops:
            replica.train(steps).stopped()
            replica = pair.replica()
            assert replica.outer.round == 0
        pair.let_the_other_train(0)
        replica.train_to_the_end()
        assert replica.counts.tobytes() == pair.counts().tobytes()
        return replica.counts.tobytes()

    assert trained("once", 3) == trained("twice", 1, 2) == trained("unbroken")


@pytest.mark.parametrize("committed", [False, True], ids=["round open", "round committed"])
def test_a_replica_that_is_stopped_while_it_waits_for_others_loses_nothing(tmp_path: Path, committed: bool) -> None:
    pair = Pair(tmp_path)
    first: list[Replica] = []

    def stop(key: str) -> None:
        if is_like(key, of_round(rendezvous_keys.CONTRIBUTIONS, 1)):
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


def test_a_phase_continues_once_more_while_its_round_is_open(tmp_path: Path) -> None:
    third: list[Replica] = []

    def rerun(key: str) -> None:
        # The last look at the claims of the round's members has been made.
        if key == rendezvous_keys.commit(1):
            third.append(pair.replica())

    def stop(key: str) -> None:
        if is_like(key, of_round(rendezvous_keys.CONTRIBUTIONS, 1)):
            first.stop.set()

    def die(key: str) -> None:
        if is_like(key, of_round(rendezvous_keys.CONTRIBUTIONS, 1)):
            raise Killed

    pair = Pair(tmp_path, faults=Faults(before_create=rerun))
    first = pair.replica(Faults(after_create=stop))
    with pytest.raises(StoppedError):
        first.train(STEPS)
    second = pair.replica(Faults(after_create=die))
    with pytest.raises(Killed):
        second.train(1)
    assert second.drawn == [STEPS]
    pair.let_the_other_train(1)
    # The round counts what the second process has given. The third one joined before.
    assert [member.epoch for member in pair.run.commit(1).members] == [1, 2]
    third[0].train_to_the_end()
    assert third[0].drawn == list(range(STEPS, ROUNDS * STEPS + 1))
    np.testing.assert_allclose(pair.counts(), expected({1: STEPS + 1}))


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(sync_every=STEPS, delay=2, alpha=0.5), Algorithm(STEPS, fragments=2), Algorithm(STEPS, eager=True)],
    ids=["delayed", "fragments", "eager"],
)
def test_any_algorithm_continues_after_a_stop(tmp_path: Path, algorithm: Algorithm) -> None:
    for steps in (1, 3, 5, 7):
        # Alone, so nobody commits a round meanwhile.
        run, folder = Run.alone(tmp_path / f"run-{steps}"), tmp_path / f"checkpoints-{steps}"
        Replica(run, 0, folder, algorithm).train(steps).stopped()
        second = Replica(run, 0, folder, algorithm)
        assert second.reader.position == steps
        second.train_to_the_end(5)
        lost = set(range(steps)) - set(np.flatnonzero(second.counts[0]))
        assert not lost, f"of {steps} steps before the stop"


def test_a_stopped_replica_stays_in_the_run(tmp_path: Path) -> None:
    run = Run.alone(tmp_path / "run", on_early_finish=OnEarlyFinish.STOP)
    stop, results = threading.Event(), tmp_path / "results"
    rendezvous = run.open(outside=Outside(results=LocalStore(results)), stops=Stops(stop))
    outer = DiLoCo(rendezvous, np.zeros(4, np.float32), Algorithm(sync_every=STEPS))
    outer.step()
    stop.set()
    outer.finish()
    assert not run.store.exists(rendezvous_keys.claim(0, 2)), "the rank is not given up"
    assert not results.exists()


def test_a_killed_replica_repeats_its_phase_with_an_older_inner_optimizer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saved_state, "SMALL_BYTES", 1000)
    run = Run.alone(tmp_path / "run")
    loaded: list[int] = []

    class Optimizer(DataPosition):
        """Its state is large."""

        def state_dict(self) -> dict[str, Any]:
            return {**super().state_dict(), "moments": np.full(5000, self.position)}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            loaded.append(state_dict["position"])

    def train(steps: int) -> tuple[int, int]:
        """The position of the data before and after the steps; then the process is killed."""
        reader, optimizer = DataPosition(), Optimizer()
        outer = DiLoCo(
            run.open(outside=Outside(checkpoint_rounds=3)),
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

    assert train(5 * STEPS + 3) == (0, 5 * STEPS + 3)
    # The phase that was broken off is repeated, and no other: nothing is seen twice that counts already.
    assert train(1)[0] == 5 * STEPS
    assert loaded == [3 * STEPS]
    names = {path.name.rsplit("-", 1)[0] for path in (tmp_path / "checkpoints").iterdir()}
    assert names == {"muster-trainer", "muster-progress", "muster-residual"}


def test_a_state_that_belongs_to_another_stop_is_not_mixed_with_the_phase(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    pair.replica().train(3).stopped()
    # SageMaker copies file by file: the state after the phase did not arrive.
    for path in (pair.folder / "1").glob("muster-trainer-*.ckpt"):
        path.unlink()
    second = pair.replica()
    assert (second.reader.position, second.counts.any()) == (0, False)
    pair.let_the_other_train(0)
    second.train_to_the_end()
    np.testing.assert_allclose(pair.counts(), expected({}))


class StoppedGroup(ThreadGroup):
    """The two processes of a replica, which are asked to stop one by one."""

    def __init__(self) -> None:
        super().__init__(2)
        self.stops, self.steps = [Stops(), Stops()], [0, 0]

    def joined(self, run: Run, index: int, rank: int = 0) -> Rendezvous:
        return self.open(run.context(stops=self.stops[index]), index, rank)


def test_the_processes_of_a_replica_stop_after_the_same_step(tmp_path: Path) -> None:
    run, group = Run.alone(tmp_path / "run", count=100_000), StoppedGroup()
    stops, steps, warned = group.stops, group.steps, 5

    def work(index: int) -> None:
        parameters = np.zeros(run.count, np.float32)
        rendezvous = group.joined(run, index)
        outer = group.trainer(rendezvous, parameters, Algorithm(10_000), folder=tmp_path / "own")
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

    group.run(work)
    assert steps[0] == steps[1] >= warned
    assert stops[0].asked.is_set()
    assert run.store.exists(rendezvous_keys.contribution(1, 0, 1))
    names = {path.name for path in (tmp_path / "own").iterdir()}
    assert names == {f"muster-stopped-p{rank}of2-0.ckpt" for rank in range(2)}


def test_the_processes_of_a_replica_learn_of_the_end_of_the_run_after_the_same_step(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2, on_early_finish=OnEarlyFinish.STOP, count=100_000)
    group, other, inner = StoppedGroup(), ThreadGroup(1), threading.Barrier(2, timeout=20)
    processes: list[Rendezvous | None] = [None, None]
    steps, returned = group.steps, [threading.Event(), threading.Event()]
    last = 8  # of the second round's phase; it is given after the fifth

    def train(of: ThreadGroup, rendezvous: Rendezvous, rounds: int) -> Iterator[None]:
        outer = of.trainer(rendezvous, np.zeros(run.count, np.float32), Algorithm(4, delay=3))
        while outer.round < rounds and not rendezvous.context.stops.trainer.is_set():
            yield
            outer.step(1)
        if rendezvous in processes:
            returned[processes.index(rendezvous)].set()
        outer.finish()

    def alone(_: int) -> None:
        rendezvous = other.open(run.context(), 0)
        for _ in train(other, rendezvous, rounds=1):
            pass
        rendezvous.departure.finish("its trainer returned")

    def has_decided() -> bool:
        return returned[0].is_set() and (returned[1].is_set() or steps[1] > steps[0])

    def learn_late(rendezvous: Rendezvous) -> None:
        """The second process learns it in its last step before the exchange is merged, the first one before.

        If the first one's trainer returns earlier, the second one learns it once its own has returned or gone on.
        """
        seen = rendezvous.rounds.seen
        note = seen.note

        def noted(commit: Commit) -> None:
            if commit.round == 2:
                wait_until("the first process", lambda: processes[0] is not None and processes[0].rounds.seen.has_ended)
                wait_until("its last step", lambda: steps[0] == last or has_decided())
            note(commit)

        seen.note = noted  # type: ignore[method-assign]

    def process(index: int) -> None:
        processes[index] = rendezvous = group.joined(run, index, rank=1)
        if index:
            learn_late(rendezvous)
        for _ in train(group, rendezvous, rounds=9):
            steps[index] += 1
            if (index, steps[index]) == (0, last - 2):
                wait_until("the end of the run", lambda: rendezvous.rounds.seen.has_ended)
            inner.wait()  # an inner step needs both, as with FSDP

    run_all([*other.threads(alone), *group.threads(process)])
    other.check()
    group.check()
    assert steps[0] == steps[1]
    assert run.commit(2).finished
    assert not run.store.exists(rendezvous_keys.commit(3))


def test_a_stop_reaches_a_trainer_at_once_where_no_front_end_passes_it_on() -> None:
    stops = Stops()
    stops.terminate()
    assert (stops.asked.is_set(), stops.trainer.is_set()) == (True, True)


def test_what_is_large_is_saved_in_the_first_round_and_every_kth(tmp_path: Path) -> None:
    stored = checkpoints.Checkpoints(tmp_path, "trainer", every=10)
    assert [round_ for round_ in range(7, 32) if stored.is_due(round_, is_small=False)] == [7, 10, 20, 30]
    assert all(stored.is_due(round_, is_small=True) for round_ in range(40))


# --- A slow replica gives the steps that it has made when the others' contributions are enough for the round --------


LONG_STEPS = 2_000  # inner steps of a phase: a slow replica does not come that far in a test
SLOW = 2  # the rank of the slow replica


Window = Callable[[Any, float], None]


@pytest.fixture
def window(monkeypatch: pytest.MonkeyPatch) -> Window:
    """Lets a module take the grace window for so long."""
    return lambda module, seconds: monkeypatch.setattr(module, "grace_window", lambda *_: seconds)


class SteadyReplica:
    """One replica in a thread; what it does to its parameters depends on its rank and step alone."""

    def __init__(self, run: Run, rank: int, algorithm: Algorithm, attempt: int = 1) -> None:
        self.stop = threading.Event()
        self.rendezvous = run.open(rank, attempt, stops=Stops(self.stop))
        self.parameters = np.zeros(run.count, np.float32)
        self.outer = DiLoCo(self.rendezvous, self.parameters, algorithm)
        self.steps = 0

    def step(self) -> RoundOutcome | None:
        self.steps += 1
        self.parameters -= np.float32(self.rendezvous.rank + 1)
        return self.outer.step()


def train_fast(replica: SteadyReplica, rounds: int) -> None:
    while replica.outer.round < rounds:
        replica.step()
    replica.outer.finish()


def train_slowly(replica: SteadyReplica, rounds: int) -> list[RoundOutcome]:
    """Begin with three steps; a further one every now and then, until the rounds are over."""
    outcomes = []
    while replica.outer.round < rounds and not replica.stop.is_set():
        outcome = replica.step()
        if outcome is not None:
            outcomes.append(outcome)
        if replica.steps > 3:
            replica.stop.wait(0.01)
    replica.outer.finish()
    return outcomes


def trained(
    run: Run, algorithm: Algorithm, rounds: int, attempt: int = 1
) -> tuple[list[SteadyReplica], list[RoundOutcome]]:
    """Two fast replicas and a slow one; the outcomes of the slow one's rounds."""
    replicas = [SteadyReplica(run, rank, algorithm, attempt) for rank in range(3)]

    def fast(replica: SteadyReplica) -> None:
        try:
            train_fast(replica, rounds)
        except BaseException:
            replicas[SLOW].stop.set()
            raise

    with ThreadPoolExecutor(SLOW) as pool:
        others = pool.map(fast, replicas[:SLOW])
        outcomes = train_slowly(replicas[SLOW], rounds)
        assert len(list(others)) == SLOW
    return replicas, outcomes


@pytest.mark.parametrize(
    "algorithm",
    [
        Algorithm(LONG_STEPS),
        Algorithm(2 * LONG_STEPS, fragments=2),
        Algorithm(LONG_STEPS, delay=1, alpha=0.5),
        Algorithm(LONG_STEPS, eager=True),
        Algorithm(LONG_STEPS, codec="int8"),
    ],
    ids=["DiLoCo", "fragments", "delayed", "eager", "int8"],
)
def test_a_slow_replica_gives_what_it_has_when_the_others_are_enough(
    tmp_path: Path, window: Window, algorithm: Algorithm
) -> None:
    window(early_giving, 0.0)
    run = Run(tmp_path, min_participants=2)
    replicas, outcomes = trained(run, algorithm, rounds=2)
    assert all(outcome.took_part for outcome in outcomes)
    assert len({replica.parameters.tobytes() for replica in replicas}) == 1
    for round_ in (1, 2):
        weights = {member.rank: member.weight for member in run.commit(round_).members}
        assert sorted(weights) == [0, 1, SLOW]
        # The others have made their whole phases; every step of the slow one counts, and no other.
        assert weights[0] + weights[1] >= LONG_STEPS
        assert 0 < weights[SLOW] < LONG_STEPS
    # A fragment weighs all steps since it was last exchanged.
    rounds = (2,) if algorithm.fragments == 2 else (1, 2)
    given = sum(member.weight for round_ in rounds for member in run.commit(round_).members if member.rank == SLOW)
    assert given in {replicas[SLOW].steps, replicas[SLOW].steps - 1}


def test_a_replica_that_ends_its_phase_within_the_grace_window_gives_all_its_steps(
    tmp_path: Path, window: Window
) -> None:
    window(early_giving, 1e9)
    run = Run(tmp_path, min_participants=2)
    trained(run, Algorithm(100), rounds=1)
    assert [member.weight for member in run.commit(1).members] == [100, 100, 100]


def test_a_rerun_makes_all_steps_of_a_phase_to_which_its_predecessor_gave(tmp_path: Path, window: Window) -> None:
    # The round may count its predecessor's contribution: with fewer steps it would come to the same data again.
    window(early_giving, 0.0)
    run = Run(tmp_path, min_participants=2)
    predecessor = SteadyReplica(run, SLOW, Algorithm(100))
    predecessor.stop.set()
    with pytest.raises(StoppedError):
        predecessor.step()
    replicas, _ = trained(run, Algorithm(100), rounds=1, attempt=2)
    assert replicas[SLOW].steps == 100


def test_a_rerun_whose_predecessor_gave_nothing_ends_its_first_phase_early(tmp_path: Path, window: Window) -> None:
    window(early_giving, 0.0)
    replicas, _ = trained(run := Run(tmp_path, min_participants=2), Algorithm(200), rounds=1, attempt=2)
    assert replicas[SLOW].steps < 200
    assert [member.weight for member in run.commit(1).members] == [200, 200, replicas[SLOW].steps]


def test_a_replica_that_the_round_has_left_out_ends_its_phase_at_once(tmp_path: Path, window: Window) -> None:
    window(agreement, 0.0)
    window(early_giving, 1e9)
    run = Run(tmp_path, min_participants=2)
    slow = SteadyReplica(run, SLOW, Algorithm(LONG_STEPS))
    others = [SteadyReplica(run, rank, Algorithm(LONG_STEPS)) for rank in range(2)]
    with ThreadPoolExecutor(2) as pool:
        fast = [pool.submit(train_fast, other, 1) for other in others]
        slow.step()
        wait_until("round 1", (run.root / rendezvous_keys.commit(1)).exists)
        (outcome,) = train_slowly(slow, 1)
    assert [future.result() for future in fast] == [None, None]
    assert (outcome.participants, outcome.took_part) == ((0, 1), False)
    assert slow.steps < LONG_STEPS
    assert slow.parameters.tobytes() == others[0].parameters.tobytes()


def test_no_look_is_made_where_every_contribution_is_needed(tmp_path: Path) -> None:
    for needed, looks in ((3, False), (2, True)):
        asked = threading.Event()

        class Asked(FaultyStore):
            def exists(self, key: str, asked: threading.Event = asked) -> bool:
                asked.set()
                return super().exists(key)

        run = Run(tmp_path, min_participants=needed)
        found = EarlyGiving(run.context(Asked(run.store, Faults())), SLOW)
        found.begin(1, ())
        if looks:
            wait_until("a look", asked.is_set)
        assert not found.is_late(1e12)
        found.end()
        assert asked.is_set() == looks


def test_the_processes_of_a_slow_replica_give_after_the_same_step(tmp_path: Path, window: Window) -> None:
    window(early_giving, 0.0)
    run = Run(tmp_path / "run", replicas=2, min_participants=1, count=100_000)
    fast, group = SteadyReplica(run, 0, Algorithm(LONG_STEPS)), ThreadGroup(2)
    steps, states = [0, 0], [b"", b""]

    def work(index: int) -> None:
        rendezvous = group.open(run.context(), index, rank=1)
        parameters = np.zeros(run.count, np.float32)
        outer = group.trainer(rendezvous, parameters, Algorithm(LONG_STEPS))
        while outer.round < 1:
            steps[index] += 1
            parameters -= 2
            outer.step(0.5)
            rendezvous.context.stops.asked.wait(0.01)
        outer.finish()
        states[index] = parameters.tobytes()

    run_all([threading.Thread(target=train_fast, args=(fast, 1), daemon=True), *group.threads(work)])
    group.check()
    assert steps[0] == steps[1] < LONG_STEPS
    assert [member.weight for member in run.commit(1).members] == [LONG_STEPS, steps[0]]
    assert set(states) == {fast.parameters.tobytes()}


def test_a_rerun_that_is_stopped_before_its_first_step_leaves_the_states_as_they_are(tmp_path: Path) -> None:
    run, folder = Run.alone(tmp_path / "run"), tmp_path / "own"
    Replica(run, 0, folder).train(STEPS)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(3):
        Replica(run, 0, folder).stopped()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    # What follows are the items after those that have counted.
    assert Replica(run, 0, folder).train(STEPS).drawn == list(range(STEPS, 2 * STEPS))
