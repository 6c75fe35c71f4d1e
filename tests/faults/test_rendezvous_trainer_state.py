"""A killed replica restarts with its inner state, and every item enters the model exactly once."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.rendezvous import Rendezvous
from muster.replica.rounds.error_feedback import StoredErrorFeedback
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.checkpoints import KEPT, Checkpoints
from muster.replica.wire import rendezvous_keys
from tests.support.data_position import DataPosition
from tests.support.peers import Faults, FaultyStore, Killed, Run, dead_are_replaced_soon, kill_at, run_all
from tests.support.rendezvous_keys import of_round

ROUNDS = 8
ITEMS = 3  # drawn by a replica in one round
VICTIM = 1
KINDS = ("trainer", "residual")


def train(run: Run, rank: int, attempt: int, folder: Path, *, faults: Faults, drawn: list[int]) -> np.ndarray[Any, Any]:
    """Every item that is drawn moves an element of its own by 1: the global model counts what entered it."""
    rendezvous = Rendezvous.open(run.context(FaultyStore(run.store, faults)), rank, attempt, Metrics())
    counts = np.zeros((run.replicas, ROUNDS * ITEMS), np.float32)
    reader = DataPosition()
    outer = DiLoCo(
        rendezvous,
        counts,
        Algorithm(sync_every=ITEMS, learning_rate=1.0, momentum=0.0),
        trainer_state={"reader": reader},
        checkpoint_dir=folder,
    )
    while outer.round < ROUNDS:
        item = reader.draw()
        drawn.append(item)
        counts[rank, item] += run.replicas  # averaged over the replicas: 1
        outer.step()
    return counts


def disturbed(run: Run, faults: Faults) -> tuple[dict[int, np.ndarray[Any, Any]], list[int]]:
    """What the replicas come to if one of them is killed and started again, and what its second process draws."""
    results: dict[int, np.ndarray[Any, Any]] = {}
    again: list[int] = []

    def work(rank: int) -> None:
        folder = run.root.parent / f"checkpoints-{rank}"
        try:
            results[rank] = train(run, rank, 1, folder, faults=faults if rank == VICTIM else Faults(), drawn=[])
        except Killed:
            results[rank] = train(run, rank, 2, folder, faults=Faults(), drawn=again)

    run_all([threading.Thread(target=work, args=(rank,), daemon=True) for rank in (0, VICTIM)])
    return results, again


def test_a_killed_replica_repeats_and_loses_no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead_are_replaced_soon(monkeypatch)
    gives = kill_at(of_round(rendezvous_keys.CONTRIBUTIONS, 4))
    cases = {
        "before contributing": (4, Faults(before_create=gives)),
        "after contributing": (4, Faults(after_create=gives)),
        # The mean of a small model is one shard: rank 1 makes it in odd rounds, and reads it in even ones.
        "before reducing": (5, Faults(before_create=kill_at(of_round(rendezvous_keys.REDUCED, 5)))),
        "while gathering": (4, Faults(before_read=kill_at(of_round(rendezvous_keys.REDUCED, 4)))),
    }
    for name, (round_, faults) in cases.items():
        run = Run(tmp_path / name / "run", replicas=2, min_participants=2)
        results, again = disturbed(run, faults)
        assert results[0].tobytes() == results[VICTIM].tobytes(), name
        # Every item of every replica entered the model once.
        assert (results[0] == 1).all(), name
        assert again == list(range(again[0], ROUNDS * ITEMS)), name
        # Drawn again is at most what was drawn for that round: all of it if the successor contributes it. The
        # first attempt's contribution may still be committed after that; then the successor is left out.
        attempt = {member.rank: member.attempt for member in run.commit(round_).members}[VICTIM]
        assert again[0] in {(round_ - 1) * ITEMS, round_ * ITEMS}, name
        assert attempt == 1 or again[0] == (round_ - 1) * ITEMS, name


def saved(folder: Path, rounds: Iterable[int]) -> Checkpoints:
    checkpoints = Checkpoints(folder, "trainer")
    for round_ in rounds:
        checkpoints.save(round_, state_of(round_))
    return checkpoints


def state_of(round_: int) -> bytes:
    return bytes([round_]) * 100


def test_three_files_of_fixed_names_hold_the_last_states(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    names: set[str] = set()
    for round_ in range(1, 101):
        checkpoints.save(round_, state_of(round_))
        names |= {path.name for path in tmp_path.iterdir()}
    assert names == {f"muster-trainer-{slot}.ckpt" for slot in range(KEPT)}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < KEPT * 300
    # A restart finds what was saved, but for states that are too old; the newest one even if the run is ahead.
    found = {last: Checkpoints(tmp_path, "trainer").load(last) for last in (96, 97, 99, 100, 102)}
    assert found == {96: None, 97: None, 99: (99, state_of(99)), 100: (100, state_of(100)), 102: (100, state_of(100))}
    # A round that is trained again replaces its state.
    checkpoints.save(100, b"again")
    assert checkpoints.load(100) == (100, b"again")


@dataclass
class Claimed:
    """A process with a claim, and the claim under which its replica counts in round 5."""

    epoch: int
    counts: int | None = None

    def counted(self, round_: int) -> int | None:
        return self.counts if round_ == 5 else None


def test_of_the_states_of_a_round_the_one_that_counts_is_loaded(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "trainer", contributor=Claimed(1)).save(4, b"state 0")
    for epoch in (1, 2, 3):
        # Of four states the one is lost that only the oldest claim needs.
        Checkpoints(tmp_path, "trainer", contributor=Claimed(epoch)).save(5, b"state %d" % epoch)
    counts: tuple[int | None, ...] = (1, 2, 3, 4, None)
    loaded = {claim: Checkpoints(tmp_path, "trainer", contributor=Claimed(4, claim)) for claim in counts}
    before = (4, b"state 0")
    assert {claim: checkpoints.load(5) for claim, checkpoints in loaded.items()} == {
        1: before,
        2: (5, b"state 2"),
        3: (5, b"state 3"),
        4: before,
        None: (5, b"state 3"),
    }
    assert {checkpoints.load(4) for checkpoints in loaded.values()} == {before}


def test_the_state_that_counts_outlives_later_processes_of_its_round(tmp_path: Path) -> None:
    Checkpoints(tmp_path, "trainer", contributor=Claimed(1)).save(5, b"counts")
    Checkpoints(tmp_path, "trainer", contributor=Claimed(2, 1)).save(5, b"too late")
    for epoch in (3, 4):
        Checkpoints(tmp_path, "trainer", contributor=Claimed(epoch, 1)).save(6, b"of an open round")
    assert Checkpoints(tmp_path, "trainer", contributor=Claimed(5, 1)).load(5) == (5, b"counts")


def test_the_users_own_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    own = {f"{kind}-{number}.ckpt": b"the user's %d" % number for kind in KINDS for number in (0, 1, 100, 20_000_000)}
    own |= {"trainer.tmp": b"unfinished", "residual.tmp": b"unfinished"}
    for name, body in own.items():
        (tmp_path / name).write_bytes(body)
    for kind in KINDS:
        checkpoints = Checkpoints(tmp_path, kind)
        for round_ in range(1, 6):
            checkpoints.save(round_, b"state of %d" % round_)
        assert checkpoints.load(4) == (4, b"state of 4")
    assert {name: (tmp_path / name).read_bytes() for name in own} == own


def test_a_torn_slot_falls_back_to_the_one_before(tmp_path: Path) -> None:
    damages: dict[str, Callable[[bytes], bytes]] = {
        "shorter": lambda body: body[:-1],
        "another byte": lambda body: body[:-1] + b"x",
        "empty": lambda _: b"",
        "without its beginning": lambda body: body[5:],
        "mixed with the state before it": lambda body: body[:-50] + state_of(2)[:50],
    }
    for name, damage in damages.items():
        folder = tmp_path / name
        checkpoints = saved(folder, range(1, 6))
        newest = next(path for path in folder.iterdir() if path.read_bytes().endswith(state_of(5)))
        newest.write_bytes(damage(newest.read_bytes()))
        assert checkpoints.load(5) == (4, state_of(4)), name
        # The torn one is the next to be replaced.
        checkpoints.save(6, state_of(6))
        assert [checkpoints.load(last) for last in (6, 4)] == [(6, state_of(6)), (4, state_of(4))], name


def test_a_residual_of_an_earlier_round_is_not_sent_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "residual")
    checkpoints.save(4, np.ones(3, np.float32).tobytes())
    codec = codec_named("int8")
    assert StoredErrorFeedback(codec, 3, checkpoints, 4).before().tolist() == [1, 1, 1]
    assert StoredErrorFeedback(codec, 3, checkpoints, 5).before().tolist() == [0, 0, 0]
