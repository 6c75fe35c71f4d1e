"""Fetching a run's model: whole, verified, continued after an interruption, and nothing overwritten."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import boto3
import pytest
from pydantic import ValidationError

from muster.client.cli import model_command
from muster.client.cli.plain_text import result_lines
from muster.client.errors import (
    ClientError,
    DamagedModelError,
    ModelFileError,
    ModelFolderError,
    ModelPendingError,
    NoModelError,
    UnreachableError,
)
from muster.client.runs import model_download
from muster.client.runs.model_download import FetchedModel, ModelDownload
from muster.client.sdk import Muster, Run
from muster.contract.layout import RunLayout
from muster.contract.run.continuation import Continuation
from muster.contract.run.model import ModelFile, ModelKind, ModelManifest, ModelResult
from muster.contract.run.result import Result, Verdict
from tests.memory.cloud import MemoryCloud
from tests.memory.harness import RUN, ControlHarness
from tests.support.memory_client import client_of

FILES = {
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 4_000,
    "model-00002-of-00002.safetensors": b"tail" * 1_000,
    "nested/merges.txt": b"a b\n",
    "empty.txt": b"",
}
SIZE = sum(map(len, FILES.values()))


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def put(cloud: MemoryCloud, key: str, body: bytes) -> None:
    cloud.client("s3").put_object(Bucket=cloud.bucket, Key=key, Body=body)


def store(cloud: MemoryCloud, run: str = RUN) -> ModelResult:
    """Put a model into the bucket; returns what its run's result says."""
    layout = RunLayout(run)
    for name, body in FILES.items():
        put(cloud, layout.model + name, body)
    files = [
        ModelFile(name=name, bytes=len(body), sha256=hashlib.sha256(body).hexdigest()) for name, body in FILES.items()
    ]
    kind = ModelKind.MODEL
    body = ModelManifest(run=run, round=9, kind=kind, checksum="ab" * 32, rank=0, files=tuple(files)).to_json()
    put(cloud, layout.model_manifest(9), body)
    return ModelResult(
        uri=f"s3://{cloud.bucket}/{layout.model}",
        kind=kind,
        round=9,
        bytes=SIZE,
        files=len(files),
        checksum="ab" * 32,
        manifest=f"s3://{cloud.bucket}/{layout.model_manifest(9)}",
        manifest_sha256=hashlib.sha256(body).hexdigest(),
    )


def download(cloud: MemoryCloud, folder: Path) -> ModelDownload:
    return ModelDownload(client_of(cloud), RUN, store(cloud), folder)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_file_is_fetched_under_its_name_and_counted(tmp_path: Path) -> None:
    progress: list[int] = []
    fetched = download(MemoryCloud(), tmp_path / "new").fetch(progress.append)
    assert content(tmp_path / "new") == FILES
    assert (fetched.bytes, fetched.fetched_bytes, sum(progress)) == (SIZE, SIZE, SIZE)
    assert fetched.files == tuple(FILES)


def test_what_is_there_is_not_fetched_again(tmp_path: Path) -> None:
    cloud = MemoryCloud()
    download(cloud, tmp_path).fetch()
    again = download(cloud, tmp_path)
    assert again.present_bytes == again.total_bytes == SIZE
    cloud.calls.reset()
    assert again.fetch().fetched_bytes == 0
    assert not cloud.calls.counts()


def test_an_interrupted_download_is_continued_where_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud, name = MemoryCloud(), "model-00001-of-00002.safetensors"
    monkeypatch.setattr(model_download, "_READ_BYTES", 1_000)
    begun = download(cloud, tmp_path)

    def interrupt(_: int) -> None:
        if (tmp_path / f"{name}.part").exists() and (tmp_path / f"{name}.part").stat().st_size > 100_000:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        begun.fetch(interrupt)
    there = (tmp_path / f"{name}.part").stat().st_size
    assert 100_000 < there < len(FILES[name])
    continued = download(cloud, tmp_path)
    assert continued.present_bytes >= there
    fetched = continued.fetch()
    assert fetched.fetched_bytes == SIZE - continued.present_bytes
    assert content(tmp_path) == FILES


def test_a_broken_transfer_continues_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = MemoryCloud()
    ready = download(cloud, tmp_path)
    cloud.s3.interruptions = [10, 0, 1_000, 7]
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert ready.fetch().fetched_bytes == SIZE
    assert content(tmp_path) == FILES


def test_a_connection_that_stays_broken_ends_the_command_and_what_was_fetched_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud = MemoryCloud()
    ready = download(cloud, tmp_path)
    cloud.s3.interruptions = [500] * 4 + [0] * 100
    monkeypatch.setattr("time.sleep", lambda _: None)
    with pytest.raises(UnreachableError):
        ready.fetch()
    cloud.s3.interruptions = []
    again = download(cloud, tmp_path)
    assert again.present_bytes > 0
    again.fetch()
    assert content(tmp_path) == FILES


def test_a_file_that_is_another_one_is_not_overwritten_and_nothing_is_fetched(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("mine")
    with pytest.raises(ModelFolderError, match=r"config.json exists and is not the file of the model.*--out"):
        download(MemoryCloud(), tmp_path)
    assert content(tmp_path) == {"config.json": b"mine"}


def test_a_full_disk_is_noticed_before_and_while_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = MemoryCloud()
    real = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(total=real.total, used=real.used, free=10))
    with pytest.raises(ModelFolderError, match=r"1,028,006 bytes are missing, and its disk has 10 bytes free"):
        download(cloud, tmp_path / "new")
    monkeypatch.undo()
    ready = download(cloud, tmp_path / "new")
    (tmp_path / "new").write_text("a file, where the folder should be")
    with pytest.raises(ModelFileError, match=r"cannot be written: .*What was fetched stays"):
        ready.fetch()


