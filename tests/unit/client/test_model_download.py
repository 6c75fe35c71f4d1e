"""Fetching a run's model: whole, verified, continued after an interruption, and nothing overwritten."""

import hashlib
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from muster.client.cli import model_command
from muster.client.cli.plain_text import result_lines
from muster.client.client_errors import (
    DamagedModelError,
    ModelFileError,
    ModelFolderError,
    ModelPendingError,
    NoModelError,
    UnreachableError,
)
from muster.client.runs import model_download
from muster.client.runs.model_download import ModelDownload
from muster.client.sdk import Run
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout
from muster.contract.run.continuation import Continuation
from muster.contract.run.model import ModelFile, ModelKind, ModelManifest, ModelResult
from muster.contract.run.result import Result, Verdict
from tests.memory.cloud import MemoryCloud
from tests.memory.harness import RUN, ControlHarness
from tests.support.memory_client import client_of, muster_of, put

FILES = {
    "config.json": b"{}",
    "model-00001-of-00002.safetensors": bytes(range(256)) * 4_000,
    "model-00002-of-00002.safetensors": b"tail" * 1_000,
    "nested/merges.txt": b"a b\n",
    "empty.txt": b"",
}
SIZE = sum(map(len, FILES.values()))


def store(cloud: MemoryCloud, run: str = RUN) -> ModelResult:
    """Put a model into the bucket; returns what its run's result says."""
    layout, kind, checksum = RunLayout(run), ModelKind.MODEL, "ab" * 32
    files = []
    for name, body in FILES.items():
        put(cloud, layout.model + name, body)
        files.append(ModelFile(name=name, bytes=len(body), sha256=hashlib.sha256(body).hexdigest()))
    body = ModelManifest(run=run, round=9, kind=kind, checksum=checksum, rank=0, files=tuple(files)).to_json()
    put(cloud, layout.model_manifest(9), body)
    return ModelResult(
        uri=f"s3://{cloud.bucket}/{layout.model}",
        kind=kind,
        round=9,
        bytes=SIZE,
        files=len(files),
        checksum=checksum,
        manifest=f"s3://{cloud.bucket}/{layout.model_manifest(9)}",
        manifest_sha256=hashlib.sha256(body).hexdigest(),
    )


def download(cloud: MemoryCloud, folder: Path) -> ModelDownload:
    return ModelDownload(client_of(cloud), RUN, store(cloud), folder)


