"""What replicas wrote is read within bounds, and what cannot be read is skipped and told."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from bench.sample_run import sample_run
from muster.contract.layout import RunLayout
from muster.contract.run.commit import COMMIT_BYTES_MAX, Commit, Member, commit_bytes_max
from muster.contract.run.result import ReplicaResult, Result, Verdict
from muster.control.finish import finish_run
from muster.control.manifest import Limits
from muster.control.settle import settle
from muster.report.page_contents import make_page
from muster.report.page_html import page_json
from tests.memory.harness import RUN, ControlHarness, budget

MANIFEST = {"checkpoint_s3_bucket": "s3://bucket/final", "round": 7, "checksum": "0" * 64}


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
    [replica] = settle(run, budget()).replicas
    return replica


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({f"m{number}": 1.0 for number in range(33)}, "at most 32 items"),
        ({"x" * 49: 1.0}, "at most 48 characters"),
        ({"loss": "low"}, "a valid number"),
        ([1], "an object"),
    ],
    ids=["many", "long name", "no number", "no mapping"],
)
def test_metrics_beyond_their_bounds_are_left_out_and_the_rest_of_the_manifest_counts(
    harness: ControlHarness, metrics: Any, words: str
) -> None:
    replica = settled(harness, manifest(metrics=metrics))
    assert (replica.metrics, replica.checkpoint_uri, replica.round) == ({}, "s3://bucket/final", 7)
    assert "its metrics are left out" in str(replica.problem)
    assert words in str(replica.problem)


@pytest.mark.parametrize(
    "body",
    [
        manifest(metrics={f"m{number}": 1.0 for number in range(40_000)}),
        manifest(padding=[[]] * 100_000),
        manifest(round=10**12),
        manifest(checksum="0" * 1_000),
        manifest(metrics={"x" * 50_000: "y"}),
    ],
    ids=["metrics", "padding", "round", "checksum", "name"],
)
def test_whatever_a_manifest_holds_its_replica_takes_little_room_in_the_result(
    harness: ControlHarness, body: bytes
) -> None:
    replica = settled(harness, body)
    assert replica.problem is not None
    assert len(replica.to_json()) < 3_000


def test_forty_manifests_of_a_mebibyte_neither_fill_the_memory_nor_hinder_the_result(harness: ControlHarness) -> None:
    run = harness.plan(replicas=40)
    body = manifest(metrics={f"metric-{number:06}": 1.0 for number in range(45_000)})
    assert 900_000 < len(body) < Limits.header_bytes
    for rank in range(40):
        leave(harness, body, rank)
    tracemalloc.start()
    try:
        result = finish_run(harness.plane, run, budget()).result
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert result.verdict is Verdict.SUCCEEDED
    assert all("at most 65,536" in str(replica.problem) for replica in result.replicas)
    assert peak < 50_000_000
    assert len(result.to_json()) < 100_000


def member(rank: int) -> Member:
    return Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)


def commit(round_: int) -> bytes:
    at = f"2026-05-04T03:01:{round_:02}Z"
    return Commit(run=RUN, round=round_, committed_at=at, count=1, members=(member(0),), epochs=(1,)).to_json()


def test_a_commit_has_room_for_every_replica_and_an_end() -> None:
    metrics = {f"{number:048}": -1.2345678901234567e-300 for number in range(32)}
    full = [member(rank).model_copy(update={"metrics": metrics}) for rank in range(100)]
    document = Commit(run=RUN, round=1, committed_at="", count=1, members=tuple(full), epochs=(999_999,) * 100)
    assert len(document.to_json()) < commit_bytes_max(100) < COMMIT_BYTES_MAX == commit_bytes_max(10_000)


def page(harness: ControlHarness, result: Result) -> str:
    assert result.run == RUN
    return harness.cloud.s3.objects("bucket")[RunLayout(RUN).page].body.decode()


def test_commits_that_cannot_be_read_are_left_out_of_the_page_which_says_so(harness: ControlHarness) -> None:
    run = harness.plan()
    leave(harness, manifest())
    commits = RunLayout(RUN).commits
    for number in (1, 2):
        harness.plane.store.create(f"{commits}{number:08d}.json", commit(number))
    bad = {
        "00000003.json": b"",
        "00000004.json": b" " * (commit_bytes_max(1) + 1),
        "00000005.json": commit(9),
        "00000006.json": b'{"run": "one"}',
    }
    for key, body in {**bad, "no digits.json": b"{}", "٣٣٣٣٣٣٣٣.json": b"{}"}.items():
        harness.plane.store.create(f"{commits}{key}", body)
    harness.cloud.calls.reset()
    finished = finish_run(harness.plane, run, budget())
    asked = [call for call in harness.cloud.calls.of("GetObject") if call["Key"].startswith(commits)]
    assert {call["Range"] for call in asked} == {f"bytes=0-{commit_bytes_max(1) - 1}"}
    assert '"numbers":[1,2]' in page(harness, finished.result)
    assert "4 commits could not be read and are left out." in page(harness, finished.result)


def test_the_metrics_of_ten_thousand_manifests_do_not_fill_the_page() -> None:
    run = sample_run(1, 1)
    metrics = {f"{number:048}": 1.0 for number in range(32)}
    one = run.replicas[0].model_copy(update={"metrics": metrics, "problem": "p" * 1_500, "attempts": (), "usd": ()})
    replicas = [one.model_copy(update={"rank": rank}) for rank in range(10_000)]
    assert len(page_json(make_page(replace(run, replicas=replicas)))) < 6_000_000
