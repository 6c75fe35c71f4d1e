"""Inner states between rounds under faults: a tier that fails costs states, never the training, and never a bit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.replica.frontends.plain_state import pack_plain, unpack_plain
from muster.replica.group.board import LocalBoard
from muster.replica.group.inner_group import InnerGroup
from muster.replica.metrics import Metrics
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.store.transport import StoreUnavailableError
from muster.replica.tiers import memory_tier
from muster.replica.tiers.inner_states import Found, InnerStates
from muster.replica.tiers.state_buffer import Coding, PlainArrays
from muster.replica.tiers.state_file import HEADER_BYTES, StateHeader, StateId, seal
from muster.replica.tiers.tier import Held, TierName
from tests.support.groups import Shared, ThreadLink
from tests.support.inner_training import STEPS, Life, Lives, undisturbed
from tests.support.memory_service import MemoryService, memory_service
from tests.support.peers import PATIENT_SECONDS, Faults, FaultyStore, Run, run_all
from tests.support.waiting import wait_until

END = 60


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryService]:
    with memory_service() as found:
        monkeypatch.setenv(memory_tier.ENV_ENDPOINT, found.url)
        yield found


def files(folder: Path) -> list[Path]:
    """The files of states, oldest first."""
    return sorted(path for path in folder.rglob("*-*-*") if path.is_file())


def ends_as_undisturbed(life: Life, root: Path) -> None:
    """Train on to the end: nothing was lost on the way but time."""
    life.train(END - life.optimizer.position)
    assert life.bits == undisturbed(root, END)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[-200] ^= 4  # of a parameter
    path.write_bytes(body)


def flip_the_header(path: Path) -> None:
    body = path.read_bytes()
    assert body[:HEADER_BYTES].count(b'"epoch":1') == 1
    path.write_bytes(body.replace(b'"epoch":1', b'"epoch":0', 1))


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other_text(path: Path) -> None:
    path.write_bytes(b"\xff" * 5000)


@pytest.mark.parametrize("damage", [cut, flip, flip_the_header, empty, other_text])
def test_a_damaged_file_falls_back_to_the_state_before(
    tmp_path: Path, damage: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=10))
    lives.begin().train(24)
    damage(files(lives.disk)[-1])
    second = lives.begin(attempt=2)
    assert second.place == (0, 10)
    assert "event=damaged-inner-state tier=disk round=0 step=20" in caplog.text
    assert "event=resumed tier=disk round=0 step=10" in caplog.text
    ends_as_undisturbed(second, tmp_path)


def test_of_a_state_that_is_damaged_in_one_tier_the_next_tier_has_it(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(24)
    flip(files(lives.disk)[-1])
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "s3")
    ends_as_undisturbed(second, tmp_path)


def test_without_a_whole_state_the_phase_is_repeated(tmp_path: Path) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(STEPS + 24)
    for path in files(lives.disk) + files(lives.run.root / "inner-states"):
        cut(path)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((1, 0), None)
    ends_as_undisturbed(second, tmp_path)


def test_a_process_that_is_killed_in_the_middle_of_a_save_leaves_the_states_before(tmp_path: Path) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=10))
    lives.begin().train(20)
    newest = files(lives.disk)[-1]
    newest.rename(newest.parent / "unfinished")
    cut(newest.parent / "unfinished")
    second = lives.begin(attempt=2)
    assert second.place == (0, 10)
    ends_as_undisturbed(second, tmp_path)
    assert not list(lives.disk.rglob("unfinished"))


def test_a_disk_that_takes_nothing_costs_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lives = Lives(tmp_path)
    tmp_path.joinpath("disk").write_text("a file where the folder would be")
    life = lives.begin().train(24)
    assert life.outer._tiers is not None
    assert life.outer._tiers.counts[TierName.DISK].failed == 2
    assert "event=inner-state-failed tier=disk round=0 step=10" in caplog.text
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "s3")
    ends_as_undisturbed(second, tmp_path)


def test_a_memory_service_that_is_down_at_the_start_leaves_the_disk(
    tmp_path: Path, service: MemoryService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    service.status = 503
    lives = Lives(tmp_path)
    lives.begin().train(24)
    assert "event=no-memory-tier" in caplog.text
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "disk")
    ends_as_undisturbed(second, tmp_path)


def test_no_service_answers_at_the_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with memory_service() as gone:
        pass
    monkeypatch.setenv(memory_tier.ENV_ENDPOINT, gone.url)
    lives = Lives(tmp_path)
    lives.begin().train(12)
    assert lives.begin(attempt=2).tier == "disk"


@pytest.mark.parametrize("status", [500, 503, 404, 400])
def test_a_memory_service_that_fails_later_lets_the_disk_take_the_state(
    tmp_path: Path, service: MemoryService, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=10))
    life = lives.begin().train(12)
    service.status = status
    life.train(12)
    assert "event=inner-state-failed tier=memory round=0 step=20" in caplog.text
    service.status = None
    second = lives.begin(attempt=2)
    # The disk has the newer state; the service still has the one before.
    assert (second.place, second.tier) == ((0, 20), "disk")
    ends_as_undisturbed(second, tmp_path)


def test_a_memory_service_that_was_started_anew_gets_its_namespace_again(
    tmp_path: Path, service: MemoryService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory_tier, "PAUSE_SECONDS", 0.0)
    lives = Lives(tmp_path, CheckpointTiers(memory_every=5))
    life = lives.begin().train(5)
    service.namespaces.clear()
    service.shards.clear()
    life.train(15)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "memory")


@pytest.mark.parametrize("garbage", [b"", b"\x80\x04cos\nsystem\n", b"x" * 100_000], ids=["none", "a pickle", "text"])
def test_garbage_from_the_memory_service_is_not_used(tmp_path: Path, service: MemoryService, garbage: bytes) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(24)
    service.rewrite = lambda _: garbage
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "s3")
    service.rewrite = lambda body: body
    ends_as_undisturbed(second, tmp_path)


def test_a_slow_memory_service_delays_no_step(tmp_path: Path, service: MemoryService) -> None:
    answers = threading.Event()

    def slow(method: str, path: str) -> None:
        if method == "POST" and "/checkpoints/" in path:
            answers.wait(PATIENT_SECONDS)

    lives = Lives(tmp_path, CheckpointTiers(memory_every=5, s3_every=10))
    life = lives.begin()
    service.before = slow
    life.train(22, saves=False)
    assert life.place == (0, 22)
    assert life.outer._tiers is not None
    counts = life.outer._tiers.counts
    assert counts[TierName.MEMORY].left_out == 3
    # The other tier has a thread of its own.
    wait_until("the state in S3", lambda: counts[TierName.S3].saved + counts[TierName.S3].left_out == 2)
    answers.set()
    life.saved()
    assert len(service.shards) == 1


def test_a_throttled_s3_costs_states_and_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def throttled(key: str) -> None:
        if key.startswith("inner-states/"):
            raise StoreUnavailableError(key, 8, "503 Slow Down")

    lives = Lives(tmp_path, CheckpointTiers(s3_every=1))
    lives.store = FaultyStore(lives.run.store, Faults(before_create=throttled))
    life = lives.begin().train(20)
    assert life.outer._tiers is not None
    assert life.outer._tiers.counts[TierName.S3].failed == 20
    # Not a line for each of them.
    assert caplog.text.count("event=inner-state-failed tier=s3") == 5
    lives.store = None
    second = lives.begin(attempt=2)
    assert second.place == (0, 0)
    ends_as_undisturbed(second, tmp_path)


def test_a_slow_s3_does_not_hold_back_the_fast_tier(tmp_path: Path) -> None:
    answers = threading.Event()

    def slow(key: str) -> None:
        if key.startswith("inner-states/"):
            answers.wait(PATIENT_SECONDS)

    lives = Lives(tmp_path, CheckpointTiers(memory_every=1, s3_every=2))
    lives.store = FaultyStore(lives.run.store, Faults(before_create=slow))
    life = lives.begin()
    for _ in range(12):
        life.train(1, saves=False)
        wait_until("the fast state", lambda: life.outer._tiers._lanes["fast"].is_free)  # type: ignore[union-attr]
    assert life.outer._tiers is not None
    assert life.outer._tiers.counts[TierName.S3].left_out == 5
    assert Held.named(files(lives.disk)[-1].stem) == Held(StateId(0, 12), 1)
    answers.set()
    life.saved()


def rewritten(path: Path, **changes: object) -> None:
    """Store a state again, whole, with other fields in its header."""
    body = memoryview(bytearray(path.read_bytes()))
    header = StateHeader.from_json(bytes(body[:HEADER_BYTES]), "").model_copy(update=changes)
    seal(body, header)
    held = Held(header.id, header.epoch)
    path.unlink()
    path.with_name(f"{held.name}{path.suffix}").write_bytes(body)


def test_a_state_after_a_round_that_the_run_has_not_committed_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(24)
    rewritten(files(lives.disk)[-1], round=9, step=1)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "s3")
    assert "event=inner-states-ignored tier=disk number=1 last_round=0" in caplog.text
    # It takes no place of those that are kept.
    second.train(6)
    assert [Held.named(path.stem).id for path in files(lives.disk)] == [(0, 10), (1, 0), (9, 1)]  # type: ignore[union-attr]
    third = lives.begin(attempt=3)
    assert third.place == (1, 0)
    ends_as_undisturbed(third, tmp_path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"epoch": 7}, "claim 7 has saved it, and this process holds claim 2"),
        ({"run": "another"}, "it belongs to"),
        ({"rank": 1}, "it belongs to"),
        ({"rendezvous": "s3://other/rendezvous/test/"}, "it belongs to"),
        ({"parts": 2}, "it belongs to"),
    ],
    ids=["a later claim", "another run", "another rank", "another stack", "another group"],
)
def test_a_state_of_another_is_not_used(
    tmp_path: Path, changes: dict[str, object], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(24)
    rewritten(files(lives.disk)[-1], **changes)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((0, 20), "s3")
    assert reason in caplog.text
    ends_as_undisturbed(second, tmp_path)


def test_the_state_of_a_contribution_that_does_not_count_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path, keeps_own_state=False)
    lives.begin().train(STEPS)
    # Another process of the rank has contributed to the round as well, and the run has counted that.
    monkeypatch.setattr(Rendezvous, "counted", lambda *_: 5)
    second = lives.begin(attempt=2)
    assert (second.place, second.tier) == ((1, 0), None)
    assert "claim 1 has saved it, and the contribution of claim 5 counts" in caplog.text


def group(
    run: Run, disk: Path, work: Callable[[InnerStates, int], Any], attempt: int = 1, size: int = 2
) -> list[tuple[int, Any]]:
    """What `work` returns in each process of a replica, with its rank in the group."""
    shared, board = Shared(size), LocalBoard()
    found: list[tuple[int, Any]] = []
    errors: list[BaseException] = []

    def process(index: int) -> None:
        try:
            context = replace(
                run.context(), group=InnerGroup(index, size, index), board=board, local_states=disk / str(index)
            )
            rendezvous = Rendezvous.open(context, 0, attempt, Metrics())
            link = ThreadLink(shared, index)
            coding = Coding(pack_plain, unpack_plain, PlainArrays())
            states = InnerStates(rendezvous, link, coding, STEPS, CheckpointTiers(memory_every=10))
            found.append((index, work(states, index)))
        except BaseException as error:
            errors.append(error)
            shared.barrier.abort()

    run_all([threading.Thread(target=process, args=(index,), daemon=True) for index in range(size)])
    assert not errors, errors
    return sorted(found, key=lambda item: item[0])


def saved(states: InnerStates, index: int) -> None:
    """Three states."""
    for step in (5, 10, 20):
        due = states.due(0, step)
        if any(due):
            mark = np.full(4, 10 * step + index, np.float32)
            states.save(due, StateId(0, step), lambda mark=mark: {"mark": mark})  # type: ignore[misc]
            assert states.wait(PATIENT_SECONDS)


def newest(states: InnerStates, index: int) -> tuple[StateId, int] | None:
    found: Found | None = states.newest(0, None)
    return None if found is None else (found.id, int(found.state["mark"][0]))


def test_the_processes_of_a_replica_continue_from_the_same_state(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    group(run, tmp_path / "disk", saved)
    assert group(run, tmp_path / "disk", newest, 2) == [(0, ((0, 20), 200)), (1, ((0, 20), 201))]
    # What one of them has lost is no state of the replica.
    flip(files(tmp_path / "disk" / "1")[-1])
    assert group(run, tmp_path / "disk", newest, 3) == [(0, ((0, 10), 100)), (1, ((0, 10), 101))]
    for path in files(tmp_path / "disk" / "0"):
        path.unlink()
    assert group(run, tmp_path / "disk", newest, 4) == [(0, None), (1, None)]


def test_states_of_two_processes_with_other_claims_are_not_mixed(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    group(run, tmp_path / "disk", saved)
    group(run, tmp_path / "disk", saved, 2)
    # Process 1 has lost the newest state of the second claim, and so has one of the first.
    files(tmp_path / "disk" / "1")[-1].unlink()
    assert group(run, tmp_path / "disk", newest, 3) == [(0, ((0, 10), 100)), (1, ((0, 10), 101))]
