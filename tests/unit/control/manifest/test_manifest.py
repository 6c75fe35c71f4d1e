"""The manifest resolver against S3: the layouts, what counts as a manifest, and what a network may do."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import random
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from muster.contract.run.run_document import Manifest
from muster.control.manifest import Limits, ManifestError, ManifestProblem, ResolvedManifest, resolve_manifest
from tests.memory import MemoryCloud
from tests.memory.clock import TickingClock
from tests.support.serving import serving

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB = 1 << 20
BUCKET, JOB = "meeting-place", "muster-demo-r0-a1"
OUTPUT = f"s3://{BUCKET}/output/demo"
FOLDER = f"output/demo/{JOB}"
URI = "s3://escrow/checkpoints/final/"
FOREIGN = json.dumps({"checkpoint_s3_bucket": URI}).encode()
OURS = Manifest(checkpoint_s3_bucket=URI, round=7, checksum="ab" * 32, metrics={"accuracy": 0.97})

HYPERPOD = f"{FOLDER}/manifest.json"
SERVERLESS = f"{FOLDER}/output/output/manifest.json"
ARCHIVE = f"{FOLDER}/output/output.tar.gz"
MODEL_ARCHIVE = f"{FOLDER}/output/model.tar.gz"
UNPACKED_MODEL = f"{FOLDER}/output/model/manifest.json"


# One session: reading botocore's service model again for every client is what takes time.
SESSION = boto3.Session("test", "test", region_name="us-east-1")


@pytest.fixture
def s3() -> S3Client:
    client: S3Client = MemoryCloud(BUCKET).client("s3")
    return client


def targz(*members: tuple[str, bytes], mode: str = "w:gz", **options: Any) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode, **options) as tar:  # type: ignore[call-overload]
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            tar.addfile(header, io.BytesIO(content))
    return buffer.getvalue()


def put(s3: S3Client, key: str, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)


def failure(s3: S3Client, **options: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        resolve_manifest(s3, OUTPUT, JOB, **options)
    return caught.value


# --- the layouts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [HYPERPOD, SERVERLESS, UNPACKED_MODEL])
def test_a_plain_manifest_is_found_in_each_place(s3: S3Client, key: str) -> None:
    put(s3, key, FOREIGN)
    assert resolve_manifest(s3, OUTPUT, JOB) == ResolvedManifest(URI, None, None, {}, f"s3://{BUCKET}/{key}")


@pytest.mark.parametrize("name", ["manifest.json", "./manifest.json", "././manifest.json"])
def test_a_manifest_is_found_in_the_archive(s3: S3Client, name: str) -> None:
    put(s3, ARCHIVE, targz(("weights.bin", bytes(100_000)), (name, OURS.to_json()), ("later.bin", b"x")))
    found = resolve_manifest(s3, OUTPUT, JOB)
    assert found == ResolvedManifest(URI, 7, "ab" * 32, {"accuracy": 0.97}, f"s3://{BUCKET}/{ARCHIVE}")


def test_the_layouts_are_tried_in_order(s3: S3Client) -> None:
    def manifest(name: str) -> bytes:
        return json.dumps({"checkpoint_s3_bucket": f"s3://escrow/{name}"}).encode()

    seen = []
    for key, body in [
        (HYPERPOD, manifest("hyperpod")),
        (UNPACKED_MODEL, manifest("model")),
        (SERVERLESS, manifest("serverless")),
        (MODEL_ARCHIVE, targz(("./manifest.json", manifest("packed-model")))),
        (ARCHIVE, targz(("manifest.json", manifest("archive")))),
    ]:
        put(s3, key, body)
        seen.append(resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri)
    order = ("hyperpod", "model", "serverless", "packed-model", "archive")
    assert seen == [f"s3://escrow/{name}" for name in order]


@pytest.mark.parametrize(
    ("checkpoint", "platform"),
    [
        (" s3://customer-escrow-111122223333-smtj-1a2b/job/step_40 ", "training-job"),
        ("s3://customer-escrow-111122223333-hp-1a2b/job/step_40", "hyperpod"),
        ("s3://customer-escrow-111122223333-smtj-1a2b/a-hp-b/step_40", "training-job"),
        ("s3://bucket/outputs-hp-1/step_40", "hyperpod"),
        ("s3://bucket/a-hp-b/c-smtj-d", None),
        ("s3://bucket/checkpoints/last", None),
    ],
)
def test_the_place_of_a_checkpoint_may_say_where_it_was_trained(
    s3: S3Client, checkpoint: str, platform: str | None
) -> None:
    put(s3, HYPERPOD, json.dumps({"checkpoint_s3_bucket": checkpoint}).encode())
    found = resolve_manifest(s3, OUTPUT, JOB)
    assert (found.checkpoint_uri, found.platform) == (checkpoint.strip(), platform)


def test_of_a_models_archive_only_the_beginning_is_looked_at(s3: S3Client) -> None:
    weights = random.Random(1).randbytes(MIB // 2)  # noqa: S311 - not for secrets
    put(s3, MODEL_ARCHIVE, targz(("weights.bin", weights), ("manifest.json", FOREIGN)))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI
    assert failure(s3, limits=Limits(model_bytes=MIB // 4)).kind is ManifestProblem.ABSENT
    put(s3, MODEL_ARCHIVE, targz(("manifest.json", FOREIGN), ("weights.bin", weights)))
    assert resolve_manifest(s3, OUTPUT, JOB, limits=Limits(model_bytes=MIB // 4)).checkpoint_uri == URI
    # In the archive of the output, a search that ends at a limit is an error: it hides no manifest.
    put(s3, ARCHIVE, targz(("weights.bin", weights), ("manifest.json", FOREIGN)))
    assert failure(s3, limits=Limits(read_bytes=MIB // 4)).kind is ManifestProblem.OVERSIZE


def test_a_damaged_archive_of_the_model_is_an_error(s3: S3Client) -> None:
    put(s3, MODEL_ARCHIVE, b"not gzip")
    assert failure(s3).kind is ManifestProblem.DAMAGED
    put(s3, MODEL_ARCHIVE, targz(("manifest.json", b" " * 70_000)))
    assert failure(s3).kind is ManifestProblem.OVERSIZE


@pytest.mark.parametrize("planted", [HYPERPOD, SERVERLESS, UNPACKED_MODEL, MODEL_ARCHIVE])
def test_a_file_beside_the_archive_of_the_job_never_replaces_its_manifest(s3: S3Client, planted: str) -> None:
    put(s3, ARCHIVE, targz(("manifest.json", OURS.to_json())))
    forged = json.dumps({"checkpoint_s3_bucket": "s3://elsewhere/forged", "round": 99}).encode()
    put(s3, planted, targz(("manifest.json", forged)) if planted == MODEL_ARCHIVE else forged)
    found = resolve_manifest(s3, OUTPUT, JOB)
    assert (found.checkpoint_uri, found.round, found.source_uri) == (URI, 7, f"s3://{BUCKET}/{ARCHIVE}")


def test_an_archive_without_a_manifest_leaves_the_other_places(s3: S3Client) -> None:
    put(s3, ARCHIVE, targz(("weights.bin", b"x")))
    assert failure(s3).kind is ManifestProblem.ABSENT
    put(s3, HYPERPOD, FOREIGN)
    assert resolve_manifest(s3, OUTPUT, JOB).source_uri == f"s3://{BUCKET}/{HYPERPOD}"


@pytest.mark.parametrize(
    ("output", "key"),
    [
        (f"s3://{BUCKET}", f"{JOB}/manifest.json"),
        (f"s3://{BUCKET}/", f"{JOB}/manifest.json"),
        (f"s3://{BUCKET}/out/", f"out/{JOB}/manifest.json"),
        (f"s3://{BUCKET}/a/b", f"a/b/{JOB}/manifest.json"),
    ],
)
def test_the_output_uri_may_have_no_prefix_or_end_in_a_slash(s3: S3Client, output: str, key: str) -> None:
    put(s3, key, FOREIGN)
    assert resolve_manifest(s3, output, JOB).source_uri == f"s3://{BUCKET}/{key}"


def test_an_output_uri_that_is_none_is_a_mistake_of_the_caller(s3: S3Client) -> None:
    with pytest.raises(ValueError, match="/somewhere"):
        resolve_manifest(s3, "/somewhere", JOB)


def test_a_job_that_left_nothing_is_absent_and_every_place_is_named(s3: S3Client) -> None:
    error = failure(s3)
    assert error.kind is ManifestProblem.ABSENT
    places = (
        "output/output/manifest.json",
        "output/model/manifest.json",
        "output/output.tar.gz",
        "output/model.tar.gz",
    )
    for place in (f"{BUCKET}/{FOLDER}/", *places):
        assert place in str(error)


def test_a_neighbours_manifest_is_not_taken(s3: S3Client) -> None:
    put(s3, f"output/demo/{JOB}0/manifest.json", FOREIGN)
    assert failure(s3).kind is ManifestProblem.ABSENT


def test_a_missing_bucket_is_absent() -> None:
    error = failure(MemoryCloud("another").client("s3"))
    assert error.kind is ManifestProblem.ABSENT
    assert "no bucket" in str(error)


def test_an_unreadable_manifest_is_an_error_even_if_another_layout_is_there(s3: S3Client) -> None:
    put(s3, ARCHIVE, targz(("manifest.json", b"{")))
    put(s3, HYPERPOD, FOREIGN)
    assert failure(s3).kind is ManifestProblem.NOT_JSON


# --- what counts as a manifest -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket/"),
        (" \n s3://bucket/key\t", "s3://bucket/key"),
        ("s3://bucket/schlüssel/模型", "s3://bucket/schlüssel/模型"),
        ("s3://bucket/with space", "s3://bucket/with space"),
    ],
)
def test_an_absolute_s3_uri_is_taken(s3: S3Client, value: str, expected: str) -> None:
    put(s3, HYPERPOD, json.dumps({"checkpoint_s3_bucket": value, "made_by": "others", "version": "3.1"}).encode())
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == expected


NO_URIS = [
    "",
    "  ",
    "checkpoints/final",
    "/opt/ml",
    "https://b/k",
    "file:///etc/passwd",
    "s3:/b/k",
    "s3://",
    "s3:///key",
]
NO_URIS += ["s3n://b/k", "S3://b/k", "s3://b/\x00", "s3://b/a\nb", "s3://b/" + "k" * 1024]


@pytest.mark.parametrize("value", [None, 7, True, ["s3://bucket/key"], {"uri": "s3://b"}, *NO_URIS])
def test_anything_else_is_refused_and_shown(s3: S3Client, value: object) -> None:
    put(s3, HYPERPOD, json.dumps({"checkpoint_s3_bucket": value}).encode())
    error = failure(s3)
    assert error.kind is ManifestProblem.NOT_A_MANIFEST
    assert isinstance(value, dict | list) or json.dumps(value)[:70] in str(error)
    assert len(str(error)) < 400


@pytest.mark.parametrize(
    "body", [b"[]", b'["s3://b/k"]', b"7", b"null", b'"s3://b/k"', b"{}", b'{"checkpoint": "s3://b"}']
)
def test_json_that_is_no_manifest_is_refused(s3: S3Client, body: bytes) -> None:
    put(s3, HYPERPOD, body)
    assert failure(s3).kind is ManifestProblem.NOT_A_MANIFEST


@pytest.mark.parametrize(
    "change",
    [
        {"round": -1},
        {"round": "7"},
        {"round": None},
        {"checksum": 7},
        {"round": -1, "metrics": {"loss": "low"}},
        {"version": 2},
    ],
)
def test_a_damaged_manifest_of_ours_does_not_pass_for_a_foreign_one(s3: S3Client, change: dict[str, Any]) -> None:
    put(s3, HYPERPOD, json.dumps(json.loads(OURS.to_json()) | change).encode())
    error = failure(s3)
    assert error.kind is ManifestProblem.NOT_A_MANIFEST
    assert next(iter(change)) in str(error)


def test_a_metric_beyond_a_float_is_refused(s3: S3Client) -> None:
    put(s3, HYPERPOD, OURS.to_json().replace(b"0.97", b"1e999"))
    assert failure(s3).kind is ManifestProblem.NOT_JSON


@pytest.mark.parametrize("body", [FOREIGN, OURS.to_json()])
def test_a_byte_order_mark_is_no_obstacle(s3: S3Client, body: bytes) -> None:
    put(s3, HYPERPOD, b"\xef\xbb\xbf" + body)
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


# --- honest archives of every kind ---------------------------------------------------------------------------------


@pytest.mark.parametrize("tar_format", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_tar_format_is_read_past_long_and_foreign_names(s3: S3Client, tar_format: int) -> None:
    # A slash where ustar may split a name into prefix and rest.
    long_name = "d" * 90 + "/" + "n" * 90
    before = [(long_name, b"x" * 700), ("größe.txt", b"y"), ("sub/manifest.json", b"not the root's"), ("empty", b"")]
    put(s3, ARCHIVE, targz(*before, ("manifest.json", FOREIGN), format=tar_format))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_pax_headers_of_the_archive_and_of_members_are_read(s3: S3Client) -> None:
    buffer = io.BytesIO()
    with tarfile.open(
        fileobj=buffer, mode="w:gz", format=tarfile.PAX_FORMAT, pax_headers={"comment": "global", "path": "not me"}
    ) as tar:
        for name, content in [("模型/权重.bin", bytes(3000)), ("manifest.json", FOREIGN)]:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            # Forces path and size into a pax header of the member, where they stand above the header's own.
            header.pax_headers = {
                "path": name,
                "size": str(len(content)),
                "mtime": "1.5",
                "SCHILY.xattr.user.a": "b\nc=d",
            }
            tar.addfile(header, io.BytesIO(content))
    put(s3, ARCHIVE, buffer.getvalue())
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_a_name_that_only_an_extension_header_has_is_the_manifests(s3: S3Client) -> None:
    """GNU tar may write any name as a long name; the header's own is then cut off."""
    extensions = b""
    # Other headers may stand between the name and its member.
    for kind, text in [
        (tarfile.GNUTYPE_LONGNAME, b"manifest.json\0"),
        (tarfile.GNUTYPE_LONGLINK, b"a link\0"),
        (tarfile.XGLTYPE, b"13 comment=x\n"),
    ]:
        header = tarfile.TarInfo("././@LongLink")
        header.type, header.size = kind, len(text)
        extensions += header.tobuf(tarfile.GNU_FORMAT) + text.ljust(512, b"\0")
    put(s3, ARCHIVE, gzipped(extensions + targz(("@" * 13, FOREIGN), mode="w", format=tarfile.GNU_FORMAT)))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_directories_links_and_fifos_before_the_manifest_are_passed_over(s3: S3Client) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind in [("./", tarfile.DIRTYPE), ("logs/", tarfile.DIRTYPE), ("latest", tarfile.SYMTYPE)]:
            header = tarfile.TarInfo(name)
            header.type, header.linkname = kind, "manifest.json"
            tar.addfile(header)
        for kind in (tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE):
            header = tarfile.TarInfo("odd")
            # A size that is no size: no data follows such a member.
            header.type, header.linkname, header.size = kind, "logs", 4096
            tar.addfile(header)
        header = tarfile.TarInfo("manifest.json")
        header.size = len(FOREIGN)
        tar.addfile(header, io.BytesIO(FOREIGN))
    put(s3, ARCHIVE, buffer.getvalue())
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_a_sparse_file_before_the_manifest_is_passed_over(s3: S3Client) -> None:
    """An old GNU sparse file with two blocks of sparse map after its header."""
    header = tarfile.TarInfo("sparse.bin")
    header.type, header.size = tarfile.GNUTYPE_SPARSE, 600
    block = bytearray(header.tobuf(tarfile.GNU_FORMAT))
    block[482] = 1
    block[148:156] = b"%06o\0 " % (sum(block[:148]) + 256 + sum(block[156:]))
    maps = bytes(504) + b"\1" + bytes(7) + bytes(512)
    put(s3, ARCHIVE, gzipped(bytes(block) + maps + b"m" * 1024 + targz(("manifest.json", FOREIGN), mode="w")))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_a_gzip_of_several_parts_is_one_archive(s3: S3Client) -> None:
    plain = targz(("first", bytes(5000)), ("manifest.json", FOREIGN), mode="w")
    put(s3, ARCHIVE, gzipped(plain[:3000]) + gzipped(plain[3000:]))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_of_two_manifests_the_first_wins_though_unpacking_would_leave_the_second(s3: S3Client) -> None:
    second = json.dumps({"checkpoint_s3_bucket": "s3://escrow/second"}).encode()
    put(s3, ARCHIVE, targz(("./manifest.json", FOREIGN), ("manifest.json", second)))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_a_manifest_after_ten_thousand_members_is_found(s3: S3Client) -> None:
    put(s3, ARCHIVE, targz(*((f"shard-{i}", b"") for i in range(10_000)), ("manifest.json", FOREIGN)))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def gzipped(plain: bytes) -> bytes:
    return gzip.compress(plain)


