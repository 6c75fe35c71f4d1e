"""What a replica has trained counts once: with its tokens, in one round, whichever of its processes contributed it."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.round_history import last_committed
from muster.replica.wire import keys
from muster.replica.wire.binary_format import Floats
from tests.support.data_position import DataPosition
from tests.support.peers import Faults, FaultyStore, Killed, Run, missing_only_in


def test_a_fragment_weighs_the_tokens_since_it_was_last_exchanged(tmp_path: Path) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    outer = DiLoCo(
        Rendezvous.open(run.context(), 0, 1, Metrics()),
        np.zeros(run.count, np.float32),
        Algorithm(sync_every=4, fragments=2, delay=1),
    )
    # Sent after steps 1, 3, 5 and 7: in turn the first and the second half.
    for tokens in (1, 2, 4, 8, 16, 32, 64, 128):
        outer.step(tokens)
    weights = [run.commit(round_).members[0].weight for round_ in (1, 2, 3, 4)]
    assert weights == [1, 1 + 2 + 4, 2 + 4 + 8 + 16, 8 + 16 + 32 + 64]


def dies_at_commit(commits: list[bytes]) -> Faults:
    """The process dies when it commits the first round; what it would have written goes to `commits`."""

    def rewrite(key: str, body: bytes) -> bytes:
        if key == keys.commit(1):
            commits.append(body)
            raise Killed
        return body

    return Faults(rewrite=rewrite)


@pytest.mark.parametrize(
    "algorithm",
    [Algorithm(sync_every=3, delay=1, alpha=0.5), Algorithm(), Algorithm(eager=True)],
    ids=["delayed", "at once", "eager"],
)
def test_a_round_that_counts_a_former_process_counts_nothing_of_its_successor(
    tmp_path: Path, algorithm: Algorithm
) -> None:
    run = Run(tmp_path, replicas=1, min_participants=1)
    commits: list[bytes] = []

    def begin(attempt: int, faults: Faults) -> tuple[DiLoCo, Floats]:
        parameters = np.zeros(run.count, np.float32)
        rendezvous = Rendezvous.open(run.context(FaultyStore(run.store, faults)), 0, attempt, Metrics())
        return DiLoCo(rendezvous, parameters, algorithm), parameters

    first, parameters = begin(1, dies_at_commit(commits))
    for _ in range(algorithm.sync_every - algorithm.delay):
        parameters -= 1
        with suppress(Killed):
            first.step()
    with suppress(Killed):
        first.finish()
    assert commits
    # Its commit takes effect when its rerun has joined, which trains the same data again.
    second, parameters = begin(2, Faults())
    run.store.create(keys.commit(1), commits[0])
    outcome = None
    while outcome is None:
        parameters -= 1
        outcome = second.step()
    assert (outcome.round, outcome.participants, outcome.took_part) == (1, (0,), False)
    assert second.round == 1
    second.finish()
    training = second._rendezvous.training
    assert training is not None
    assert training.state.parameters.tobytes() == parameters.tobytes()
    while (outcome := second.step()) is None:
        pass
    assert (outcome.round, outcome.took_part) == (2, True)


@pytest.mark.parametrize("codec", ["fp32", "int8"])
@pytest.mark.parametrize("steps", [0, 2])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_a_rerun_that_ends_before_the_round_counts_its_predecessor_repeats_nothing(
    tmp_path: Path, steps: int, is_stopped: bool, codec: str
) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    commits: list[bytes] = []

    def begin(attempt: int, faults: Faults) -> tuple[DiLoCo, DataPosition, threading.Event]:
        stop, reader = threading.Event(), DataPosition()
        context = run.context(FaultyStore(run.store, faults), stop)
        outer = DiLoCo(
            Rendezvous.open(context, 0, attempt, Metrics()),
            np.zeros(run.count, np.float32),
            Algorithm(sync_every=4, codec=codec),
            trainer_state={"reader": reader},
            checkpoint_dir=tmp_path / "checkpoints",
        )
        return outer, reader, stop

    def train(outer: DiLoCo, reader: DataPosition, steps: int) -> None:
        for _ in range(steps):
            reader.position += 1
            outer.step()

    first, reader, _ = begin(1, dies_at_commit(commits))
    with suppress(Killed):
        train(first, reader, 4)
    second, reader, stop = begin(2, Faults())
    assert (second.round, reader.position) == (0, 0)
    train(second, reader, steps)
    if is_stopped:
        stop.set()
        second.finish()
    # The commit takes effect now: it counts what the first process has given.
    run.store.create(keys.commit(1), commits[0])
    third, reader, _ = begin(3, Faults())
    assert (third.round, reader.position) == (1, 4)


def test_an_eager_replica_whose_round_is_deleted_ends_with_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing_only_in(monkeypatch, 1)
    run = Run(tmp_path, replicas=2, min_participants=1, rounds=5, snapshot_rounds=1)
    parameters = np.zeros(run.count, np.float32)
    late = DiLoCo(Rendezvous.open(run.context(), 1, 1, Metrics()), parameters, Algorithm(eager=True))
    other = np.zeros(run.count, np.float32)
    outer = DiLoCo(Rendezvous.open(run.context(), 0, 1, Metrics()), other, Algorithm(eager=True))
    while outer.round < run.rounds:
        other -= 1
        outer.step()
    outer.finish()
    steps = 0
    while late.round < run.rounds:
        parameters -= 1
        late.step()
        steps += 1
        assert steps < 9
    late.finish()
    assert last_committed(run.store) == late.round == run.rounds
    assert parameters.tobytes() == other.tobytes()
