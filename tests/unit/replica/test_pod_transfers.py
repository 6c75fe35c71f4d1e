"""What a pod's first process and its worker copy from S3 and to it."""

import errno
import os
import tarfile
import threading
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from muster.contract.exits import ReplicaExit
from muster.options.hyperpod.contract.pod_work import PodChannel
from muster.options.hyperpod.replica import objects as objects_module
from muster.options.hyperpod.replica.channels import download_channels
from muster.options.hyperpod.replica.ending import end_of
from muster.options.hyperpod.replica.kept_checkpoints import KeptCheckpoints
from muster.options.hyperpod.replica.objects import Found, Objects
from muster.options.hyperpod.replica.worker import upload_archives
from muster.replica.replica_errors import InputError, StoppedError
from muster.replica.store.transport import (
    ObjectMissingError,
    StoreDeniedError,
    StoreUnavailableError,
)
from tests.support.s3_server import S3Server, answer

OLD, NEW = 1_000_000_000.0, 4_000_000_000.0


def found(s3: S3Server, key: str) -> Found:
    stored = s3.objects[key]
    return Found("bucket", key, len(stored.body), stored.etag, stored.modified_at.timestamp())


def download(s3: S3Server, tmp_path: Path) -> bytes:
    Objects().download(found(s3, "key"), tmp_path / "file")
    return (tmp_path / "file").read_bytes()


def test_an_object_that_is_replaced_while_it_is_read_is_read_again(s3: S3Server, tmp_path: Path) -> None:
    s3.put("key", b"old old old")
    s3.cut["key"] = [4]

    def replaced_at_second_request() -> None:
        s3.before["GET", "key"] = lambda: s3.put("key", b"new")

    s3.before["GET", "key"] = replaced_at_second_request
    assert download(s3, tmp_path) == b"new"