# --- what a network and S3 may do ----------------------------------------------------------------------------------


@dataclass
class Endpoint:
    """A loopback S3 that has GetObject and misbehaves at will."""

    objects: dict[str, bytes] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    statuses: dict[str, int] = field(default_factory=dict)
    cuts: Iterator[int] = field(default_factory=lambda: iter(()))  # after how many bytes the next answers break
    on_answer: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # by count: an object that is then replaced
    ranges: list[str] = field(default_factory=list)
    sent: int = 0
    url: str = ""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    endpoint: Endpoint

    def log_message(self, *_: object) -> None:  # the test's output stays clean
        pass

    def do_GET(self) -> None:
        endpoint, key = self.endpoint, self.path.partition("?")[0].removeprefix(f"/{BUCKET}/")
        if key in endpoint.denied:
            return self.refuse(403, "AccessDenied")
        if key in endpoint.statuses:
            return self.refuse(endpoint.statuses[key], "InternalError")
        if key not in endpoint.objects:
            return self.refuse(404, "NoSuchKey")
        body = endpoint.objects[key]
        etag = f'"{hash(body)}"'
        if self.headers.get("If-Match", etag) != etag:
            return self.refuse(412, "PreconditionFailed")
        wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers["Range"])
        assert wanted
        endpoint.ranges.append(self.headers["Range"])
        start, stop = int(wanted[1]), min(int(wanted[2] or len(body)) + 1, len(body))
        self.send_response(206)
        self.send_header("Content-Length", str(stop - start))
        self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(body)}")
        self.send_header("ETag", etag)
        cut = next(endpoint.cuts, None)
        if cut is not None:
            # Or the client may send its next request just before it learns that this connection is gone.
            self.send_header("Connection", "close")
        part = body[start : stop if cut is None else min(stop, start + cut)]
        # Before the answer: with it the client may go on, by another connection, too.
        endpoint.sent += len(part)
        for replaced, content in [endpoint.on_answer.pop(len(endpoint.ranges), (key, body))]:
            endpoint.objects[replaced] = content
        self.end_headers()
        self.wfile.write(part)
        return None

    def refuse(self, status: int, code: str) -> None:
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that has read enough hangs up; any other error the client sees, too."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    state = Endpoint()
    with serving(_Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"endpoint": state}))) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        yield state


