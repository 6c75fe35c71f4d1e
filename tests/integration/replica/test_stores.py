"""What every store promises, kept by a directory and by S3 (the embedded cloud, over TLS with its own authority)."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from muster.replica.store import s3_store
from muster.replica.store.local_store import LocalStore
from muster.replica.store.s3_store import S3ObjectStore
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError, Store
from tests.support.workshop import Workshop, turn_to


@pytest.fixture(params=["directory", "S3", "S3 in bulk"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    if request.param == "directory":
        yield LocalStore(tmp_path)
        return
    workshop: Workshop = request.getfixturevalue("workshop")
    turn_to(monkeypatch, workshop.cloud)
    if request.param == "S3 in bulk":
        monkeypatch.setattr(s3_store, "BULK_BYTES", 1)
    in_s3 = S3ObjectStore(workshop.bucket, f"rendezvous/{workshop.name('run')}/")
    yield in_s3
    assert in_s3._bulk is None or in_s3._bulk.are_possible, "the other client made the large requests"


def test_what_is_created_is_read_whole_and_in_part(store: Store) -> None:
    body, before = bytes(range(256)) * 8, time.time()
    store.create("a/b", body)
    assert store.exists("a/b")
    # S3 counts whole seconds.
    assert before - 1 <= store.read("a/b").created_at <= time.time()
    for start, stop in [(0, None), (0, 4), (3, 1500), (2000, None), (2000, 9999), (2048, 9999), (5000, 6000)]:
        part = store.read("a/b", start, stop)
        assert (bytes(part.body), part.size) == (body[start:stop], 2048), (start, stop)
        assert part.created_at == store.read("a/b").created_at
        if stop is not None:
            assert b"".join(map(bytes, store.stream("a/b", start, stop))) == body[start:stop], (start, stop)
    store.create("empty", b"")
    part = store.read("empty", 0, 4096)
    assert (bytes(part.body), part.size) == (b"", 0)


def test_what_is_missing_is_said_to_be_missing(store: Store) -> None:
    assert not store.exists("nothing")
    with pytest.raises(ObjectMissingError, match=r"nothing does not exist\."):
        store.read("nothing")
    with pytest.raises(ObjectMissingError):
        store.read("nothing", 0, 10)
    with pytest.raises(ObjectMissingError):
        list(store.stream("nothing", 0, 10))


def test_keys_are_listed_in_order_and_what_is_deleted_is_gone(store: Store) -> None:
    for key in ("a/2/y", "a/1/x", "a/3/z", "ab/1", "b"):
        store.create(key, b"")
    assert store.keys("a/", "b") == ["a/1/x", "a/2/y", "a/3/z"]
    assert store.keys("a/", "a/3") == ["a/1/x", "a/2/y"]
    assert store.keys("nothing/", "z") == []
    # What was gone is no error.
    for keys in (["a/1/x", "a/3/z", "a/4"], ["a/1/x"], []):
        store.delete(keys)
    assert store.keys("a/", "b") == ["a/2/y"]
    with pytest.raises(ObjectMissingError):
        store.read("a/1/x")


def test_an_object_is_created_once(store: Store) -> None:
    for first, again in ((store.create, store.create), (store.upload, store.upload)):
        key = f"once/{first.__name__}"
        first(key, b"first")
        with pytest.raises(ObjectExistsError):
            again(key, b"second")
        assert bytes(store.read(key).body) == b"first"

    # Of many that create it at once, one wins.
    def create(index: int) -> bool:
        try:
            store.create("race", str(index).encode())
        except ObjectExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(create, range(16)))
    assert won.count(True) == 1
    assert bytes(store.read("race").body) == str(won.index(True)).encode()


def test_what_is_large_is_uploaded_in_parts(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    part = 5 * 2**20  # the least that S3 takes
    monkeypatch.setattr(s3_store, "PART_BYTES", part)
    body = np.random.default_rng(0).integers(0, 256, 2 * part + 3, np.uint8)
    store.upload("large", body.data)
    assert store.read("large").body == body.data
    assert store.read("large", part - 2, part + 2).body == body.data[part - 2 : part + 2]


def test_an_object_of_any_size_is_written_piece_by_piece_and_may_replace_another(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Parts as small as S3 allows.
    monkeypatch.setattr(s3_store, "PART_BYTES", 5 * 2**20)
    for megabytes in (0, 1, 13):
        for seed in range(2):
            pieces = [np.random.default_rng((seed, piece)).bytes(2**20) for piece in range(megabytes)]
            writer = store.writer("large/one")
            for piece in pieces:
                writer.write(piece)
            writer.close()
            found = store.read("large/one")
            assert found.size == megabytes * 2**20
            assert bytes(found.body) == b"".join(pieces), megabytes
        discarded = store.writer("large/two")
        for _ in range(megabytes):
            discarded.write(b"x" * 2**20)
        discarded.discard()
        assert not store.exists("large/two"), megabytes