def test_bytes_without_their_checksum_are_no_file(s3: S3Server, tmp_path: Path) -> None:
    s3.put("key", b"0123456789", wrong=True)
    with pytest.raises(StoreUnavailableError, match="checksum"):
        download(s3, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_tag_that_is_no_md5_is_not_taken_for_a_checksum(s3: S3Server, tmp_path: Path) -> None:
    tag = f'"{"z" * 32}"'
    s3.script(answer(200, b"0123456789", ETag=tag))
    Objects().download(Found("bucket", "key", 10, tag, NEW), tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"0123456789"


def test_a_download_continues_where_it_broke_a_bounded_number_of_times(s3: S3Server, tmp_path: Path) -> None:
    s3.put("key", b"0123456789")
    for cuts in ([0], [2, 1, 3], [5]):
        s3.requests.clear()
        s3.cut["key"] = list(cuts)
        assert download(s3, tmp_path) == b"0123456789"
        assert s3.count("GET", "key") == len(cuts) + 1
    s3.requests.clear()
    s3.cut["key"] = [0] * 100
    with pytest.raises(StoreUnavailableError):
        download(s3, tmp_path)
    assert s3.count("GET", "key") == objects_module.TRIES


def test_a_missing_and_a_denied_object_are_different_errors(s3: S3Server, tmp_path: Path) -> None:
    s3.put("key", b"1")
    item = found(s3, "key")
    Objects().delete("s3://bucket/key")
    with pytest.raises(ObjectMissingError):
        Objects().download(item, tmp_path / "file")
    s3.denied.add("key")
    with pytest.raises(StoreDeniedError, match="s3://bucket/key"):
        Objects().download(item, tmp_path / "file")


def test_a_pod_without_credentials_says_what_it_needs(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    with pytest.raises(StoreUnavailableError, match="pod identity association") as error:
        Objects().put("s3://bucket/key", b"")
    # The next pod may have them: an association takes effect after some seconds.
    assert end_of(error.value).code == ReplicaExit.RENDEZVOUS


def test_a_large_file_is_written_in_parts(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects_module, "PART_BYTES", 4)
    path = tmp_path / "large"
    path.write_bytes(b"0123456789")
    with path.open("rb") as file:
        assert Objects().upload(file, 10, "s3://bucket/key", lambda: True)
        assert Objects().upload(file, 10, "s3://bucket/other", lambda: False) is None
    assert s3.body("key") == b"0123456789"
    assert "other" not in s3.objects
    assert not s3.parts


def channels(s3: S3Server, tmp_path: Path, uris: dict[str, str] | str = "data/", *, stops: bool = False) -> Path:
    """Download channels, by default one; where they are."""
    named = {"train": uris} if isinstance(uris, str) else uris
    stop = threading.Event()
    if stops:
        stop.set()
    wanted = [PodChannel(name=name, uri=f"s3://bucket/{key}") for name, key in named.items()]
    download_channels(Objects(stop), wanted, tmp_path)
    return tmp_path / "input" / "data"


def test_a_channel_has_every_object_below_its_prefix(s3: S3Server, tmp_path: Path) -> None:
    for key in ("data/train/a.bin", "data/train/deep/b.bin", "data/train/", "packages/abc.zip"):
        s3.put(key, key.encode())
    place = channels(s3, tmp_path, {"train": "data/train/", "muster-package": "packages/abc.zip"})
    files = {path.relative_to(place).as_posix(): path.read_text() for path in place.rglob("*") if path.is_file()}
    assert files == {
        "train/a.bin": "data/train/a.bin",
        "train/deep/b.bin": "data/train/deep/b.bin",
        "muster-package/abc.zip": "packages/abc.zip",
    }


def test_no_file_moves_from_a_mount_to_another(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    place = channels(s3, tmp_path)
    assert [path.name for path in place.rglob("*") if path.is_file()] == ["a"]
    assert kept(tmp_path).restore() == 1
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["b"]


def test_all_that_is_wrong_with_channels_is_said_at_once(s3: S3Server, tmp_path: Path) -> None:
    for key in ("a/../../etc/passwd", "b/x", "b/x/y", f"c/{'é' * 128}/x"):
        s3.put(key, b"")
    with pytest.raises(InputError) as caught:
        channels(s3, tmp_path, {"none": "nothing/", "out": "a/", "both": "b/", "long": "c/"})
    assert [problem.split()[2].rstrip(":") for problem in caught.value.problems] == ["none", "out", "both", "long"]


def test_nothing_is_downloaded_beyond_the_volume_or_by_a_pod_that_is_to_end(s3: S3Server, tmp_path: Path) -> None:
    s3.put("data/a", b"12345")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=4))
        with pytest.raises(InputError, match="mount a larger volume"):
            channels(s3, tmp_path)
    assert s3.count("GET", "data/a") == 0
    with pytest.raises(StoppedError):
        channels(s3, tmp_path, stops=True)
    assert not list((tmp_path / "input").rglob("a"))


def kept(tmp_path: Path) -> KeptCheckpoints:
    (tmp_path / "folder").mkdir(exist_ok=True)
    return KeptCheckpoints(Objects(), tmp_path / "checkpoints", "s3://bucket/checkpoints/r0/", tmp_path / "folder")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The folder of the checkpoints."""
    (tmp_path / "checkpoints").mkdir()
    return tmp_path / "checkpoints"


def test_only_what_has_changed_is_copied(s3: S3Server, tmp_path: Path, place: Path) -> None:
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
    s3: S3Server, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_new_pod_restores_everything_and_copies_nothing_back(s3: S3Server, tmp_path: Path) -> None:
    s3.put("checkpoints/r0/muster-trainer-0.ckpt", b"state")
    s3.put("checkpoints/r01/other", b"another rank's")
    checkpoints = kept(tmp_path)
    assert checkpoints.restore() == 1
    assert (tmp_path / "checkpoints" / "muster-trainer-0.ckpt").read_bytes() == b"state"
    assert checkpoints.keep() == 0


def test_a_restart_in_the_same_pod_keeps_what_was_not_copied(s3: S3Server, tmp_path: Path, place: Path) -> None:
    (place / "a").write_bytes(b"copied")
    kept(tmp_path).keep()
    (place / "a").write_bytes(b"newer than its copy")
    assert kept(tmp_path).restore() == 0
    # Unless another pod has written it since.
    s3.put("checkpoints/r0/a", b"another pod's", at=OLD)
    assert kept(tmp_path).restore() == 0
    s3.put("checkpoints/r0/a", b"another pod's", at=NEW)
    assert kept(tmp_path).restore() == 1
    # A file that has not changed since it was copied is replaced, whatever the clocks say.
    kept(tmp_path).keep()
    s3.put("checkpoints/r0/a", b"by the pod that had this number since", at=OLD)
    assert kept(tmp_path).restore() == 1
    assert (place / "a").read_bytes() == b"by the pod that had this number since"


def test_the_archives_are_those_of_a_training_job(s3: S3Server, tmp_path: Path) -> None:
    (tmp_path / "output" / "data").mkdir(parents=True)
    (tmp_path / "output" / "data" / "manifest.json").write_text("{}")
    (tmp_path / "model").mkdir()
    stored = upload_archives(Objects(), tmp_path, "s3://bucket/output/run", "muster-run-r0-a1")
    assert stored == ["s3://bucket/output/run/muster-run-r0-a1/output/output.tar.gz"]
    with tarfile.open(fileobj=BytesIO(s3.body("output/run/muster-run-r0-a1/output/output.tar.gz"))) as tar:
        assert tar.getnames() == ["manifest.json"]
