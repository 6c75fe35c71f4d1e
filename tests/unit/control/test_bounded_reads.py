"""What replicas wrote is read within bounds, and what cannot be read is skipped and told."""

import hashlib
import json
import random
import tracemalloc
from dataclasses import replace
from typing import Any

from bench.sample_run import sample_run
from muster.contract.layout import RunLayout
from muster.contract.run.commit import COMMIT_BYTES_MAX, commit_bytes_max
from muster.contract.run.model import MANIFEST_BYTES_MAX, ModelEvaluation, ModelFile, ModelKind, ModelManifest
from muster.contract.run.result import ReplicaResult, Verdict
from muster.control.active_run import ActiveRun
from muster.control.manifest import Limits
from muster.control.model_result import find_model
from muster.control.run_result import write_result
from muster.report.page_contents import make_page
from muster.report.page_html import render
from tests.memory.harness import RUN, ControlHarness, budget
from tests.support.control_steps import Row, finished, found
from tests.support.page_data import data_in
from tests.support.round_commits import commit_of, member

MANIFEST = {"checkpoint_s3_bucket": "s3://bucket/final", "round": 7, "checksum": "ab" * 32}
LAYOUT = RunLayout(RUN)


def leave(harness: ControlHarness, body: bytes, rank: int = 0) -> None:
    """Let a replica succeed that leaves this manifest."""
    harness.arm(rank)
    harness.plane.store.create(f"output/{RUN}/{harness.job(rank)}/manifest.json", body)
    harness.cloud.training.complete(harness.job(rank))


def manifest(**fields: Any) -> bytes:
    return json.dumps({**MANIFEST, **fields}).encode()


def settled(harness: ControlHarness, body: bytes) -> ReplicaResult:
    run = harness.plan()
    leave(harness, body)
    [replica] = write_result(run, budget()).replicas
    return replica


# --- manifests ------------------------------------------------------------------------------------


def test_metrics_beyond_their_bounds_are_left_out_and_the_rest_of_the_manifest_counts(row: Row) -> None:
    rows: list[tuple[str, Any, str]] = [
        ("many", {f"m{number}": 1.0 for number in range(33)}, "at most 32 items"),
        ("long name", {"x" * 49: 1.0}, "at most 48 characters"),
        ("no number", {"loss": "low"}, "a valid number"),
        ("no mapping", [1], "an object"),
    ]
    for name, metrics, words in rows:
        with row(name) as harness:
            replica = settled(harness, manifest(metrics=metrics))
            assert (replica.metrics, replica.checkpoint_uri, replica.round) == ({}, "s3://bucket/final", 7)
            assert words in found(replica.problem)


def test_whatever_a_manifest_holds_its_replica_takes_little_room_in_the_result(row: Row) -> None:
    bodies = {
        "metrics": manifest(metrics={f"m{number}": 1.0 for number in range(40_000)}),
        "padding": manifest(padding=[[]] * 100_000),
        "round": manifest(round=10**12),
        "checksum": manifest(checksum="0" * 1_000),
        "name": manifest(metrics={"x" * 50_000: "y"}),
    }
    for name, body in bodies.items():
        with row(name) as harness:
            replica = settled(harness, body)
            assert replica.problem is not None
            assert len(replica.to_json()) < 3_000


def test_forty_manifests_of_a_mebibyte_neither_fill_the_memory_nor_hinder_the_result(harness: ControlHarness) -> None:
    harness.plan(replicas=40)
    body = manifest(metrics={f"metric-{number:06}": 1.0 for number in range(45_000)})
    assert 900_000 < len(body) < Limits.header_bytes
    for rank in range(40):
        leave(harness, body, rank)
    tracemalloc.start()
    try:
        result = finished(harness).result
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.verdict is Verdict.SUCCEEDED
    assert all("at most 65,536" in str(replica.problem) for replica in result.replicas)
    assert peak < 50_000_000
    assert len(result.to_json()) < 100_000


def test_the_metrics_of_ten_thousand_manifests_do_not_fill_the_page() -> None:
    run, chance = sample_run(1, 1), random.Random(1)  # noqa: S311 - a sample
    one = run.replicas[0].model_copy(update={"problem": "p" * 1_500, "attempts": (), "usd": ()})
    # Equal values would take no room: the page holds them once.
    names = [f"{number:048}" for number in range(32)]
    metrics = [{name: chance.random() for name in names} for _ in range(10_000)]
    replicas = [one.model_copy(update={"rank": rank, "metrics": metrics[rank]}) for rank in range(10_000)]
    assert len(render(make_page(replace(run, replicas=replicas)))) < 1_000_000


# --- commits --------------------------------------------------------------------------------------


def commit(round_: int) -> bytes:
    return commit_of([0], run=RUN, round=round_, committed_at=f"2026-05-04T03:01:{round_:02}Z", epochs=(1,)).to_json()


