"""Ranges that are read ahead: each is handed out once, and everything else comes from the store."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.replica.rounds.prefetch import room
from muster.replica.store.local_store import LocalStore
from muster.replica.store.read_ahead import ByteRange, ReadAhead, is_reading
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire.blocks import CONNECTIONS
from muster.replica.wire.stream_decoder import ByteStream
from tests.support.peers import Faults
from tests.support.prefetching import WatchedStore
from tests.support.waiting import wait_until

KEY = "snapshots/00000/00000002-shared"
BODY = bytes(range(100))
FIRST, REST = ByteRange(KEY, 0, 40), ByteRange(KEY, 40, 101)


@pytest.fixture
def store(tmp_path: Path) -> WatchedStore:
    LocalStore(tmp_path).create(KEY, BODY)
    return WatchedStore(LocalStore(tmp_path))


@pytest.fixture
def ahead(store: WatchedStore) -> Iterator[ReadAhead]:
    ahead = ReadAhead(store)
    ahead.allow(1_000)
    yield ahead
    ahead.close()
    assert not is_reading()


def got(ahead: ReadAhead, wanted: ByteRange) -> bytes:
    return b"".join(bytes(piece) for piece in ahead.stream(wanted.key, wanted.start, wanted.stop))


def test_a_range_is_handed_out_once_and_then_read_again(store: WatchedStore, ahead: ReadAhead) -> None:
    for wanted in (FIRST, REST):
        assert ahead.fetch(wanted)
    ahead.settle()
    assert got(ahead, FIRST) + got(ahead, REST) == BODY
    assert store.read_keys == [KEY, KEY]
    # Its reader found damage, or another reader came. What a reader has asked for is not read ahead any more.
    assert got(ahead, FIRST) == BODY[:40]
    assert ahead.fetch(FIRST)
    ahead.settle()
    assert len(store.read_keys) == 3
    # Nor is another range that was not read ahead: it comes from the store.
    assert got(ahead, ByteRange(KEY, 0, 39)) == BODY[:39]


def test_a_range_that_could_not_be_read_is_read_again_by_either(store: WatchedStore, ahead: ReadAhead) -> None:
    missing, later = (ByteRange(f"reduced/0000{shard}/00000003-000", 0, 5) for shard in (0, 1))
    for wanted in (missing, later):
        ahead.fetch(wanted)
    ahead.settle()
    with pytest.raises(ObjectMissingError):
        got(ahead, missing)
    store.create(later.key, b"later")
    ahead.fetch(later)
    ahead.settle()
    before = len(store.read_keys)
    assert got(ahead, later) == b"later"
    assert len(store.read_keys) == before


def test_no_more_is_held_than_there_is_room_for(store: WatchedStore, ahead: ReadAhead) -> None:
    ahead.allow(100)
    assert ahead.fetch(FIRST)
    fetched = threading.Thread(target=ahead.fetch, args=(REST,))
    fetched.start()
    ahead.settle()
    assert len(store.read_keys) == 1, "61 bytes do not fit beside 40"
    got(ahead, FIRST)
    fetched.join()
    assert got(ahead, REST) == BODY[40:]
    assert not ahead.fetch(ByteRange(KEY, 0, 101)), "it never fits"


def test_all_that_was_read_ahead_may_be_held_at_once(ahead: ReadAhead) -> None:
    """A mean begins with the contributions of all its members before it adds their first values."""
    for start in range(len(BODY)):
        assert ahead.fetch(ByteRange(KEY, start, start + 1))
    ahead.settle()
    streams = [ahead.stream(KEY, start, start + 1) for start in range(len(BODY))]
    begun: list[bytes] = []
    # In a thread, so that the test ends if one waits for another.
    reader = threading.Thread(target=lambda: begun.extend(bytes(next(stream)) for stream in streams), daemon=True)
    reader.start()
    reader.join(10)
    assert b"".join(begun) == BODY


def test_what_is_left_half_read_makes_room_once_it_is_closed(ahead: ReadAhead) -> None:
    ahead.allow(100)
    ahead.fetch(FIRST)
    stream = ByteStream(ahead.stream(FIRST.key, FIRST.start, FIRST.stop))
    assert stream.take(1) == BODY[:1]
    fetched: list[bool] = []
    waiting = threading.Thread(target=lambda: fetched.append(ahead.fetch(REST)), daemon=True)
    waiting.start()
    stream.close()
    waiting.join(10)
    assert fetched == [True]


def test_closing_frees_what_is_held_and_ends_a_wait_for_room(store: WatchedStore, ahead: ReadAhead) -> None:
    ahead.allow(100)
    ahead.fetch(FIRST)
    ahead.drop()
    assert ahead.fetch(REST), "what is dropped makes room at once"
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(ahead.fetch(FIRST)))
    waiting.start()
    ahead.close()
    waiting.join()
    assert answers == [False]
    before = len(store.read_keys)
    assert got(ahead, REST) == BODY[40:]
    assert len(store.read_keys) == before + 1, "what was held is gone"
    assert not ahead.in_use


def test_a_request_that_hangs_is_noticed(tmp_path: Path) -> None:
    LocalStore(tmp_path).create(KEY, BODY)
    begun, free = threading.Event(), threading.Event()

    def hang(_: str) -> None:
        begun.set()
        free.wait()

    ahead = ReadAhead(WatchedStore(LocalStore(tmp_path), Faults(before_read=hang)))
    ahead.allow(1_000)
    ahead.fetch(FIRST)
    assert begun.wait(60)
    ahead.close()
    assert is_reading()
    free.set()
    wait_until("the end of the request", lambda: not is_reading())


def test_the_room_is_half_of_what_is_free_beside_the_state(tmp_path: Path) -> None:
    machine, container = tmp_path / "meminfo", tmp_path / "cgroup"
    container.mkdir()
    machine.write_text("MemTotal: 9 kB\nMemAvailable: 1000 kB\n")
    free = 1000 * 1024
    assert room(0, 1, machine, container) == free // 2
    assert room(1_000, 2, machine, container) == (free // 2 - 16_000) // 2
    assert room(10**9, 1, machine, container) == 0
    (container / "memory.max").write_text("max\n")
    (container / "memory.current").write_text("5\n")
    assert room(0, 1, machine, container) == free // 2
    (container / "memory.max").write_text("10005\n")
    assert room(0, 1, machine, container) == 5_000
    assert room(0, 1, tmp_path / "nothing", tmp_path) == 2**29


def test_who_waits_for_what_is_read_ahead_is_woken_when_it_is_closed(tmp_path: Path) -> None:
    arrives = threading.Event()
    LocalStore(tmp_path).create(KEY, BODY)
    ahead = ReadAhead(WatchedStore(LocalStore(tmp_path), Faults(before_read=lambda _: arrives.wait(30))))
    ahead.allow(1_000)
    for start in range(3 * CONNECTIONS):
        assert ahead.fetch(ByteRange(KEY, start, start + 1))
    finder = threading.Thread(target=ahead.settle, daemon=True)
    finder.start()
    wait_until("its wait", finder.is_alive)
    ahead.close()
    arrives.set()
    finder.join(30)
    assert not finder.is_alive()