@pytest.fixture
def remote(endpoint: Endpoint) -> Iterator[S3Client]:
    client = SESSION.client(
        "s3",
        endpoint_url=endpoint.url,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    yield client
    client.close()


def incompressible(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311 - not a secret


def late_manifest() -> bytes:
    return targz(("weights.bin", incompressible(3 << 20)), ("manifest.json", FOREIGN), compresslevel=1)


@pytest.mark.parametrize("key", [HYPERPOD, SERVERLESS, ARCHIVE])
def test_denied_is_never_taken_for_absent(endpoint: Endpoint, remote: S3Client, key: str) -> None:
    endpoint.denied.add(key)
    if key != HYPERPOD:
        endpoint.objects[HYPERPOD] = FOREIGN
    error = failure(remote)
    assert error.kind is ManifestProblem.DENIED
    assert error.uri == f"s3://{BUCKET}/{key}"
    assert "s3:GetObject" in str(error)


def test_an_answer_that_says_nothing_about_the_object_is_unavailable(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.statuses[HYPERPOD] = 500
    error = failure(remote)
    assert error.kind is ManifestProblem.UNAVAILABLE
    assert "500 InternalError" in str(error)


def test_an_endpoint_that_is_not_there_is_unavailable() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        port = server.server_port
    client = SESSION.client(
        "s3",
        endpoint_url=f"http://127.0.0.1:{port}",
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    assert failure(client).kind is ManifestProblem.UNAVAILABLE


def test_a_manifest_that_comes_first_costs_one_mebibyte_of_traffic(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = targz(("manifest.json", FOREIGN), ("weights.bin", incompressible(8 << 20)))
    assert resolve_manifest(remote, OUTPUT, JOB).checkpoint_uri == URI
    assert endpoint.ranges == ["bytes=0-1048575"]
    assert endpoint.sent <= 1 << 20


def test_a_manifest_that_comes_late_costs_one_more_request(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    assert resolve_manifest(remote, OUTPUT, JOB).checkpoint_uri == URI
    assert endpoint.ranges == ["bytes=0-1048575", "bytes=1048576-"]


def test_a_broken_transfer_is_resumed(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    endpoint.cuts = iter([700_000, 100_000, 1_000_000])
    assert resolve_manifest(remote, OUTPUT, JOB).checkpoint_uri == URI
    assert len(endpoint.ranges) >= 4
    assert endpoint.sent <= len(endpoint.objects[ARCHIVE]) + 4 * (256 << 10)


def test_a_transfer_that_keeps_breaking_is_reported(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    endpoint.cuts = itertools.repeat(0)
    error = failure(remote)
    assert error.kind is ManifestProblem.UNAVAILABLE
    assert "failed 4 times" in str(error)
    assert len(endpoint.ranges) == 4


def test_an_object_that_changes_while_it_is_read_is_not_mixed(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    endpoint.on_answer[1] = (ARCHIVE, targz(("weights.bin", incompressible(4 << 20)), ("manifest.json", FOREIGN)))
    error = failure(remote)
    assert error.kind is ManifestProblem.UNAVAILABLE
    assert "changed" in str(error)


def test_time_is_bounded(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    clock = TickingClock()
    with clock.install():
        error = failure(remote, limits=Limits(seconds=5))
    assert error.kind is ManifestProblem.TIMEOUT
    assert clock.reads <= 10


def test_what_is_read_of_an_archive_is_bounded(endpoint: Endpoint, remote: S3Client) -> None:
    endpoint.objects[ARCHIVE] = late_manifest()
    assert failure(remote, limits=Limits(read_bytes=300_000)).kind is ManifestProblem.OVERSIZE