def test_a_commit_has_room_for_every_replica_and_an_end() -> None:
    metrics = {f"{number:048}": -1.2345678901234567e-300 for number in range(32)}
    full = [member(rank, metrics=metrics) for rank in range(100)]
    document = commit_of(full, run=RUN, epochs=(999_999,) * 100)
    assert len(document.to_json()) < commit_bytes_max(100) < COMMIT_BYTES_MAX == commit_bytes_max(10_000)


def test_commits_that_cannot_be_read_are_left_out_of_the_page_which_says_so(harness: ControlHarness) -> None:
    harness.plan()
    leave(harness, manifest())
    bodies = {
        "00000001.json": commit(1),
        "00000002.json": commit(2),
        "00000003.json": b"",
        "00000004.json": b" " * (commit_bytes_max(1) + 1),
        "00000005.json": commit(9),
        "00000006.json": b'{"run": "one"}',
        "no digits.json": b"{}",
        "٣٣٣٣٣٣٣٣.json": b"{}",
    }
    for key, body in bodies.items():
        harness.plane.store.create(f"{LAYOUT.commits}{key}", body)
    harness.cloud.calls.reset()
    finished(harness)
    asked = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith(LAYOUT.commits)]
    assert {call["Range"] for call in asked} == {f"bytes=0-{commit_bytes_max(1) - 1}"}
    page = harness.cloud.s3.objects("bucket")[LAYOUT.page].body.decode()
    assert data_in(page)["rounds"]["numbers"] == [1, 2]
    assert "4 commits could not be read" in page


# --- the model that replicas wrote ----------------------------------------------------------------


def model_manifest(round_: int) -> bytes:
    weights = ModelFile(name="model.safetensors", bytes=990, sha256="0" * 64)
    config = ModelFile(name="config.json", bytes=10, sha256="1" * 64)
    kind, checksum = ModelKind.MODEL, "ab" * 32
    return ModelManifest(run=RUN, round=round_, kind=kind, checksum=checksum, rank=1, files=(weights, config)).to_json()


def trained(harness: ControlHarness, *rounds: int, **bodies: bytes) -> ActiveRun:
    """A run whose replicas ended with these rounds; `bodies`: what lies where the list or evaluation of 7 should."""
    run = harness.plan(replicas=len(rounds), trainer="a.b:c", min_replicas=1, on_replica_failure="continue")
    for rank, round_ in enumerate(rounds):
        leave(harness, manifest(round=round_), rank)
    for name, body in bodies.items():
        harness.plane.store.create(getattr(LAYOUT, name)(7), body)
    return run


def test_the_result_names_the_model_its_size_its_checksums_and_what_was_measured(harness: ControlHarness) -> None:
    """The model of the replicas that trained longest counts."""
    evaluation = ModelEvaluation(run=RUN, round=7, metrics={"loss": 0.25}).to_json()
    run = trained(harness, 3, 7, model_manifest=model_manifest(7), model_evaluation=evaluation)
    harness.plane.store.create(LAYOUT.model_manifest(3), model_manifest(3))
    result = write_result(run, budget())
    model = found(result.model)
    assert (model.uri, model.round, model.bytes, model.files) == ("s3://bucket/output/one/model/", 7, 1000, 2)
    assert (model.checksum, model.evaluation) == ("ab" * 32, {"loss": 0.25})
    assert model.manifest == "s3://bucket/output/one/model-00000007.json"
    assert model.manifest_sha256 == hashlib.sha256(model_manifest(7)).hexdigest()
    assert (result.model_problem, harness.result()) == (None, result)


def test_a_run_that_should_have_a_model_says_why_it_has_none(harness: ControlHarness) -> None:
    result = write_result(trained(harness, 7), budget())
    assert result.model is None
    assert "`muster continue one`" in found(result.model_problem)


def test_a_list_that_cannot_be_read_is_a_problem_and_no_failure(row: Row) -> None:
    for name, body in (
        ("empty", b""),
        ("no text", b"\xff"),
        ("no list", b"[]"),
        ("a newer form", b'{"version": 9}'),
        ("too large", b" " * (MANIFEST_BYTES_MAX + 1)),
        ("a path that leads out", model_manifest(7).replace(b"config", b"../con")),
    ):
        with row(name) as harness:
            result = write_result(trained(harness, 7, model_manifest=body), budget())
            assert (result.verdict, result.model) == ("succeeded", None)
            assert LAYOUT.model_manifest(7) in found(result.model_problem)


def test_an_evaluation_that_cannot_be_read_is_left_out(harness: ControlHarness) -> None:
    evaluation = b'{"run": "one", "round": 7, "metrics": {"loss": NaN}}'
    run = trained(harness, 7, model_manifest=model_manifest(7), model_evaluation=evaluation)
    assert found(write_result(run, budget()).model).evaluation == {}


def test_a_settlement_looks_for_a_model_in_few_rounds_however_many_ends_there_are(harness: ControlHarness) -> None:
    run = trained(harness, *range(1, 9))
    replicas = write_result(run, budget()).replicas
    harness.cloud.calls.reset()
    find_model(run, replicas, 8)
    assert harness.cloud.calls.counts()["GetObject"] == 4