def content(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_every_file_is_fetched_under_its_name_and_none_that_is_there(tmp_path: Path) -> None:
    cloud, progress = MemoryCloud(), list[int]()
    fetched = download(cloud, tmp_path).fetch(progress.append)
    assert content(tmp_path) == FILES
    assert (fetched.bytes, fetched.fetched_bytes, sum(progress), fetched.files) == (SIZE, SIZE, SIZE, tuple(FILES))
    again = download(cloud, tmp_path)
    cloud.calls.reset()
    assert (again.present_bytes, again.fetch().fetched_bytes) == (SIZE, 0)
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
    monkeypatch.setattr("time.sleep", lambda _: None)
    cloud = MemoryCloud()
    ready = download(cloud, tmp_path)
    cloud.s3.interruptions = [10, 0, 1_000, 7]
    assert ready.fetch().fetched_bytes == SIZE
    assert content(tmp_path) == FILES
    # A connection that stays broken ends the command, and what was fetched stays.
    ready = download(cloud, tmp_path / "second")
    cloud.s3.interruptions = [500] * 4 + [0] * 100
    with pytest.raises(UnreachableError):
        ready.fetch()
    cloud.s3.interruptions = []
    again = download(cloud, tmp_path / "second")
    assert again.present_bytes > 0
    again.fetch()
    assert content(tmp_path / "second") == FILES


def test_a_download_that_failed_is_continued_by_calling_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    cloud, progress = MemoryCloud(), list[int]()
    ready = download(cloud, tmp_path)
    cloud.s3.interruptions = [500] * 4 + [0] * 100
    with pytest.raises(UnreachableError):
        ready.fetch()
    cloud.s3.interruptions = []
    there = sum(map(len, content(tmp_path).values()))
    fetched = ready.fetch(progress.append)
    assert content(tmp_path) == FILES
    assert fetched.fetched_bytes == sum(progress) == SIZE - there
    assert ready.fetch().fetched_bytes == 0


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


def test_a_file_that_has_changed_in_the_bucket_is_not_kept(tmp_path: Path) -> None:
    cloud, key = MemoryCloud(), RunLayout(RUN).model + "config.json"
    for damage in (b"{ }", None):
        ready = download(cloud, tmp_path)
        if damage is None:
            cloud.client("s3").delete_object(Bucket=cloud.bucket, Key=key)
        else:
            put(cloud, key, damage)
        with pytest.raises(DamagedModelError):
            ready.fetch()
        assert not (tmp_path / "config.json").exists()
    longer = download(cloud, tmp_path)
    put(cloud, key, b"{}{}")
    # The rest is not asked for.
    longer.fetch()
    assert content(tmp_path) == FILES


def test_a_list_that_is_not_the_one_of_the_result_is_refused(tmp_path: Path) -> None:
    cloud = MemoryCloud()
    model = store(cloud)
    put(cloud, RunLayout(RUN).model_manifest(9), b"{}")
    with pytest.raises(DamagedModelError, match="is not the list of the run's result"):
        ModelDownload(client_of(cloud), RUN, model, tmp_path)


def test_no_name_in_a_list_leads_out_of_the_folder() -> None:
    for name in ("../evil", "/etc/passwd", "a//b", "a/../../b", "..", "C:/x", "a\\b", "a\nb", ""):
        with pytest.raises(ValidationError):
            ModelFile(name=name, bytes=1, sha256="0" * 64)


# --- which run's model ------------------------------------------------------------------------------


def named(harness: ControlHarness) -> Run:
    return muster_of(harness.cloud).run(RUN)


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


def test_the_model_of_a_failed_run_is_that_of_the_run_that_continues_it(harness: ControlHarness) -> None:
    harness.plan()
    end(harness, RUN, Verdict.FAILED, None)
    with pytest.raises(NoModelError, match=r"it failed: the quorum was lost\. `muster continue one` continues it"):
        named(harness).model()
    continued_by = Continuation(run="one-2", execution_arn=harness.cloud.workflow.execution_arn("one-2"))
    put(harness.cloud, RunLayout(RUN).continued_by, continued_by.to_json())
    harness.plan("one-2")
    with pytest.raises(ModelPendingError, match="The run one-2 has not ended"):
        named(harness).model()
    end(harness, "one-2", Verdict.SUCCEEDED, store(harness.cloud, "one-2"))
    assert named(harness).model().uri == "s3://bucket/output/one-2/model/"


def test_a_run_without_a_model_says_why(harness: ControlHarness) -> None:
    harness.plan()
    with pytest.raises(ModelPendingError, match=f"The run {RUN} has not ended"):
        named(harness).model()
    for problem, said in ((None, "its trainer leaves none"), ("it went wrong.", r"it went wrong\.")):
        end(harness, RUN, Verdict.SUCCEEDED, None, problem)
        with pytest.raises(NoModelError, match=f"The run {RUN} has no model: {said}"):
            named(harness).model()


def test_what_is_shown_of_a_model_says_how_to_get_it(
    harness: ControlHarness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = store(harness.cloud).model_copy(update={"evaluation": {"loss": 0.25}})
    harness.plan()
    end(harness, RUN, Verdict.SUCCEEDED, model)
    line = f"model: 1.03 MB after round 9 in 5 files, loss 0.25; `muster model {RUN}` fetches it"
    assert list(result_lines(named(harness).result(), SHIPPED_PRICES))[1:3] == [line, f"    {model.uri}"]
    assert model_command._fetch(named(harness).model_download(tmp_path)).fetched_bytes == SIZE
    # Standard error is no terminal: nothing is drawn.
    assert capsys.readouterr() == ("", "")
