"""The manifest resolver against S3: the layouts, what counts as a manifest, and what a network may do."""

from __future__ import annotations

import io
import json
import random
import tarfile
from collections.abc import Iterator
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from muster.contract.run.run_document import Manifest
from muster.control.manifest import Limits, ManifestError, ManifestProblem, ResolvedManifest, resolve_manifest
from muster.control.manifest.manifest_content import URI_MAX, parse_manifest
from tests.memory import AwsError, Fault, MemoryCloud
from tests.memory.calls import Call
from tests.memory.clock import TickingClock
from tests.support.s3_server import BUCKET, S3Server, s3_server

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MIB = 1 << 20
JOB = "muster-demo-r0-a1"
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


@pytest.fixture
def s3() -> S3Client:
    client: S3Client = MemoryCloud(BUCKET).client("s3")
    return client


def targz(*members: tuple[str, bytes], headers: dict[str, dict[str, Any]] | None = None, **options: Any) -> bytes:
    """An archive. `headers`: what the headers of members with these names have besides."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz", **options) as tar:
        for name, content in members:
            header = tarfile.TarInfo(name)
            header.size = len(content)
            for field, value in (headers or {}).get(name, {}).items():
                setattr(header, field, value)
            tar.addfile(header, io.BytesIO(content) if content else None)
    return buffer.getvalue()


def put(s3: S3Client, key: str, body: bytes) -> None:
    s3.put_object(Bucket=BUCKET, Key=key, Body=body)


def manifest_of(checkpoint: object) -> bytes:
    return json.dumps({"checkpoint_s3_bucket": checkpoint}).encode()


def failure(s3: S3Client, **options: Any) -> ManifestError:
    with pytest.raises(ManifestError) as caught:
        resolve_manifest(s3, OUTPUT, JOB, **options)
    return caught.value


# --- the layouts ---------------------------------------------------------------------------------------------------


def test_a_manifest_is_found_in_each_place_and_in_their_order(s3: S3Client) -> None:
    places = [
        (HYPERPOD, manifest_of("s3://escrow/0")),
        (UNPACKED_MODEL, manifest_of("s3://escrow/1")),
        (SERVERLESS, manifest_of("s3://escrow/2")),
        (MODEL_ARCHIVE, targz(("./manifest.json", manifest_of("s3://escrow/3")))),
        (ARCHIVE, targz(("weights.bin", bytes(100_000)), ("././manifest.json", manifest_of("s3://escrow/4")))),
    ]
    for number, (key, body) in enumerate(places):
        put(s3, key, body)
        found = resolve_manifest(s3, OUTPUT, JOB)
        assert found == ResolvedManifest(f"s3://escrow/{number}", None, None, {}, f"s3://{BUCKET}/{key}")


def test_the_place_of_a_checkpoint_may_say_where_it_was_trained(s3: S3Client) -> None:
    for checkpoint, platform in (
        ("s3://customer-escrow-111122223333-smtj-1a2b/a-hp-b/step_40", "training-job"),
        (" s3://customer-escrow-111122223333-hp-1a2b/job/step_40 ", "hyperpod"),
        ("s3://bucket/a-hp-b/c-smtj-d", None),
    ):
        put(s3, HYPERPOD, manifest_of(checkpoint))
        assert resolve_manifest(s3, OUTPUT, JOB).platform == platform, checkpoint


def test_of_a_models_archive_only_the_beginning_is_looked_at(s3: S3Client) -> None:
    weights = incompressible(MIB // 2)
    put(s3, MODEL_ARCHIVE, targz(("weights.bin", weights), ("manifest.json", FOREIGN)))
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI
    assert failure(s3, limits=Limits(model_bytes=MIB // 4)).kind is ManifestProblem.ABSENT
    put(s3, MODEL_ARCHIVE, targz(("manifest.json", FOREIGN), ("weights.bin", weights)))
    assert resolve_manifest(s3, OUTPUT, JOB, limits=Limits(model_bytes=MIB // 4)).checkpoint_uri == URI
    # In the archive of the output, a search that ends at a limit is an error: it hides no manifest.
    put(s3, ARCHIVE, targz(("weights.bin", weights), ("manifest.json", FOREIGN)))
    assert failure(s3, limits=Limits(read_bytes=MIB // 4)).kind is ManifestProblem.OVERSIZE


def test_an_archive_without_a_manifest_leaves_the_other_places_and_one_that_cannot_be_read_does_not(
    s3: S3Client,
) -> None:
    put(s3, ARCHIVE, targz(("weights.bin", b"x")))
    assert failure(s3).kind is ManifestProblem.ABSENT
    put(s3, HYPERPOD, FOREIGN)
    assert resolve_manifest(s3, OUTPUT, JOB).source_uri == f"s3://{BUCKET}/{HYPERPOD}"
    put(s3, ARCHIVE, targz(("manifest.json", b"{")))
    assert failure(s3).kind is ManifestProblem.NOT_JSON


def test_the_output_uri_may_have_no_prefix_or_end_in_a_slash(s3: S3Client) -> None:
    keys = {"": JOB, "/": JOB, "/out/": f"out/{JOB}", "/a/b": f"a/b/{JOB}"}
    for key in keys.values():
        put(s3, f"{key}/manifest.json", FOREIGN)
    found = {end: resolve_manifest(s3, f"s3://{BUCKET}{end}", JOB).source_uri for end in keys}
    assert found == {end: f"s3://{BUCKET}/{key}/manifest.json" for end, key in keys.items()}
    with pytest.raises(ValueError, match="/somewhere"):
        resolve_manifest(s3, "/somewhere", JOB)


def test_a_job_that_left_nothing_is_absent_and_every_place_is_named(s3: S3Client) -> None:
    put(s3, f"output/demo/{JOB}0/manifest.json", FOREIGN)  # a neighbour's
    error = failure(s3)
    assert error.kind is ManifestProblem.ABSENT
    places = (
        *("output/output/manifest.json", "output/model/manifest.json", "output/output.tar.gz", "output/model.tar.gz"),
        f"{BUCKET}/{FOLDER}/",
    )
    assert [place for place in places if place not in str(error)] == []
    assert failure(MemoryCloud("another").client("s3")).kind is ManifestProblem.ABSENT


# --- what counts as a manifest -------------------------------------------------------------------------------------


NO_URIS = [
    *("", "  ", "checkpoints/final", "/opt/ml", "https://b/k", "file:///etc/passwd", "s3:/b/k", "s3://", "s3:///key"),
    *("s3n://b/k", "S3://b/k", "s3://b/\x00", "s3://b/a\nb", f"s3://{'b' * (URI_MAX - 4)}"),
    *(None, 7, True, ["s3://bucket/key"], {"uri": "s3://b"}),
]


def refused(body: bytes) -> ManifestError | None:
    """Why a manifest is refused."""
    try:
        parse_manifest(body, "uri")
    except ManifestError as error:
        return error
    return None


def test_anything_else_is_refused_and_shown() -> None:
    for value in NO_URIS:
        error = refused(manifest_of(value))
        assert error is not None, value
        assert error.kind is ManifestProblem.NOT_A_MANIFEST, value
        assert isinstance(value, dict | list) or json.dumps(value)[:70] in str(error)
        assert len(str(error)) < 400, value
    for body in (b"[]", b'["s3://b/k"]', b"7", b"null", b'"s3://b/k"', b"{}", b'{"checkpoint": "s3://b"}'):
        error = refused(body)
        assert error is not None, body
        assert error.kind is ManifestProblem.NOT_A_MANIFEST, body


def test_a_damaged_manifest_of_ours_does_not_pass_for_a_foreign_one() -> None:
    changes: list[dict[str, Any]] = [
        {"round": -1},
        {"round": "7"},
        {"round": None},
        {"checksum": 7},
        {"round": -1, "metrics": {"loss": "low"}},
        {"version": 2},
    ]
    for change in changes:
        error = refused(json.dumps(json.loads(OURS.to_json()) | change).encode())
        assert error is not None, change
        assert error.kind is ManifestProblem.NOT_A_MANIFEST, change
        assert next(iter(change)) in str(error)
    beyond_a_float = refused(OURS.to_json().replace(b"0.97", b"1e999"))
    assert beyond_a_float is not None
    assert beyond_a_float.kind is ManifestProblem.NOT_JSON


# --- honest archives of every kind ---------------------------------------------------------------------------------


def assert_is_read(s3: S3Client, archive: bytes) -> None:
    put(s3, ARCHIVE, archive)
    assert resolve_manifest(s3, OUTPUT, JOB).checkpoint_uri == URI


def test_every_tar_format_is_read_past_long_and_foreign_names(s3: S3Client) -> None:
    # A slash where ustar may split a name into prefix and rest.
    long_name = "d" * 90 + "/" + "n" * 90
    before = [(long_name, b"x" * 700), ("größe.txt", b"y"), ("sub/manifest.json", b"not the root's"), ("empty", b"")]
    for tar_format in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert_is_read(s3, targz(*before, ("manifest.json", FOREIGN), format=tar_format))


def test_pax_headers_of_the_archive_and_of_members_are_read(s3: S3Client) -> None:
    members = ("模型/权重.bin", bytes(3000)), ("manifest.json", FOREIGN)
    # Path and size in a pax header of the member stand above the header's own.
    own = {
        name: {
            "pax_headers": {"path": name, "size": str(len(content)), "mtime": "1.5", "SCHILY.xattr.user.a": "b\nc=d"}
        }
        for name, content in members
    }
    of_all = {"comment": "global", "path": "not me"}
    assert_is_read(s3, targz(*members, headers=own, format=tarfile.PAX_FORMAT, pax_headers=of_all))


def test_directories_links_and_fifos_before_the_manifest_are_passed_over(s3: S3Client) -> None:
    # A size that is no size: no data follows such a member.
    odd = [
        {"type": kind, "linkname": "logs", "size": 4096}
        for kind in (tarfile.LNKTYPE, tarfile.FIFOTYPE, tarfile.CHRTYPE)
    ]
    headers = {
        **{name: {"type": tarfile.DIRTYPE} for name in ("./", "logs/")},
        "latest": {"type": tarfile.SYMTYPE, "linkname": "manifest.json"},
        **{f"odd{number}": fields for number, fields in enumerate(odd)},
    }
    members = [(name, b"") for name in headers]
    assert_is_read(s3, targz(*members, ("manifest.json", FOREIGN), headers=headers))


# --- what a network and S3 may do ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def endpoint() -> Iterator[S3Server]:
    """S3 on a socket."""
    with s3_server() as server:
        yield server


@pytest.fixture(scope="module")
def client(endpoint: S3Server) -> Iterator[S3Client]:
    config = Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1})
    url = f"http://127.0.0.1:{endpoint.port}"
    client = boto3.Session("test", "test", region_name="us-east-1").client("s3", endpoint_url=url, config=config)
    yield client
    client.close()


@pytest.fixture
def remote(endpoint: S3Server, client: S3Client) -> S3Client:
    """A client of the endpoint, where there is an archive whose manifest comes late."""
    endpoint.requests.clear()
    endpoint.cut.clear()
    endpoint.before.clear()
    endpoint.put(ARCHIVE, late_manifest())
    return client


@cache
def incompressible(size: int) -> bytes:
    return random.Random(size).randbytes(size)  # noqa: S311 - not a secret


@cache
def late_manifest(size: int = 3 * MIB) -> bytes:
    return targz(("weights.bin", incompressible(size)), ("manifest.json", FOREIGN), compresslevel=1)


def ranges(endpoint: S3Server) -> list[str]:
    return [request.headers["range"] for request in endpoint.requests]


def _is_for(key: str, call: Call) -> bool:
    return bool(call.parameters["Key"] == key)


def test_denied_is_never_taken_for_absent() -> None:
    memory = MemoryCloud(BUCKET)
    client: S3Client = memory.client("s3")
    put(client, HYPERPOD, FOREIGN)
    for key in (HYPERPOD, SERVERLESS, ARCHIVE):
        concerned = partial(_is_for, key)
        memory.calls.inject(Fault("GetObject", AwsError("AccessDenied", "no", 403), when=concerned))
        error = failure(client)
        assert (error.kind, error.uri) == (ManifestProblem.DENIED, f"s3://{BUCKET}/{key}")
        assert "s3:GetObject" in str(error)


def test_an_endpoint_that_breaks_every_connection_is_unavailable(endpoint: S3Server, remote: S3Client) -> None:
    endpoint.cut[ARCHIVE] = [0] * 4
    error = failure(remote)
    assert error.kind is ManifestProblem.UNAVAILABLE
    assert "failed 4 times" in str(error)
    assert len(ranges(endpoint)) == 4


def test_a_manifest_costs_one_request_or_two_and_a_broken_transfer_is_resumed(
    endpoint: S3Server, remote: S3Client
) -> None:
    assert resolve_manifest(remote, OUTPUT, JOB).checkpoint_uri == URI
    assert ranges(endpoint) == ["bytes=0-1048575", "bytes=1048576-"]
    endpoint.requests.clear()
    # Twice in the first range, whose third answer is whole, and once in the second one.
    endpoint.cut[ARCHIVE] = [700_000, 100_000, MIB, MIB]
    assert resolve_manifest(remote, OUTPUT, JOB).checkpoint_uri == URI
    begins = [int(asked.removeprefix("bytes=").partition("-")[0]) for asked in ranges(endpoint)]
    assert begins == [0, 700_000, 800_000, MIB, 2 * MIB], "nothing is read again"


def test_an_object_that_changes_while_it_is_read_is_not_mixed(endpoint: S3Server, remote: S3Client) -> None:
    other = late_manifest(2 * MIB)

    def change_before_the_second_request() -> None:
        endpoint.before["GET", ARCHIVE] = lambda: endpoint.put(ARCHIVE, other)

    endpoint.before["GET", ARCHIVE] = change_before_the_second_request
    error = failure(remote)
    assert error.kind is ManifestProblem.UNAVAILABLE
    assert "changed" in str(error)


def test_time_and_what_is_read_of_an_archive_are_bounded(s3: S3Client) -> None:
    put(s3, ARCHIVE, late_manifest())
    assert failure(s3, limits=Limits(read_bytes=300_000)).kind is ManifestProblem.OVERSIZE
    clock = TickingClock()
    with clock.install():
        error = failure(s3, limits=Limits(seconds=5))
    assert error.kind is ManifestProblem.TIMEOUT
    assert clock.reads <= 10
