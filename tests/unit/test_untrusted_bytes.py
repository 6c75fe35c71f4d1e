"""Whatever bytes a user or a replica writes, reading them gives a document or one clear error, in bounded time."""

import gzip
import io
import json
import tarfile
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.sample_run import sample_run
from muster.contract.document import written_fields
from muster.contract.errors import DocumentError, SettingsError, SpecError
from muster.contract.run.commit import Commit, Member, parse_commit
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.control.aws.inbox import Inbox
from muster.control.manifest import Limits, ManifestError
from muster.control.manifest.archive import manifest_member
from muster.control.manifest.manifest_content import parse_manifest
from muster.control.runtime.clock import TimeBudget
from muster.control.start import Started, Starter
from muster.infra.settings.settings_file import parse_settings, parse_tables
from muster.infra.settings.stack_settings import Platform, StackSettings
from muster.replica.entry.unpack import ArchiveError, unpack
from muster.report.page_contents import make_page
from muster.report.page_html import page_json
from muster.report.page_model import RoundsView
from muster.report.rounds import RoundTable
from tests.memory.harness import SPEC, ControlHarness

TEXT_MAX = 20_000  # bytes of an error
NAMES = sorted(written_fields(Spec))

numbers = st.integers() | st.floats() | st.sampled_from([10**400, 1e308, float("nan")])
texts = st.text(max_size=20) | st.sampled_from(["0-3", "ml.g5.xlarge", "a.b:c", "s3://b/k", "\ud800", "x" * 3_000])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts | st.sampled_from(NAMES), inner, max_size=3),
    max_leaves=8,
)
specs = st.dictionaries(st.sampled_from(NAMES) | texts, values, max_size=4)
lines = st.lists(
    st.sampled_from(
        [
            *("replicas: 1", "trainer: a.b:c", "kwargs:", "  a: 07", "- b", "? c", "<<: *x", "&x", "!!int z", "'", '"'),
            *("{", "}", "[", "]", ": ", "\t", "%TAG", "---", "...", "1_0", "0x", "~", "\x00", "\ud800", "|", "12:30"),
        ]
    ),
    max_size=12,
).map("\n".join)


def refused(error: Exception) -> None:
    assert 0 < len(str(error).encode()) < TEXT_MAX
    assert all(line.isprintable() for line in str(error).split("\n"))


@settings(max_examples=50)
@given(specs)
def test_a_document_is_a_spec_or_is_refused_in_words(document: dict[str, Any]) -> None:
    for fields in (document, {**SPEC, **document}):
        try:
            spec = parse_spec(fields)
        except SpecError as error:
            refused(error)
        else:
            assert Spec.model_validate_json(spec.to_json()) == spec


@settings(max_examples=40)
@given(st.binary(max_size=60) | (lines | st.text(max_size=60)).map(lambda text: text.encode(errors="surrogatepass")))
def test_an_object_in_the_inbox_starts_a_run_or_gets_a_file_with_the_error(body: bytes) -> None:
    with ControlHarness().installed() as harness:
        starter = Starter(harness.executions, Inbox(harness.plane.store), harness.plane.bus)
        etag = harness.plane.store.s3.put_object(Bucket="bucket", Key="inbox/a", Body=body)["ETag"].strip('"')
        told = starter.from_inbox("inbox/a", etag)
        assert told in {Started.STARTED, Started.REFUSED}
        said = harness.cloud.s3.peek("bucket", "inbox/a.error.txt")
        assert (said is not None) is (told is Started.REFUSED)
        assert said is None or all(line.isprintable() for line in said.body.decode().split("\n"))
        assert len(harness.cloud.events.of("Run Refused")) == (told is Started.REFUSED)


def damaged(body: bytes) -> st.SearchStrategy[bytes]:
    """`body` with some of its bytes replaced, or cut off."""
    change = st.tuples(st.integers(0, len(body) - 1), st.binary(min_size=1, max_size=4))

    def apply(changes: list[tuple[int, bytes]]) -> bytes:
        found = bytearray(body)
        for at, new in changes:
            found[at : at + len(new)] = new
        return bytes(found)

    return st.lists(change, min_size=1, max_size=4).map(apply) | st.integers(0, len(body)).map(lambda end: body[:end])


