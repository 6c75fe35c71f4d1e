"""Inner states between rounds under faults: a tier that fails costs states, never the training, and never a bit."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.options.tiers.replica import memory_tier
from muster.options.tiers.replica.inner_states import InnerStates
from muster.options.tiers.replica.state_file import HEADER_BYTES, StateHeader, seal
from muster.options.tiers.replica.tier import Held, TierName
from muster.replica.frontends.phase_states import Found, StateId
from muster.replica.group.board import InnerGroup, LocalBoard
from muster.replica.rendezvous import Outside, Rendezvous
from muster.replica.rounds.seen_rounds import SeenRounds
from muster.replica.states.state_buffer import PlainArrays
from muster.replica.statistics.metrics import Metrics
from muster.replica.store.transport import StoreUnavailableError
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


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What the training comes to if nothing disturbs it."""
    return undisturbed(tmp_path_factory.mktemp("undisturbed"), END)


def files(folder: Path) -> list[Path]:
    """The files of states, oldest first."""
    return sorted(path for path in folder.rglob("*-*-*") if path.is_file())


def goes_on(lives: Lives, expected: bytes, place: tuple[int, int], tier: str | None) -> Life:
    """A second process continues at `place`, from `tier`; nothing was lost on the way but time."""
    life = lives.begin(attempt=2)
    assert (life.place, life.tier) == (place, tier)
    ends_as_undisturbed(life, expected)
    return life


def ends_as_undisturbed(life: Life, expected: bytes) -> None:
    life.train(END - life.optimizer.position)
    assert life.bits == expected


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


