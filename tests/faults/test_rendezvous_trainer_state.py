"""A killed replica restarts with its inner state, and every item enters the model exactly once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.errors import ParametersError
from muster.replica.frontends.array_diloco import DiLoCo
from muster.replica.frontends.plain_state import pack_plain, unpack_plain
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.checkpoints import KEPT, Checkpoints
from muster.replica.wire import keys
from tests.support.peers import Faults, FaultyStore, Killed, Run, run_all
from tests.support.rendezvous_keys import is_like, of_round

ROUNDS = 8
ITEMS = 3  # drawn by a replica in one round
VICTIM = 1


class Reader:
    """Draws one item after the other."""

    def __init__(self) -> None:
        self.position = 0

    def state_dict(self) -> dict[str, Any]:
        return {"position": self.position}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.position = state_dict["position"]

    def draw(self) -> int:
        self.position += 1
        return self.position - 1


def train(run: Run, rank: int, attempt: int, folder: Path, *, faults: Faults, drawn: list[int]) -> np.ndarray[Any, Any]:
    """Every item that is drawn moves an element of its own by 1: the global model counts what entered it."""
    rendezvous = Rendezvous.open(run.context(FaultyStore(run.store, faults)), rank, attempt, Metrics())
    counts = np.zeros((run.replicas, ROUNDS * ITEMS), np.float32)
    reader = Reader()
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


def test_states_are_kept_by_round_and_few_of_them(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    for round_ in range(1, 8):
        checkpoints.save(round_, b"state of %d" % round_)
    assert len(list(tmp_path.iterdir())) == KEPT
    assert checkpoints.load(6) == (6, b"state of 6")
    # A state ahead of the run was deleted.
    assert checkpoints.load(9) == (6, b"state of 6")
    assert checkpoints.load(4) is None


@pytest.mark.parametrize(
    "damage", [lambda body: body[:-1], lambda body: body[:-1] + b"x", lambda _: b"", lambda b: b[5:]]
)
def test_a_damaged_state_is_skipped(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    checkpoints = Checkpoints(tmp_path, "trainer")
    checkpoints.save(1, b"old")
    checkpoints.save(2, b"new")
    path = tmp_path / "trainer-00000002.ckpt"
    path.write_bytes(damage(path.read_bytes()))
    assert checkpoints.load(2) == (1, b"old")


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