def as_json(value: object) -> bytes:
    return json.dumps(value).encode()


SAMPLE = sample_run(2, 1)
MEMBER = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics={"loss": 1.0})
COMMIT = Commit(run="one", round=7, committed_at="2026-05-04T03:01:00Z", count=1, members=(MEMBER,), epochs=(1,))
FIELDS: dict[str, Any] = COMMIT.model_dump(mode="json")


@settings(max_examples=50)
@given(
    damaged(COMMIT.to_json())
    | st.dictionaries(st.sampled_from(sorted(FIELDS)), values, max_size=2).map(lambda more: as_json({**FIELDS, **more}))
    | st.dictionaries(st.sampled_from(sorted(FIELDS["members"][0])), values, max_size=2).map(
        lambda more: as_json({**FIELDS, "members": [{**FIELDS["members"][0], **more}]})
    )
)
def test_a_commit_is_shown_or_cannot_be_read(body: bytes) -> None:
    try:
        commit = parse_commit(body, "s3://bucket/rendezvous/one/commits/00000007.json")
    except DocumentError as error:
        refused(error)
        return
    table = RoundTable(2, "2026-05-04T03:00:00Z")
    table.add(commit)
    assert isinstance(table.view(), RoundsView)
    page = make_page(replace(SAMPLE, rounds=table.view()))
    json.loads(page_json(page), parse_constant=pytest.fail)


MANIFEST = {"checkpoint_s3_bucket": "s3://bucket/final", "round": 7, "checksum": "0" * 64, "metrics": {"loss": 1.0}}


@settings(max_examples=50)
@given(
    damaged(as_json(MANIFEST))
    | st.dictionaries(st.sampled_from(sorted(MANIFEST)), values, max_size=2).map(lambda more: as_json(MANIFEST | more))
    | st.binary(max_size=40)
)
def test_a_manifest_names_a_checkpoint_or_cannot_be_read(body: bytes) -> None:
    try:
        found = parse_manifest(body, "uri")
    except ManifestError as error:
        refused(error)
    else:
        assert found.checkpoint_uri.startswith("s3://")
        assert len(found.metrics) <= 32
        assert found.problem is None or len(found.problem) < 1_000


def tar_of(**files: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, body in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.pax_headers = len(body), {"comment": "é"}
            tar.addfile(member, io.BytesIO(body))
    return packed.getvalue()


@settings(max_examples=40)
@given(damaged(tar_of(a=b"x" * 600, b=b"")[:4_096]) | damaged(gzip.compress(tar_of(a=b"x"))))
def test_an_archive_is_unpacked_or_refused_in_words(stream: bytes) -> None:
    packed = stream if stream[:2] == b"\x1f\x8b" else gzip.compress(stream)
    with TemporaryDirectory() as folder:
        (Path(folder) / "code.tar.gz").write_bytes(packed)
        try:
            unpack(Path(folder) / "code.tar.gz", Path(folder) / "out")
        except ArchiveError as error:
            refused(error)
    try:
        manifest_member(io.BufferedReader(io.BytesIO(packed)), "uri", Limits(), TimeBudget.of(10))
    except ManifestError as error:
        refused(error)


def is_unicode(document: object) -> bool:
    """Whether a TOML file can hold the document's texts."""
    return "\\ud" not in ascii(document)


tables = st.sampled_from(sorted(StackSettings.model_fields))
toml = st.lists(
    tables.map(lambda name: f"[{name}]")
    | st.sampled_from(["region = 'x'", "tags = {a = 1}", "a.b.c = 1", "[[", "]", "="])
    | st.text(max_size=10),
    max_size=6,
).map("\n".join)


@settings(max_examples=40)
@given(toml | st.dictionaries(tables, values, max_size=2).filter(is_unicode))
def test_settings_are_read_or_refused_in_words(found: str | dict[str, Any]) -> None:
    try:
        document = parse_tables(found) if isinstance(found, str) else found
        parse_settings(document, Platform.AWS, found if isinstance(found, str) else "")
    except SettingsError as error:
        refused(error)