def test_a_damaged_file_falls_back_to_the_state_before(
    tmp_path: Path, expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    for damage in (cut, flip, flip_the_header, empty, other_text):
        caplog.clear()
        lives = Lives(tmp_path / damage.__name__, CheckpointTiers(memory_every=10))
        lives.begin().train(24)
        damage(files(lives.disk)[-1])
        goes_on(lives, expected, (0, 10), "disk")
        assert "event=damaged-inner-state tier=disk round=0 step=20" in caplog.text, damage
        assert "event=resumed tier=disk round=0 step=10" in caplog.text, damage


def test_without_a_whole_state_the_phase_is_repeated(tmp_path: Path, expected: bytes) -> None:
    lives = Lives(tmp_path)
    lives.begin().train(STEPS + 24)
    for path in files(lives.disk) + files(lives.run.root / "inner-states"):
        cut(path)
    goes_on(lives, expected, (1, 0), None)


def test_a_process_that_is_killed_in_the_middle_of_a_save_leaves_the_states_before(
    tmp_path: Path, expected: bytes
) -> None:
    lives = Lives(tmp_path, CheckpointTiers(memory_every=10))
    lives.begin().train(20)
    newest = files(lives.disk)[-1]
    newest.rename(newest.parent / "unfinished")
    cut(newest.parent / "unfinished")
    goes_on(lives, expected, (0, 10), "disk")
    assert not list(lives.disk.rglob("unfinished"))


def test_a_disk_that_takes_nothing_costs_no_step(
    tmp_path: Path, expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path)
    tmp_path.joinpath("disk").write_text("a file where the folder would be")
    assert lives.begin().train(24).counts[TierName.DISK].failed == 2
    assert "event=inner-state-failed tier=disk round=0 step=10" in caplog.text
    goes_on(lives, expected, (0, 20), "s3")


def test_a_memory_service_that_is_down_at_the_start_leaves_the_disk(
    tmp_path: Path, expected: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    with memory_service() as service:
        monkeypatch.setenv(memory_tier.ENV_ENDPOINT, service.url)
        service.status = 503
        lives = Lives(tmp_path / "down")
        lives.begin().train(24)
        assert "event=no-memory-tier" in caplog.text
        goes_on(lives, expected, (0, 20), "disk")
    # Now nothing answers at its address.
    lives = Lives(tmp_path / "gone")
    lives.begin().train(12)
    assert lives.begin(attempt=2).tier == "disk"


def test_a_memory_service_that_fails_later_lets_the_disk_take_the_state(
    tmp_path: Path, expected: bytes, service: MemoryService, caplog: pytest.LogCaptureFixture
) -> None:
    for status in (500, 503, 404, 400):
        caplog.clear()
        service.namespaces.clear()
        service.shards.clear()
        lives = Lives(tmp_path / str(status), CheckpointTiers(memory_every=10))
        life = lives.begin().train(12)
        service.status = status
        life.train(12)
        assert "event=inner-state-failed tier=memory round=0 step=20" in caplog.text, status
        service.status = None
        # The disk has the newer state; the service still has the one before.
        goes_on(lives, expected, (0, 20), "disk")


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


def test_garbage_from_the_memory_service_is_not_used(tmp_path: Path, expected: bytes, service: MemoryService) -> None:
    for name, garbage in {"none": b"", "a pickle": b"\x80\x04cos\nsystem\n", "text": b"x" * 100_000}.items():
        lives = Lives(tmp_path / name)
        lives.begin().train(24)
        service.rewrite = lambda _, garbage=garbage: garbage  # type: ignore[misc]
        second = lives.begin(attempt=2)
        assert (second.place, second.tier) == ((0, 20), "s3"), name
        service.rewrite = lambda body: body
        ends_as_undisturbed(second, expected)


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
    assert life.counts[TierName.MEMORY].left_out == 3
    # The other tier has a thread of its own.
    s3 = life.counts[TierName.S3]
    wait_until("the state in S3", lambda: s3.saved + s3.left_out == 2)
    answers.set()
    life.saved()
    assert len(service.shards) == 1


def test_a_throttled_s3_costs_states_and_no_step(
    tmp_path: Path, expected: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    def throttled(key: str) -> None:
        if key.startswith("inner-states/"):
            raise StoreUnavailableError(key, 8, "503 Slow Down")

    lives = Lives(tmp_path, CheckpointTiers(s3_every=1))
    lives.store = FaultyStore(lives.run.store, Faults(before_create=throttled))
    assert lives.begin().train(20).counts[TierName.S3].failed == 20
    # Not a line for each of them.
    assert caplog.text.count("event=inner-state-failed tier=s3") == 5
    lives.store = None
    goes_on(lives, expected, (0, 0), None)


def rewritten(path: Path, **changes: object) -> None:
    """Store a state again, whole, with other fields in its header."""
    body = memoryview(bytearray(path.read_bytes()))
    header = StateHeader.from_json(bytes(body[:HEADER_BYTES]), "").model_copy(update=changes)
    seal(body, header)
    held = Held(header.id, header.epoch)
    path.unlink()
    path.with_name(f"{held.name}{path.suffix}").write_bytes(body)


def test_a_state_after_a_round_that_the_run_has_not_committed_is_not_used(
    tmp_path: Path, expected: bytes, caplog: pytest.LogCaptureFixture
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
    ends_as_undisturbed(third, expected)


def test_a_state_of_another_is_not_used(tmp_path: Path, expected: bytes, caplog: pytest.LogCaptureFixture) -> None:
    cases: dict[str, tuple[dict[str, object], str]] = {
        "a later claim": ({"epoch": 7}, "claim 7 has saved it, and this process holds claim 2"),
        "another run": ({"run": "another"}, "it belongs to"),
        "another rank": ({"rank": 1}, "it belongs to"),
        "another stack": ({"rendezvous": "s3://other/rendezvous/test/"}, "it belongs to"),
        "another group": ({"parts": 2}, "it belongs to"),
    }
    for name, (changes, reason) in cases.items():
        caplog.clear()
        lives = Lives(tmp_path / name)
        lives.begin().train(24)
        rewritten(files(lives.disk)[-1], **changes)
        goes_on(lives, expected, (0, 20), "s3")
        assert reason in caplog.text, name


def test_the_state_of_a_contribution_that_does_not_count_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lives = Lives(tmp_path, keeps_own_state=False)
    lives.begin().train(STEPS)
    # Another process of the rank has contributed to the round as well, and the run has counted that.
    monkeypatch.setattr(SeenRounds, "counted", lambda *_: 5)
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
            context = replace(run.context(), group=InnerGroup(index, size, index), board=board)
            rendezvous = Rendezvous.open(context, 0, attempt, Metrics(), Outside(local_states=disk / str(index)))
            link = ThreadLink(shared, index)
            states = InnerStates(rendezvous, link, PlainArrays(), STEPS, CheckpointTiers(memory_every=10))
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
    run, disk = Run(tmp_path / "run", replicas=1, min_participants=1), tmp_path / "disk"
    group(run, disk, saved)
    assert group(run, disk, newest, 2) == [(0, ((0, 20), 200)), (1, ((0, 20), 201))]
    # What one of them has lost is no state of the replica.
    flip(files(disk / "1")[-1])
    assert group(run, disk, newest, 3) == [(0, ((0, 10), 100)), (1, ((0, 10), 101))]
    for path in files(disk / "0"):
        path.unlink()
    assert group(run, disk, newest, 4) == [(0, None), (1, None)]


def test_states_of_two_processes_with_other_claims_are_not_mixed(tmp_path: Path) -> None:
    run, disk = Run(tmp_path / "run", replicas=1, min_participants=1), tmp_path / "disk"
    group(run, disk, saved)
    group(run, disk, saved, 2)
    # Process 1 has lost the newest state of the second claim, and so has one of the first.
    files(disk / "1")[-1].unlink()
    assert group(run, disk, newest, 3) == [(0, ((0, 10), 100)), (1, ((0, 10), 101))]
