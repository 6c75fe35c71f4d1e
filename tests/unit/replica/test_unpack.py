"""Unpacking source: bounds, escapes, damage."""

import gzip
import hashlib
import io
import tarfile
import time
from pathlib import Path

import pytest

from muster.replica.entry import unpack as module
from muster.replica.entry.unpack import ArchiveError, unpack


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for info, body in members:
            info.size = len(body)
            tar.addfile(info, io.BytesIO(body))
    return stream.getvalue()


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def archive(folder: Path, stream: bytes, name: str = "code.tar.gz") -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(stream))
    return path


def test_nothing_gets_out_of_the_folder(tmp_path: Path, subtests: pytest.Subtests) -> None:
    outside, neither = "points outside", "neither a file nor a folder"
    escapes = {
        "up": (member("../outside.py"), outside),
        "up from within": (member("a/../../outside.py"), outside),
        "absolute": (member("/outside.py"), outside),
        "backslash": (member("a\\..\\outside.py"), outside),
        "symbolic link": (member("link", tarfile.SYMTYPE, "/etc/passwd"), neither),
        "hard link": (member("link", tarfile.LNKTYPE, "good.py"), neither),
        "device": (member("device", tarfile.CHRTYPE), neither),
    }
    for name, (info, words) in escapes.items():
        with subtests.test(name):
            path = archive(tmp_path, tar_of((member("good.py"), b"x"), (info, b"")))
            with pytest.raises(ArchiveError, match=words):
                unpack(path, tmp_path / "out" / name)
            assert not list((tmp_path / "out").rglob("outside.py"))


def test_a_bomb_is_given_up_within_its_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path, tar_of((member("zeros"), bytes(8_000_000))))
    assert path.stat().st_size < 10_000
    monkeypatch.setattr(module, "_STREAM_MAX", 2_000_000)
    with pytest.raises(ArchiveError, match="more than"):
        unpack(path, tmp_path / "out")
    assert (tmp_path / "out" / "zeros").stat().st_size <= 2_000_000


def test_an_archive_holds_what_its_name_promises(tmp_path: Path) -> None:
    stream = tar_of((member("train.py"), bytes(range(256)) * 64))
    digest = hashlib.sha256(stream).hexdigest()
    path = archive(tmp_path, stream, f"{digest}.tar.gz")
    unpack(path, tmp_path / "out")
    with pytest.raises(ArchiveError, match="its digest is not the one in its name"):
        unpack(archive(tmp_path, stream, f"{digest[::-1]}.tar.gz"), tmp_path / "other")
    whole = path.read_bytes()
    for keep in (0, 1, 40, -20):
        path.write_bytes(whole[:keep])
        with pytest.raises(ArchiveError, match="damaged"):
            unpack(path, tmp_path / f"out{keep}")


# --- archives that no packer of Muster makes ------------------------------------------------------


def header(name: bytes, size: int = 0, kind: bytes = b"0", extra: dict[int, bytes] | None = None) -> bytes:
    """A tar header with these bytes at further offsets, and a checksum that fits."""
    block = bytearray(512)
    block[0 : len(name)] = name
    block[100:108] = b"0000644\0"
    block[124:136] = f"{size:011o}\0".encode() if size >= 0 else b"\xff" * 4 + (size & 0xFFFFFFFFFFFFFFFF).to_bytes(8)
    block[156:157] = kind
    block[257:265] = b"ustar  \0"
    for offset, data in (extra or {}).items():
        block[offset : offset + len(data)] = data
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block):06o}\0 ".encode()
    return bytes(block)


def pax(records: dict[str, bytes], name: bytes = b"file", size: int = 0) -> bytes:
    """A member whose extended header has these records."""
    data = b""
    for key, value in records.items():
        record = f" {key}=".encode() + value + b"\n"
        length = len(record)
        while len(f"{length}") + len(record) != length:
            length = len(f"{length}") + len(record)
        data += f"{length}".encode() + record
    padded = data + bytes(-len(data) % 512)
    return header(b"pax", len(data), b"x") + padded + header(name, size)