@pytest.mark.parametrize("damage", [b"{ }", None, b"{}{}"])
def test_a_file_that_has_changed_in_the_bucket_is_not_kept(tmp_path: Path, damage: bytes | None) -> None:
    cloud = MemoryCloud()
    ready = download(cloud, tmp_path)
    key = RunLayout(RUN).model + "config.json"
    if damage is None:
        cloud.client("s3").delete_object(Bucket=cloud.bucket, Key=key)
    else:
        put(cloud, key, damage)
    if damage == b"{}{}":
        # Longer than the list says: the rest is not asked for.
        ready.fetch()
        return
    with pytest.raises(DamagedModelError):
        ready.fetch()
    assert not (tmp_path / "config.json").exists()


def test_a_list_that_is_not_the_one_of_the_result_is_refused(tmp_path: Path) -> None:
    cloud = MemoryCloud()
    model = store(cloud)
    put(cloud, RunLayout(RUN).model_manifest(9), b"{}")
    with pytest.raises(DamagedModelError, match="is not the list of the run's result"):
        ModelDownload(client_of(cloud), RUN, model, tmp_path)


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a//b", "a/../../b", "..", "C:/x", "a\\b", "a\nb", ""])
def test_no_name_in_a_list_leads_out_of_the_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        ModelFile(name=name, bytes=1, sha256="0" * 64)


# --- which run's model ------------------------------------------------------------------------------


def named(harness: ControlHarness, run: str = RUN) -> Run:
    muster = Muster("Muster", boto3.Session())
    muster._cloud = client_of(harness.cloud)
    return Run(muster, run)


def end(
    harness: ControlHarness, run: str, verdict: Verdict, model: ModelResult | None, problem: str | None = None
) -> None:
    result = Result(
        run=run,
        verdict=verdict,
        reason="2 of 2 replicas succeeded" if verdict is Verdict.SUCCEEDED else "the quorum was lost",
        settled_at="2100-01-01T00:00:00Z",
        replicas=(),
        reruns=0,
        model=model,
        model_problem=problem,
    )
    put(harness.cloud, RunLayout(run).result, result.to_json())


def test_a_run_that_has_not_ended_has_no_model_yet(harness: ControlHarness) -> None:
    harness.plan()
    with pytest.raises(ModelPendingError, match="has not ended: its model is written when the last replicas finish"):
        named(harness).model()


def test_the_model_of_a_failed_run_is_that_of_the_run_that_continues_it(harness: ControlHarness) -> None:
    harness.plan()
    end(harness, RUN, Verdict.FAILED, None)
    with pytest.raises(NoModelError, match=r"it failed: the quorum was lost\. `muster rerun one` continues it"):
        named(harness).model()
    continued_by = Continuation(run="one-2", execution_arn=harness.cloud.workflow.execution_arn("one-2"))
    put(harness.cloud, RunLayout(RUN).continued_by, continued_by.to_json())
    harness.plan("one-2")
    with pytest.raises(ModelPendingError, match="The run one-2 has not ended"):
        named(harness).model()
    end(harness, "one-2", Verdict.SUCCEEDED, store(harness.cloud, "one-2"))
    assert named(harness).model().uri == "s3://bucket/output/one-2/model/"


@pytest.mark.parametrize(("problem", "said"), [(None, "its trainer leaves none"), ("it went wrong.", "it went wrong.")])
def test_a_run_without_a_model_says_why(harness: ControlHarness, problem: str | None, said: str) -> None:
    harness.plan()
    end(harness, RUN, Verdict.SUCCEEDED, None, problem)
    with pytest.raises(NoModelError, match=f"The run {RUN} has no model: {said}"):
        named(harness).model()


def test_the_download_of_a_run_says_which_run_wrote_it(harness: ControlHarness, tmp_path: Path) -> None:
    harness.plan()
    end(harness, RUN, Verdict.SUCCEEDED, store(harness.cloud))
    fetched = named(harness).model_download(tmp_path / "it").fetch()
    assert isinstance(fetched, FetchedModel)
    assert json.loads(fetched.to_line())["run"] == RUN
    assert content(tmp_path / "it") == FILES


def test_every_error_is_one_of_the_clients() -> None:
    for kind in (DamagedModelError, ModelFileError, ModelFolderError, ModelPendingError, NoModelError):
        assert issubclass(kind, ClientError)


def test_what_is_shown_of_a_model_is_safe_and_says_how_to_get_it(
    harness: ControlHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = store(harness.cloud).model_copy(update={"evaluation": {"loss": 0.25}})
    harness.plan()
    end(harness, RUN, Verdict.SUCCEEDED, model)
    line = f"model: 1.03 MB after round 9 in 5 files, loss 0.25; `muster model {RUN}` fetches it"
    assert list(result_lines(named(harness).result()))[1:3] == [line, f"    {model.uri}"]
    assert model_command._fetch(named(harness).model_download(tmp_path)).fetched_bytes == SIZE
    # Standard error is no terminal: nothing is drawn.
    assert capsys.readouterr() == ("", "")
