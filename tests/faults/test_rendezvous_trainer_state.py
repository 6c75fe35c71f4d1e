"""A killed replica restarts with its inner state, and every item enters the model exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.codecs.error_feedback import StoredErrorFeedback
from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.plain_state import pack_plain, unpack_plain
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.checkpoints import KEPT, Checkpoints
from muster.replica.wire import keys
from tests.support.data_position import DataPosition
from tests.support.peers import Faults, FaultyStore, Killed, Run, run_all
from tests.support.rendezvous_keys import is_like, of_round

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


@pytest.mark.parametrize(
    ("round_", "faults"),
    [
        (4, lambda hook: Faults(before_create=hook(of_round(keys.CONTRIBUTIONS, 4)))),
        (4, lambda hook: Faults(after_create=hook(of_round(keys.CONTRIBUTIONS, 4)))),
        # The mean of a small model is one shard: rank 1 makes it in odd rounds, and reads it in even ones.
        (5, lambda hook: Faults(before_create=hook(of_round(keys.REDUCED, 5)))),
        (4, lambda hook: Faults(before_read=hook(of_round(keys.REDUCED, 4)))),
    ],
    ids=["before contributing", "after contributing", "before reducing", "while gathering"],
)
def test_a_killed_replica_repeats_and_loses_no_data(
    tmp_path: Path, round_: int, faults: Callable[[Callable[[str], Callable[[str], None]]], Faults]
) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    results: dict[int, np.ndarray[Any, Any]] = {}
    drawn: dict[tuple[int, int], list[int]] = {(0, 1): [], (VICTIM, 1): [], (VICTIM, 2): []}
    killed = threading.Event()

    def kill(pattern: str) -> Callable[[str], None]:
        def hook(key: str) -> None:
            if is_like(key, pattern):
                killed.set()
                raise Killed(key)

        return hook

    def work(rank: int) -> None:
        folder = tmp_path / f"checkpoints-{rank}"
        own = faults(kill) if rank == VICTIM else Faults()
        try:
            results[rank] = train(run, rank, 1, folder, faults=own, drawn=drawn[rank, 1])
        except Killed:
            results[rank] = train(run, rank, 2, folder, faults=Faults(), drawn=drawn[rank, 2])

    threads = [threading.Thread(target=work, args=(rank,), daemon=True) for rank in (0, VICTIM)]
    run_all(threads)
    assert killed.is_set()
    assert set(results) == {0, VICTIM}
    assert results[0].tobytes() == results[VICTIM].tobytes()
    # Every item of every replica entered the model once.
    assert (results[0] == 1).all()
    again = drawn[VICTIM, 2]
    assert again == list(range(again[0], ROUNDS * ITEMS))
    # Drawn again is at most what was drawn for that round: all of it if the successor contributes it. The
    # first attempt's contribution may still be committed after that; then the successor is left out.
    attempt = {member.rank: member.attempt for member in run.commit(round_).members}[VICTIM]
    assert again[0] in {(round_ - 1) * ITEMS, round_ * ITEMS}
    assert attempt == 1 or again[0] == (round_ - 1) * ITEMS


def test_a_hundred_rounds_leave_three_files_of_fixed_names(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    names: set[str] = set()
    for round_ in range(1, 101):
        checkpoints.save(round_, bytes([round_]) * 10_000)
        names |= {path.name for path in tmp_path.iterdir()}
    assert names == {f"muster-trainer-{slot}.ckpt" for slot in range(KEPT)}
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < KEPT * 10_200
    # What a restart restores is exactly what was saved.
    assert Checkpoints(tmp_path, "trainer").load(100) == (100, bytes([100]) * 10_000)
    assert Checkpoints(tmp_path, "trainer").load(99) == (99, bytes([99]) * 10_000)


def test_a_state_ahead_of_the_run_is_left_alone(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    for round_ in range(1, 8):
        checkpoints.save(round_, b"state of %d" % round_)
    assert checkpoints.load(6) == (6, b"state of 6")
    assert checkpoints.load(4) is None
    assert checkpoints.load(9) == (7, b"state of 7")


@dataclass
class Claimed:
    """A process with a claim, and the claim under which its replica counts in round 5."""

    epoch: int
    counts: int | None = None

    def counted(self, round_: int) -> int | None:
        return self.counts if round_ == 5 else None


@pytest.mark.parametrize(("counts", "found"), [(1, 1), (2, 2), (3, 3), (4, 0), (None, 3)])
def test_of_the_states_of_a_round_the_one_that_counts_is_loaded(tmp_path: Path, counts: int | None, found: int) -> None:
    Checkpoints(tmp_path, "trainer", contributor=Claimed(1)).save(4, b"state 0")
    for epoch in (1, 2, 3):
        # Of four states the one is lost that only the oldest claim needs.
        Checkpoints(tmp_path, "trainer", contributor=Claimed(epoch)).save(5, b"state %d" % epoch)
    loaded = Checkpoints(tmp_path, "trainer", contributor=Claimed(4, counts)).load(5)
    assert loaded == ((4, b"state 0") if found in {0, 1} else (5, b"state %d" % found))
    assert Checkpoints(tmp_path, "trainer", contributor=Claimed(4, counts)).load(4) is not None


def test_a_round_that_is_trained_again_replaces_its_state(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    for round_, state in ((7, b"7"), (8, b"lost"), (8, b"8"), (9, b"9")):
        checkpoints.save(round_, state)
    assert checkpoints.load(8) == (8, b"8")


@pytest.mark.parametrize("earlier", ["trainer-00000001.ckpt", "trainer-0.ckpt"])
def test_states_that_an_earlier_version_saved_are_read_and_then_replaced(tmp_path: Path, earlier: str) -> None:
    Checkpoints(tmp_path, "trainer").save(1, b"first")
    (tmp_path / "muster-trainer-0.ckpt").rename(tmp_path / earlier)
    checkpoints = Checkpoints(tmp_path, "trainer")
    assert checkpoints.load(1) == (1, b"first")
    for round_ in (2, 3, 4):
        checkpoints.save(round_, b"state of %d" % round_)
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"muster-trainer-{slot}.ckpt" for slot in range(KEPT)]


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


@pytest.mark.parametrize(
    "damage", [lambda body: body[:-1], lambda body: body[:-1] + b"x", lambda _: b"", lambda b: b[5:]]
)
def test_a_torn_slot_falls_back_to_the_one_before(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    for round_ in range(1, 6):
        checkpoints.save(round_, b"state of %d" % round_)
    newest = next(path for path in tmp_path.iterdir() if path.read_bytes().endswith(b"state of 5"))
    newest.write_bytes(damage(newest.read_bytes()))
    assert checkpoints.load(5) == (4, b"state of 4")
    # The torn one is the next to be replaced.
    checkpoints.save(6, b"state of 6")
    assert checkpoints.load(6) == (6, b"state of 6")
    assert checkpoints.load(4) == (4, b"state of 4")


def test_a_copy_that_mixes_two_states_of_one_slot_is_noticed(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    for round_ in range(1, 4):
        checkpoints.save(round_, bytes([round_]) * 100)
    slot = tmp_path / "muster-trainer-0.ckpt"
    before = slot.read_bytes()
    checkpoints.save(4, bytes([4]) * 100)
    after = slot.read_bytes()
    assert before != after
    slot.write_bytes(after[:-50] + before[-50:])
    assert checkpoints.load(4) == (3, bytes([3]) * 100)


def test_a_residual_of_an_earlier_round_is_not_sent_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "residual")
    checkpoints.save(4, np.ones(3, np.float32).tobytes())
    codec = codec_named("int8")
    assert StoredErrorFeedback(codec, 3, checkpoints, 4).of(slice(None)).tolist() == [1, 1, 1]
    assert StoredErrorFeedback(codec, 3, checkpoints, 5).of(slice(None)).tolist() == [0, 0, 0]


def test_plain_states_come_back_as_they_were() -> None:
    rng = np.random.default_rng(3)
    state = {
        "averages": {"a": rng.standard_normal((2, 3)).astype(np.float32), "b": [np.arange(3), 1.5]},
        "rng": rng.bit_generator.state,  # whole numbers of 128 bits
        "epoch": np.int64(4),
        "name": "Grüße",
        "none": None,
    }
    found = unpack_plain(pack_plain(state))
    np.testing.assert_array_equal(found["averages"]["a"], state["averages"]["a"])
    assert found["averages"]["a"].dtype == np.float32
    assert found["averages"]["b"][0].tolist() == [0, 1, 2]
    assert (found["rng"], found["epoch"], found["name"], found["none"]) == (state["rng"], 4, "Grüße", None)
    with pytest.raises(
        ParametersError, match="trainer_state has a value of type object; allowed: dicts, lists, numbers"
    ):
        pack_plain({"strange": object()})
