"""Whoever writes a job's output decides what is in it: a poisoned manifest is refused by kind, at little cost."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.control.manifest import Limits, ManifestError, ManifestProblem, resolve_manifest
from tests.memory import MemoryCloud
from tests.memory.clock import TickingClock

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET, JOB = "meeting-place", "muster-demo-r0-a1"
PLAIN, ARCHIVE = f"{JOB}/manifest.json", f"{JOB}/output/output.tar.gz"
MANIFEST = json.dumps({"checkpoint_s3_bucket": "s3://escrow/final"}).encode()
MIB = 1 << 20
END = bytes(1024)


@pytest.fixture(scope="module")
def s3() -> S3Client:
    client: S3Client = MemoryCloud(BUCKET).client("s3")
    return client


def kind_of(s3: S3Client, key: str, body: bytes, limits: Limits | None = None) -> str | None:
    """How the object is refused, in one short line; None: it is a manifest."""
    for other in (PLAIN, ARCHIVE):
        s3.delete_object(Bucket=BUCKET, Key=other)
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    try:
        found = resolve_manifest(s3, f"s3://{BUCKET}", JOB, limits=limits or Limits())
    except ManifestError as error:
        refused = error
    else:
        assert found.checkpoint_uri.startswith("s3://")
        assert (found.round is None) == (found.checksum is None)
        json.dumps(found.metrics, allow_nan=False)
        return None
    assert "\n" not in str(refused)
    assert len(str(refused)) < 500
    return refused.kind


def member(name: str, content: bytes = MANIFEST, kind: bytes = tarfile.REGTYPE, size: int | None = None) -> bytes:
    header = tarfile.TarInfo(name)
    header.type = kind
    header.linkname = "/etc/passwd" if kind in {tarfile.SYMTYPE, tarfile.LNKTYPE} else ""
    header.size = len(content) if size is None else size
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def sparse_without_end(size: int) -> bytes:
    """An old GNU sparse member whose map goes on for `size` bytes."""
    header = bytearray(member("sparse", b"", tarfile.GNUTYPE_SPARSE))
    header[482] = 1
    header[148:156] = b"%06o\0 " % (sum(header[:148]) + 256 + sum(header[156:]))
    return bytes(header) + (bytes(504) + b"\1" + bytes(7)) * (size // 512)


MANIFESTS: Mapping[str, Sequence[bytes]] = {
    "not-json": [b"", b"{", b"\xff\xfe\xfd", b"[" * 60_000, b'{"checkpoint_s3_bucket": NaN}', b"9" * 10_000],
    "oversize": [b"[" * 100_000, MANIFEST + b" " * MIB],
    "not-a-manifest": [
        b'{"a":' * 900 + b"1" + b"}" * 900,
        b'{"checkpoint_s3_bucket": ' + b"[" * 900 + b"]" * 900 + b"}",
        b'{"checkpoint_s3_bucket": "s3://b/\\ud800"}',
        b'{"checkpoint_s3_bucket": "s3://b", "round": 1, "checksum": "\\ud800"}',
    ],
}
"""Plain manifests by the kind of their refusal."""
CONTENTS: Mapping[str, Sequence[bytes]] = {
    # Bad content of a good archive.
    "not-json": [member("manifest.json", b"{"), member("manifest.json", b"")],
    "not-a-manifest": [member("manifest.json", b"[]")],
    "oversize": [
        member("manifest.json", MANIFEST + b" " * MIB),
        member("manifest.json", b"", size=1 << 40),
        # A header that lies.
        member("pax", b"", tarfile.XHDTYPE, size=8 << 30),
        member("long", b"", tarfile.GNUTYPE_LONGNAME, size=8 << 30),
    ],
    "unsafe-path": [
        # Paths out of the archive, and things that are no files, under the manifest's name.
        member("../manifest.json"),
        member("/manifest.json"),
        member("//manifest.json"),
        member("logs/../manifest.json"),
        member("./../../manifest.json"),
        member("manifest.json", b"", tarfile.SYMTYPE),
        member("./manifest.json", b"", tarfile.LNKTYPE),
        member("manifest.json", b"", tarfile.CHRTYPE),
        member("manifest.json", b"", tarfile.BLKTYPE),
        member("manifest.json", b"", tarfile.FIFOTYPE),
        member("manifest.json", b"", tarfile.DIRTYPE),
        member("manifest.json/", b""),
        # The first that claims the name decides, whatever follows.
        member("manifest.json", b"", tarfile.SYMTYPE) + member("manifest.json"),
    ],
    "absent": [
        # The same names elsewhere claim nothing.
        member("../../etc/manifest.json") + member("/abs/manifest.json") + member("a/manifest.json"),
        member("Manifest.json") + member("manifest.json.bak") + member("..\\manifest.json"),
        b"",
    ],
    "damaged": [
        member("pax", b"0 path=x\n", tarfile.XHDTYPE) + member("x"),
        member("pax", b"99 path=x\n", tarfile.XHDTYPE) + member("x"),
        member("pax", b"path\n", tarfile.XHDTYPE) + member("x"),
        member("pax", b"12 size=-51\n", tarfile.XHDTYPE) + member("x"),
        member("pax", b"11 size=1e9\n", tarfile.XHDTYPE) + member("x"),
        member("x", b"", size=-512),
        member("x") + b"\1" * 512,
    ],
}
"""The contents of archives."""
NO_ARCHIVES: Mapping[str, Sequence[bytes]] = {
    "truncated": [b"", b"\x1f\x8b", gzip.compress(b""), gzip.compress(member("first.bin", bytes(512)))],
    "damaged": [
        MANIFEST,
        b"PK\x03\x04" + bytes(100),
        member("manifest.json") + END,
        gzip.compress(b"hello, this is no tar" * 100),
    ],
}
"""Objects where an archive would be."""


def test_a_poisoned_manifest_is_refused_by_kind(s3: S3Client) -> None:
    cases = [(PLAIN, body, kind) for kind, bodies in MANIFESTS.items() for body in bodies]
    cases += [(ARCHIVE, gzip.compress(body + END), kind) for kind, bodies in CONTENTS.items() for body in bodies]
    cases += [(ARCHIVE, body, kind) for kind, bodies in NO_ARCHIVES.items() for body in bodies]
    found = [(key, body[:100], kind, kind_of(s3, key, body)) for key, body, kind in cases]
    assert [row for row in found if row[2] != row[3]] == []


def test_a_truncated_archive_is_told_from_one_without_a_manifest_wherever_it_was_cut(s3: S3Client) -> None:
    whole = gzip.compress(member("first.bin", bytes(range(256)) * 2) + member("manifest.json") + END)
    # From the first two bytes on, by which gzip is known.
    kinds = [kind_of(s3, ARCHIVE, whole[:cut]) for cut in range(2, len(whole), 3)]
    found = kinds.index(None)
    assert set(kinds[:found]) == {ManifestProblem.TRUNCATED}
    # Nothing behind the manifest is needed.
    assert set(kinds[found:]) == {None}


def test_what_has_no_end_is_given_up_at_a_bound_or_in_time(s3: S3Client) -> None:
    zeros = member("zeros", b"", size=24 * MIB) + bytes(24 * MIB)
    crowd = member("empty", b"") * 2_000 + member("manifest.json")
    bomb = gzip.compress(zeros + member("manifest.json") + END)
    assert len(bomb) < 100_000
    assert kind_of(s3, ARCHIVE, bomb, Limits(unpacked_bytes=8 * MIB)) is ManifestProblem.OVERSIZE
    assert kind_of(s3, ARCHIVE, gzip.compress(crowd + END), Limits(headers=1_000)) is ManifestProblem.OVERSIZE
    # A file name in the header of gzip ends at a zero byte; before it nothing is unpacked.
    named = bytes([0x1F, 0x8B, 8, 0x08, 0, 0, 0, 0, 0, 255]) + b"n" * (3 * MIB)
    for body in (bomb, named):
        with TickingClock().install():
            assert kind_of(s3, ARCHIVE, body, Limits(seconds=5)) is ManifestProblem.TIMEOUT


def test_memory_does_not_grow_with_what_an_archive_unpacks_to(s3: S3Client) -> None:
    # Each 24 MiB, and each packed into some 30 kB; only one at a time is there unpacked.
    unpacked: dict[str, Callable[[], bytes]] = {
        "a member": lambda: member("zeros", b"", size=24 * MIB) + bytes(24 * MIB),
        "headers for later members": lambda: b"".join(
            member("pax", b"1000000 c%02d=" % i + bytes(999_987) + b"\n", tarfile.XHDTYPE) for i in range(24)
        ),
        "a sparse map": lambda: sparse_without_end(24 * MIB),
    }
    for name, plain in unpacked.items():
        body = gzip.compress(plain(), 1)
        tracemalloc.start()
        try:
            assert kind_of(s3, ARCHIVE, body) is not None, name
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        assert peak < 8 * MIB, name


def _honest() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in [("größe", b"x" * 600), ("n" * 150, b"y"), ("manifest.json", MANIFEST)]:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()[:6_656]


HONEST = _honest()


@settings(max_examples=300)
@given(changes=st.lists(st.tuples(st.integers(0, len(HONEST) - 1), st.binary(min_size=1, max_size=12)), max_size=4))
def test_a_changed_archive_resolves_to_a_manifest_or_is_refused(s3: S3Client, changes: list[tuple[int, bytes]]) -> None:
    body = bytearray(HONEST)
    for position, content in changes:
        body[position : position + len(content)] = content
        # A right checksum, so that the change reaches what stands behind it.
        start = position // 512 * 512
        block = body[start : start + 512]
        body[start + 148 : start + 156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    # An error of another kind is raised.
    kind_of(s3, ARCHIVE, gzip.compress(bytes(body), 1), Limits(unpacked_bytes=MIB))
