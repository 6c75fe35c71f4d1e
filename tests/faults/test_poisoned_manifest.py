"""Whoever writes a job's output decides what is in it: a poisoned manifest is refused by kind, at little cost."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Iterator
from typing import TYPE_CHECKING

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

from muster.control.manifest import Limits, ManifestError, ManifestProblem, resolve_manifest
from tests.memory.clock import TickingClock

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

BUCKET, JOB = "meeting-place", "muster-demo-r0-a1"
PLAIN, ARCHIVE = f"{JOB}/manifest.json", f"{JOB}/output/output.tar.gz"
MANIFEST = json.dumps({"checkpoint_s3_bucket": "s3://escrow/final"}).encode()
MIB = 1 << 20


@pytest.fixture(scope="module")
def s3() -> Iterator[S3Client]:
    with mock_aws():
        client = boto3.client("s3", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
        client.create_bucket(Bucket=BUCKET)
        yield client


def refusal(s3: S3Client, key: str, body: bytes, limits: Limits | None = None) -> ManifestError:
    for other in (PLAIN, ARCHIVE):
        s3.delete_object(Bucket=BUCKET, Key=other)
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)
    with pytest.raises(ManifestError) as caught:
        resolve_manifest(s3, f"s3://{BUCKET}", JOB, limits=limits or Limits())
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
    return caught.value


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


END = bytes(1024)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "not-json"),
        (b"{", "not-json"),
        (b"\xff\xfe\xfd", "not-json"),
        (b"[" * 60_000, "not-json"),
        (b"[" * 100_000, "oversize"),
        (b'{"checkpoint_s3_bucket": NaN}', "not-json"),
        (b"9" * 10_000, "not-json"),
        (b'{"a":' * 900 + b"1" + b"}" * 900, "not-a-manifest"),
        (b'{"checkpoint_s3_bucket": ' + b"[" * 900 + b"]" * 900 + b"}", "not-a-manifest"),
        (b'{"checkpoint_s3_bucket": "s3://b/\\ud800"}', "not-a-manifest"),
        (b'{"checkpoint_s3_bucket": "s3://b", "round": 1, "checksum": "\\ud800"}', "not-a-manifest"),
        (MANIFEST + b" " * MIB, "oversize"),
    ],
)
def test_a_poisoned_plain_manifest(s3: S3Client, body: bytes, kind: str) -> None:
    assert refusal(s3, PLAIN, body).kind == kind


@pytest.mark.parametrize(
    ("plain", "kind"),
    [
        # Bad content of a good archive.
        (member("manifest.json", b"{"), "not-json"),
        (member("manifest.json", b""), "not-json"),
        (member("manifest.json", b"[]"), "not-a-manifest"),
        (member("manifest.json", MANIFEST + b" " * MIB), "oversize"),
        (member("manifest.json", b"", size=1 << 40), "oversize"),
        # Paths out of the archive, and things that are no files, under the manifest's name.
        (member("../manifest.json"), "unsafe-path"),
        (member("/manifest.json"), "unsafe-path"),
        (member("//manifest.json"), "unsafe-path"),
        (member("logs/../manifest.json"), "unsafe-path"),
        (member("./../../manifest.json"), "unsafe-path"),
        (member("manifest.json", b"", tarfile.SYMTYPE), "unsafe-path"),
        (member("./manifest.json", b"", tarfile.LNKTYPE), "unsafe-path"),
        (member("manifest.json", b"", tarfile.CHRTYPE), "unsafe-path"),
        (member("manifest.json", b"", tarfile.BLKTYPE), "unsafe-path"),
        (member("manifest.json", b"", tarfile.FIFOTYPE), "unsafe-path"),
        (member("manifest.json", b"", tarfile.DIRTYPE), "unsafe-path"),
        (member("manifest.json/", b""), "unsafe-path"),
        # The first that claims the name decides, whatever follows.
        (member("manifest.json", b"", tarfile.SYMTYPE) + member("manifest.json"), "unsafe-path"),
        # The same names elsewhere claim nothing.
        (member("../../etc/manifest.json") + member("/abs/manifest.json") + member("a/manifest.json"), "absent"),
        (member("Manifest.json") + member("manifest.json.bak") + member("..\\manifest.json"), "absent"),
        (b"", "absent"),
        # Headers that lie.
        (member("pax", b"", tarfile.XHDTYPE, size=8 << 30), "oversize"),
        (member("long", b"", tarfile.GNUTYPE_LONGNAME, size=8 << 30), "oversize"),
        (member("pax", b"0 path=x\n", tarfile.XHDTYPE) + member("x"), "damaged"),
        (member("pax", b"99 path=x\n", tarfile.XHDTYPE) + member("x"), "damaged"),
        (member("pax", b"path\n", tarfile.XHDTYPE) + member("x"), "damaged"),
        (member("pax", b"12 size=-51\n", tarfile.XHDTYPE) + member("x"), "damaged"),
        (member("pax", b"11 size=1e9\n", tarfile.XHDTYPE) + member("x"), "damaged"),
        (member("x", b"", size=-512), "damaged"),
        (member("x") + b"\1" * 512, "damaged"),
    ],
)
def test_a_poisoned_archive(s3: S3Client, plain: bytes, kind: str) -> None:
    assert refusal(s3, ARCHIVE, gzip.compress(plain + END)).kind == kind


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"", "truncated"),
        (b"\x1f\x8b", "truncated"),
        (MANIFEST, "damaged"),
        (b"PK\x03\x04" + bytes(100), "damaged"),
        (member("manifest.json") + END, "damaged"),
        (gzip.compress(b""), "truncated"),
        (gzip.compress(b"hello, this is no tar" * 100), "damaged"),
        (gzip.compress(member("first.bin", bytes(512))), "truncated"),
    ],
)
def test_what_is_no_archive(s3: S3Client, body: bytes, kind: str) -> None:
    assert refusal(s3, ARCHIVE, body).kind == kind


def test_a_truncated_archive_is_told_from_one_without_a_manifest_wherever_it_was_cut(s3: S3Client) -> None:
    whole = gzip.compress(member("first.bin", bytes(range(256)) * 2) + member("manifest.json") + END)
    # From the first two bytes on, by which gzip is known.
    kinds = [_kind(s3, whole[:cut]) for cut in range(2, len(whole), 3)]
    found = kinds.index(None)
    assert set(kinds[:found]) == {ManifestProblem.TRUNCATED}
    # Nothing behind the manifest is needed.
    assert set(kinds[found:]) == {None}


def _kind(s3: S3Client, body: bytes) -> ManifestProblem | None:
    s3.delete_object(Bucket=BUCKET, Key=PLAIN)
    s3.put_object(Bucket=BUCKET, Key=ARCHIVE, Body=body)
    try:
        found = resolve_manifest(s3, f"s3://{BUCKET}", JOB)
    except ManifestError as error:
        return error.kind
    assert found.checkpoint_uri == "s3://escrow/final"
    return None


def test_a_bomb_is_given_up_at_the_bound(s3: S3Client) -> None:
    bomb = gzip.compress(member("zeros", b"", size=64 * MIB) + bytes(64 * MIB) + member("manifest.json") + END)
    assert len(bomb) < 100_000
    assert refusal(s3, ARCHIVE, bomb, Limits(unpacked_bytes=8 * MIB)).kind is ManifestProblem.OVERSIZE


def test_a_bomb_is_given_up_in_time_although_next_to_nothing_is_read(s3: S3Client) -> None:
    bomb = gzip.compress(member("zeros", b"", size=64 * MIB) + bytes(64 * MIB) + END)
    assert timed_out(s3, bomb) is ManifestProblem.TIMEOUT


def test_a_gzip_header_without_end_is_given_up_in_time(s3: S3Client) -> None:
    """A file name in the header of gzip ends at a zero byte; before it nothing is unpacked."""
    named = 0x08
    header = bytes([0x1F, 0x8B, 8, named, 0, 0, 0, 0, 0, 255])
    assert timed_out(s3, header + b"n" * (3 * MIB)) is ManifestProblem.TIMEOUT


def timed_out(s3: S3Client, body: bytes) -> ManifestProblem:
    """What comes of an archive on a clock that moves a second each time it is read, when there are five."""
    s3.delete_object(Bucket=BUCKET, Key=PLAIN)
    s3.put_object(Bucket=BUCKET, Key=ARCHIVE, Body=body)
    with TickingClock().install(), pytest.raises(ManifestError) as caught:
        resolve_manifest(s3, f"s3://{BUCKET}", JOB, limits=Limits(seconds=5))
    return caught.value.kind


def test_members_without_end_are_given_up_at_the_bound(s3: S3Client) -> None:
    crowd = gzip.compress(member("empty", b"") * 2_000 + member("manifest.json") + END)
    assert refusal(s3, ARCHIVE, crowd, Limits(headers=1_000)).kind is ManifestProblem.OVERSIZE


@pytest.mark.parametrize(
    "plain",
    [
        # A member, headers for later members, and a sparse map: each 64 MiB, each packed into some 70 kB.
        member("zeros", b"", size=64 * MIB) + bytes(64 * MIB),
        b"".join(member("pax", b"1000000 c%02d=" % i + bytes(999_987) + b"\n", tarfile.XHDTYPE) for i in range(64)),
        sparse_without_end(64 * MIB),
    ],
    ids=["member", "pax headers", "sparse"],
)
def test_memory_does_not_grow_with_what_an_archive_unpacks_to(s3: S3Client, plain: bytes) -> None:
    s3.delete_object(Bucket=BUCKET, Key=PLAIN)
    s3.put_object(Bucket=BUCKET, Key=ARCHIVE, Body=gzip.compress(plain, 1))
    tracemalloc.start()
    try:
        with pytest.raises(ManifestError):
            resolve_manifest(s3, f"s3://{BUCKET}", JOB)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * MIB


@settings(max_examples=150)
@given(body=st.binary(max_size=2_000), key=st.sampled_from([PLAIN, ARCHIVE]), packed=st.booleans())
def test_random_bytes_are_only_ever_refused(s3: S3Client, body: bytes, key: str, packed: bool) -> None:
    refusal(s3, key, gzip.compress(body) if packed else body)


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
    s3.put_object(Bucket=BUCKET, Key=ARCHIVE, Body=gzip.compress(bytes(body), 1))
    s3.delete_object(Bucket=BUCKET, Key=PLAIN)
    try:
        found = resolve_manifest(s3, f"s3://{BUCKET}", JOB, limits=Limits(unpacked_bytes=MIB))
    except ManifestError:
        return
    assert found.checkpoint_uri.startswith("s3://")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(
    value=st.fixed_dictionaries(
        {"checkpoint_s3_bucket": st.just("s3://escrow/final") | json_values},
        optional={"round": json_values, "checksum": json_values, "metrics": json_values, "version": json_values},
    )
)
def test_a_manifest_of_random_fields_is_resolved_or_refused(s3: S3Client, value: dict[str, object]) -> None:
    s3.delete_object(Bucket=BUCKET, Key=ARCHIVE)
    s3.put_object(Bucket=BUCKET, Key=PLAIN, Body=json.dumps(value).encode())
    try:
        found = resolve_manifest(s3, f"s3://{BUCKET}", JOB)
    except ManifestError as error:
        assert error.kind in {ManifestProblem.NOT_JSON, ManifestProblem.NOT_A_MANIFEST}  # noqa: PT017
    else:
        assert found.checkpoint_uri.startswith("s3://")
        assert (found.round is None) == (found.checksum is None)
        json.dumps(found.metrics, allow_nan=False)
