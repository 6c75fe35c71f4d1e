"""Unpacking source: bounds, escapes, damage."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from muster.replica.entry import unpack as module
from muster.replica.entry.unpack import ArchiveError, unpack


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for member, body in members:
            member.size = len(body)
            tar.addfile(member, io.BytesIO(body))
    return stream.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def archive(folder: Path, stream: bytes, name: str = "code.tar.gz") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(stream))
    return path


@pytest.mark.parametrize(
    ("info", "words"),
    [
        (member("../outside.py"), "points outside"),
        (member("a/../../outside.py"), "points outside"),
        (member("/outside.py"), "points outside"),
        (member("a\\..\\outside.py"), "points outside"),
        (member("link", tarfile.SYMTYPE, "/etc/passwd"), "neither a file nor a folder"),
        (member("link", tarfile.LNKTYPE, "good.py"), "neither a file nor a folder"),
        (member("device", tarfile.CHRTYPE), "neither a file nor a folder"),
    ],
    ids=["up", "up from within", "absolute", "backslash", "symbolic link", "hard link", "device"],
)
def test_nothing_gets_out_of_the_folder(tmp_path: Path, info: tarfile.TarInfo, words: str) -> None:
    path = archive(tmp_path, tar_of((member("good.py"), b"x"), (info, b"")))
    with pytest.raises(ArchiveError, match=words):
        unpack(path, tmp_path / "out" / "source")
    assert not (tmp_path / "out" / "outside.py").exists()


def test_a_bomb_is_given_up_within_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, tar_of((member("zeros"), bytes(8_000_000))))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(module, "_STREAM_MAX", 2_000_000)
    with pytest.raises(ArchiveError, match="more than"):
        unpack(path, tmp_path / "out")
    assert (tmp_path / "out" / "zeros").stat().st_size <= 2_000_000


def test_too_many_entries_are_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, tar_of(*((member(f"f{n}"), b"") for n in range(4))))
    monkeypatch.setattr(module, "SOURCE_FILES_MAX", 3)
    with pytest.raises(ArchiveError, match="more than 3 entries"):
        unpack(path, tmp_path / "out")


def test_an_archive_holds_what_its_name_promises(tmp_path: Path) -> None:
    stream = tar_of((member("train.py"), b"x"))
    digest = hashlib.sha256(stream).hexdigest()
    unpack(archive(tmp_path, stream, f"{digest}.tar.gz"), tmp_path / "out")
    other = archive(tmp_path, stream, f"{digest[::-1]}.tar.gz")
    with pytest.raises(ArchiveError, match="its digest is not the one in its name"):
        unpack(other, tmp_path / "other")


@pytest.mark.parametrize("keep", [0, 1, 40, -20])
def test_damage_is_reported(tmp_path: Path, keep: int) -> None:
    path = archive(tmp_path, tar_of((member("train.py"), bytes(range(256)) * 64)))
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ArchiveError, match="damaged"):
        unpack(path, tmp_path / "out")
