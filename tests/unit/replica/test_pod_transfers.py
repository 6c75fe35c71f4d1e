"""What a pod's first process and its worker copy from S3 and to it."""

from __future__ import annotations

import errno
import os
import tarfile
import threading
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pytest

from muster.contract.hyperpod.pod_work import PodChannel
from muster.replica.errors import InputError, StoppedError
from muster.replica.pod import objects as objects_module
from muster.replica.pod.archives import upload_archives
from muster.replica.pod.channels import download_channels
from muster.replica.pod.kept_checkpoints import KeptCheckpoints
from muster.replica.pod.objects import Found, Objects
from muster.replica.store.transport import (
    ObjectExistsError,
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.pod_s3 import PodS3, pod_s3

OLD, NEW = 1_000_000_000.0, 4_000_000_000.0


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[PodS3]:
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    with pod_s3() as served:
        for name, value in served.environment.items():
            monkeypatch.setenv(name, value)
        yield served


def found(s3: PodS3, key: str) -> Found:
    stored = s3.objects[key]
    return Found("bucket", key, len(stored.body), stored.etag, stored.at)


def download(s3: PodS3, tmp_path: Path) -> bytes:
    Objects().download(found(s3, "key"), tmp_path / "file")
    return (tmp_path / "file").read_bytes()


@pytest.mark.parametrize("cuts", [[0], [2, 1, 3], [5]])
def test_a_download_continues_where_its_connection_broke(s3: PodS3, tmp_path: Path, cuts: list[int]) -> None:
    s3.put("key", b"0123456789")
    s3.cut["key"] = list(cuts)
    assert download(s3, tmp_path) == b"0123456789"
    assert s3.count("GET", "key") == len(cuts) + 1


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(s3: PodS3, tmp_path: Path) -> None:
    s3.put("key", b"old old old")
    s3.cut["key"] = [4]

    def replaced_at_second_request() -> None:
        s3.before["GET", "key"] = lambda: s3.put("key", b"new")

    s3.before["GET", "key"] = replaced_at_second_request
    assert download(s3, tmp_path) == b"new"


def test_bytes_without_their_checksum_are_no_file(s3: PodS3, tmp_path: Path) -> None:
    s3.put("key", b"0123456789", wrong=True)
    with pytest.raises(StoreUnavailableError, match="its checksum does not match its bytes"):
        download(s3, tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_answer_that_always_breaks_ends_after_a_bounded_number_of_tries(s3: PodS3, tmp_path: Path) -> None:
    s3.put("key", b"0123456789")
    s3.cut["key"] = [0] * 100
    with pytest.raises(StoreUnavailableError):
        download(s3, tmp_path)
    assert s3.count("GET", "key") == objects_module.TRIES


def test_a_missing_and_a_denied_object_are_different_errors(s3: PodS3, tmp_path: Path) -> None:
    s3.put("key", b"1")
    item = found(s3, "key")
    s3.objects.clear()
    with pytest.raises(ObjectMissingError):
        Objects().download(item, tmp_path / "file")
    s3.denied.add("key")
    with pytest.raises(StoreDeniedError, match="s3://bucket/key"):
        Objects().download(item, tmp_path / "file")


def test_a_pod_without_credentials_says_what_it_needs(s3: PodS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(StoreDeniedError, match="pod identity association"):
        Objects().put("s3://bucket/key", b"")


def test_only_one_of_two_new_objects_is_written(s3: PodS3) -> None:
    Objects().put("s3://bucket/key", b"first", new=True)
    with pytest.raises(ObjectExistsError):
        Objects().put("s3://bucket/key", b"second", new=True)
    assert s3.body("key") == b"first"


def test_a_large_file_is_written_in_parts_and_none_is_left(
    s3: PodS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects_module, "PART_BYTES", 4)
    path = tmp_path / "large"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        assert Objects().upload(file, 10, "s3://bucket/key", lambda: True)
        assert Objects().upload(file, 10, "s3://bucket/other", lambda: False) is None
    assert s3.body("key") == b"0123456789"
    assert "other" not in s3.objects
    assert not s3.parts


def channels(s3: PodS3, tmp_path: Path, *named: PodChannel, stop: threading.Event | None = None) -> Path:
    (tmp_path / "folder").mkdir(exist_ok=True)
    download_channels(Objects(stop or threading.Event()), named, tmp_path, tmp_path / "folder")
    return tmp_path / "input" / "data"


def test_a_channel_has_every_object_below_its_prefix(s3: PodS3, tmp_path: Path) -> None:
    s3.put("data/train/a.bin", b"a")
    s3.put("data/train/deep/b.bin", b"b")
    s3.put("data/train/", b"")
    s3.put("packages/abc.zip", b"zip")
    place = channels(
        s3,
        tmp_path,
        PodChannel(name="train", uri="s3://bucket/data/train/"),
        PodChannel(name="muster-package", uri="s3://bucket/packages/abc.zip"),
    )
    files = {path.relative_to(place).as_posix(): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    assert files == {"train/a.bin": b"a", "train/deep/b.bin": b"b", "muster-package/abc.zip": b"zip"}


def test_a_restarted_container_downloads_only_what_is_missing_or_newer(s3: PodS3, tmp_path: Path) -> None:
    channel = PodChannel(name="train", uri="s3://bucket/data/")
    for name in ("same", "newer", "lost"):
        s3.put(f"data/{name}", name.encode())
    place = channels(s3, tmp_path, channel) / "train"
    s3.put("data/newer", b"newest")
    (place / "lost").unlink()
    s3.requests.clear()
    channels(s3, tmp_path, channel)
    assert sorted(key for method, key in s3.requests if method == "GET" and key) == ["data/lost", "data/newer"]
    assert {path.name: path.read_bytes() for path in place.iterdir()} == {
        "same": b"same",
        "newer": b"newest",
        "lost": b"lost",
    }


def test_no_file_moves_from_one_mount_of_the_pod_to_another(
    s3: PodS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folders below /opt/ml are mounts of their own: Linux renames nothing from one of them to another."""
    replace = Path.replace

    def mount(path: Path) -> str:
        return path.relative_to(tmp_path).parts[0]

    def replaced(self: Path, target: Path) -> Path:
        if mount(self) != mount(Path(target)):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", replaced)
    s3.put("data/deep/a", b"a")
    s3.put("checkpoints/r0/b", b"b")
    place = channels(s3, tmp_path, PodChannel(name="train", uri="s3://bucket/data/"))
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["a"]
    assert kept(tmp_path).restore() == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["b"]


def test_a_name_that_no_file_can_have_is_said(s3: PodS3, tmp_path: Path) -> None:
    s3.put(f"data/{'é' * 128}/x", b"")
    with pytest.raises(InputError, match="cannot be a file"):
        channels(s3, tmp_path, PodChannel(name="train", uri="s3://bucket/data/"))


def test_all_that_is_wrong_with_channels_is_said_at_once(s3: PodS3, tmp_path: Path) -> None:
    s3.put("a/../../etc/passwd", b"")
    s3.put("b/x", b"")
    s3.put("b/x/y", b"")
    with pytest.raises(InputError) as caught:
        channels(
            s3,
            tmp_path,
            PodChannel(name="none", uri="s3://bucket/nothing/"),
            PodChannel(name="out", uri="s3://bucket/a/"),
            PodChannel(name="both", uri="s3://bucket/b/"),
        )
    assert len(caught.value.problems) == 3
    assert [problem.split()[2].rstrip(":") for problem in caught.value.problems] == ["none", "out", "both"]


def test_more_than_the_volume_holds_is_said_before_anything_is_downloaded(
    s3: PodS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.put("data/a", b"12345")
    monkeypatch.setattr("shutil.disk_usage", lambda _: os.statvfs_result((0,) * 10) and type("U", (), {"free": 4})())
    with pytest.raises(InputError, match=r"mount a larger volume"):
        channels(s3, tmp_path, PodChannel(name="train", uri="s3://bucket/data/"))
    assert s3.count("GET", "data/a") == 0


def test_a_pod_that_is_to_end_downloads_no_further(s3: PodS3, tmp_path: Path) -> None:
    stop = threading.Event()
    stop.set()
    s3.put("data/a", b"12345")
    with pytest.raises(StoppedError):
        channels(s3, tmp_path, PodChannel(name="train", uri="s3://bucket/data/"), stop=stop)


def kept(tmp_path: Path) -> KeptCheckpoints:
    (tmp_path / "folder").mkdir(exist_ok=True)
    return KeptCheckpoints(Objects(), tmp_path / "checkpoints", "s3://bucket/checkpoints/r0/", tmp_path / "folder")


def test_only_what_has_changed_is_copied(s3: PodS3, tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    (place / "a").write_bytes(b"1")
    (place / "b").write_bytes(b"1")
    (place / "half.tmp").write_bytes(b"not yet")
    checkpoints = kept(tmp_path)
    assert checkpoints.keep() == 2
    assert checkpoints.keep() == 0
    (place / "a").write_bytes(b"22")
    assert checkpoints.keep() == 1
    (place / "b").unlink()
    assert checkpoints.keep() == 1
    assert {key: item.body for key, item in s3.objects.items()} == {"checkpoints/r0/a": b"22"}


def test_a_file_that_changes_while_it_is_read_is_left_for_the_next_look(
    s3: PodS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    (place / "a").write_bytes(b"1")
    checkpoints = kept(tmp_path)
    read = os.pread

    def changed_meanwhile(number: int, size: int, offset: int) -> bytes:
        body = read(number, size, offset)
        (place / "a").write_bytes(b"longer")
        return body

    monkeypatch.setattr(os, "pread", changed_meanwhile)
    assert checkpoints.keep() == 0
    assert not s3.objects
    monkeypatch.setattr(os, "pread", read)
    assert checkpoints.keep() == 1
    assert s3.body("checkpoints/r0/a") == b"longer"


def test_a_new_pod_restores_everything_and_copies_nothing_back(s3: PodS3, tmp_path: Path) -> None:
    s3.put("checkpoints/r0/muster-trainer-0.ckpt", b"state")
    s3.put("checkpoints/r01/other", b"another rank's")
    checkpoints = kept(tmp_path)
    assert checkpoints.restore() == 1
    assert (tmp_path / "checkpoints" / "muster-trainer-0.ckpt").read_bytes() == b"state"
    assert checkpoints.keep() == 0


@pytest.mark.parametrize("at", [OLD, NEW])
def test_a_restart_in_the_same_pod_keeps_what_was_not_copied(s3: PodS3, tmp_path: Path, at: float) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    (place / "a").write_bytes(b"copied")
    kept(tmp_path).keep()
    (place / "a").write_bytes(b"newer than its copy")
    assert kept(tmp_path).restore() == 0
    # Unless another pod has written it since.
    s3.put("checkpoints/r0/a", b"another pod's", at=at)
    assert kept(tmp_path).restore() == (1 if at == NEW else 0)


def test_a_restart_takes_what_another_pod_has_written_since(s3: PodS3, tmp_path: Path) -> None:
    place = tmp_path / "checkpoints"
    place.mkdir()
    (place / "a").write_bytes(b"first")
    kept(tmp_path).keep()
    s3.put("checkpoints/r0/a", b"by the pod that had this number since", at=OLD)
    assert kept(tmp_path).restore() == 1
    assert (place / "a").read_bytes() == b"by the pod that had this number since"


def test_the_archives_are_those_of_a_training_job(s3: PodS3, tmp_path: Path) -> None:
    (tmp_path / "output" / "data").mkdir(parents=True)
    (tmp_path / "output" / "data" / "manifest.json").write_text("{}")
    (tmp_path / "model").mkdir()
    stored = upload_archives(Objects(), tmp_path, "s3://bucket/output/run", "muster-run-r0-a1")
    assert stored == ["s3://bucket/output/run/muster-run-r0-a1/output/output.tar.gz"]
    with tarfile.open(fileobj=BytesIO(s3.body("output/run/muster-run-r0-a1/output/output.tar.gz"))) as tar:
        assert tar.getnames() == ["manifest.json"]
