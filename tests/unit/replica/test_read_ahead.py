"""A store whose objects are read ahead: each range is handed out once, and everything else passes through."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from muster.replica.recovery.free_room import room
from muster.replica.store.local_store import LocalStore
from muster.replica.store.read_ahead import ByteRange, ReadAhead, is_reading
from muster.replica.store.transport import ObjectMissingError, Store
from muster.replica.wire.blocks import CONNECTIONS
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
    assert store.read_keys == [KEY, KEY]
    assert got(ahead, FIRST) + got(ahead, REST) == BODY
    assert len(store.read_keys) == 2
    assert got(ahead, FIRST) == BODY[:40], "its reader found damage, or another reader came"
    assert len(store.read_keys) == 3


def test_a_range_that_was_not_read_ahead_is_read_from_the_store(store: WatchedStore, ahead: ReadAhead) -> None:
    ahead.fetch(FIRST)
    assert got(ahead, ByteRange(KEY, 0, 39)) == BODY[:39]


def test_what_a_reader_has_asked_for_is_not_read_ahead_any_more(store: WatchedStore, ahead: ReadAhead) -> None:
    assert not ahead.in_use
    got(ahead, FIRST)
    assert ahead.fetch(FIRST)
    ahead.settle()
    assert ahead.in_use
    assert store.read_keys == [KEY]


def test_a_range_that_could_not_be_read_is_read_again_by_either(store: WatchedStore, ahead: ReadAhead) -> None:
    missing = ByteRange("reduced/00000/00000003-000", 0, 5)
    ahead.fetch(missing)
    ahead.settle()
    with pytest.raises(ObjectMissingError):
        got(ahead, missing)
    other = ByteRange("reduced/00001/00000003-000", 0, 5)
    ahead.fetch(other)
    ahead.settle()
    store.create(other.key, b"later")
    ahead.fetch(other)
    ahead.settle()
    before = len(store.read_keys)
    assert got(ahead, other) == b"later"
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


def test_closing_frees_what_is_held_and_ends_a_wait_for_room(store: WatchedStore, ahead: ReadAhead) -> None:
    ahead.allow(100)
    ahead.fetch(FIRST)
    answers: list[bool] = []
    waiting = threading.Thread(target=lambda: answers.append(ahead.fetch(REST)))
    waiting.start()
    ahead.close()
    waiting.join()
    assert answers == [False]
    assert got(ahead, FIRST) == BODY[:40]
    assert len(store.read_keys) == 2, "what was held is gone"


def test_what_is_dropped_makes_room_at_once(store: WatchedStore, ahead: ReadAhead) -> None:
    ahead.allow(100)
    ahead.fetch(FIRST)
    ahead.drop()
    assert ahead.fetch(REST)
    assert got(ahead, REST) == BODY[40:]


def test_what_the_scout_has_found_is_not_asked_again_until_the_end(tmp_path: Path) -> None:
    inner = LocalStore(tmp_path)
    inner.create("commits/00000001.json", b"{}")
    ahead = ReadAhead(inner)
    scout = ahead.scout()
    assert scout.exists("commits/00000001.json")
    assert bytes(scout.read("commits/00000001.json").body) == b"{}"
    (tmp_path / "commits" / "00000001.json").unlink()
    assert ahead.exists("commits/00000001.json")
    assert bytes(ahead.read("commits/00000001.json").body) == b"{}"
    assert not ahead.exists("commits/00000002.json")
    ahead.close()
    assert not ahead.exists("commits/00000001.json")


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


def test_every_call_of_a_store_passes_through() -> None:
    """A call with a body of its own in `Store` would otherwise lose what the store behind makes of it."""
    of_a_store = {name for name, member in vars(Store).items() if callable(member) and not name.startswith("_")}
    passed = {name for kind in ReadAhead.__mro__ if kind is not Store for name in vars(kind)}
    assert of_a_store <= passed


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


def test_after_its_end_nothing_is_remembered(store: WatchedStore, ahead: ReadAhead) -> None:
    got(ahead, FIRST)
    ahead.close()
    got(ahead, REST)
    assert not ahead.in_use