END = bytes(1_024)
OCTAL = b"%011o\0"
VERSION = {"GNU.sparse.major": b"1", "GNU.sparse.minor": b"0"}
MAP = OCTAL % 0 + OCTAL % 0 + OCTAL % (600 << 20) + OCTAL % 0
SPARSE = {
    "old GNU": header(b"sparse", 0, b"S", {386: MAP, 483: OCTAL % (600 << 20)}),
    "pax 0.0": pax({"GNU.sparse.size": b"%d" % (600 << 20), "GNU.sparse.numblocks": b"0"}),
    "pax 0.1": pax({"GNU.sparse.size": b"%d" % (600 << 20), "GNU.sparse.map": b"0,0,629145600,0"}),
    "pax 1.0": pax({**VERSION, "GNU.sparse.realsize": b"%d" % (600 << 20)}, size=512)
    + b"1\n629145600\n0\n".ljust(512, b"\0"),
}


def test_a_sparse_file_is_refused_before_a_byte_of_it_is_written(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for name, stream in SPARSE.items():
        with subtests.test(name):
            path = archive(tmp_path, stream + END)
            assert path.stat().st_size < 300
            with pytest.raises(ArchiveError, match="is sparse"):
                unpack(path, tmp_path / name)
            assert not any(file.is_file() for file in (tmp_path / name).rglob("*"))


STRANGE = {
    "a name with a null character": pax({"path": b"a\0b"}),
    "a map of no numbers": pax({"GNU.sparse.size": b"1", "GNU.sparse.map": b"a,b"}),
    "a version of no numbers": pax({**VERSION, "GNU.sparse.realsize": b"x"}),
    "a map that ends early": pax(VERSION, size=512) + b"9".ljust(512),
    "a negative size": header(b"file", -512),
    "a negative size in the extension": pax({"size": b"-512"}),
    "a size beyond every disk": header(b"file", 0, extra={124: b"\x80" + b"\xff" * 11}),
    "an extended header of every disk's size": header(b"pax", 0, b"x", {124: b"\x80\0\0\0" + b"\xff" * 8}),
    "a folder in the place of a file": header(b"a") + header(b"a/b"),
    "a file in the place of a folder": header(b"a/b") + header(b"a"),
    "a name that is too long": pax({"path": b"a" * 3_000}),
    "a thousand folders in one name": pax({"path": b"a/" * 1_500 + b"b"}),
    "a record without an end": header(b"pax", 5, b"x") + b"99 a=".ljust(512, b"\0") + header(b"file"),
    "a record of length zero": header(b"pax", 5, b"x") + b"0 a=b".ljust(512, b"\0") + header(b"file"),
    "no name": header(b""),
    "only points": header(b"./."),
}


def test_whatever_an_archive_holds_the_error_is_one_sentence(tmp_path: Path, subtests: pytest.Subtests) -> None:
    for number, (name, stream) in enumerate(STRANGE.items()):
        with subtests.test(name):
            folder = tmp_path / f"{number}"
            folder.mkdir()
            begin, refusal = time.process_time(), ""
            try:
                unpack(archive(folder, stream + END), folder / "out")
            except ArchiveError as error:
                refusal = str(error)
            assert len(refusal) < 300
            assert time.process_time() - begin < 2
            assert {path.name for path in folder.iterdir()} == {"code.tar.gz", "out"}


def test_names_make_no_more_folders_than_an_archive_may_have_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SOURCE_FILES_MAX", 20)
    with pytest.raises(ArchiveError, match="more than 20 entries"):
        unpack(archive(tmp_path, tar_of(*((member(f"f{n}"), b"") for n in range(21)))), tmp_path / "entries")
    deep = tar_of(*((member(f"{n}/{'a/' * 10}b.py"), b"") for n in range(19)))
    with pytest.raises(ArchiveError, match="more than 20 folders"):
        unpack(archive(tmp_path, deep), tmp_path / "out")
    assert sum(path.is_dir() for path in (tmp_path / "out").rglob("*")) <= 20
