"""What the result of a run says of the model that its replicas wrote: what can be read, within bounds."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import pytest

from muster.contract.layout import RunLayout
from muster.contract.run.model import (
    MANIFEST_BYTES_MAX,
    ModelEvaluation,
    ModelFile,
    ModelKind,
    ModelManifest,
)
from muster.contract.run.run_document import Manifest
from muster.control.active_run import ActiveRun
from muster.control.model_result import find_model
from muster.control.settle import settle
from tests.memory.harness import RUN, ControlHarness, budget

LAYOUT = RunLayout(RUN)


@pytest.fixture
def harness() -> Iterator[ControlHarness]:
    with ControlHarness().installed() as harness:
        yield harness


def put(harness: ControlHarness, key: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=key, Body=body)


def manifest(round_: int) -> bytes:
    weights = ModelFile(name="model.safetensors", bytes=990, sha256="0" * 64)
    config = ModelFile(name="config.json", bytes=10, sha256="1" * 64)
    kind, checksum = ModelKind.MODEL, "ab" * 32
    return ModelManifest(run=RUN, round=round_, kind=kind, checksum=checksum, rank=1, files=(weights, config)).to_json()


def complete(harness: ControlHarness, rank: int, round_: int) -> None:
    harness.arm(rank)
    left = Manifest(checkpoint_s3_bucket="s3://bucket/x", round=round_, checksum="ab" * 32)
    put(harness, f"output/{RUN}/{harness.job(rank)}/manifest.json", left.to_json())
    harness.cloud.training.complete(harness.job(rank))
    harness.deliver()


def planned(harness: ControlHarness, *rounds: int) -> ActiveRun:
    run = harness.plan(replicas=len(rounds), trainer="a.b:c", min_replicas=1, on_replica_failure="continue")
    for rank, round_ in enumerate(rounds):
        complete(harness, rank, round_)
    return run


def test_the_result_names_the_model_its_size_its_checksums_and_what_was_measured(harness: ControlHarness) -> None:
    run = planned(harness, 7, 7)
    put(harness, LAYOUT.model_manifest(7), manifest(7))
    evaluation = ModelEvaluation(run=RUN, round=7, metrics={"loss": 0.25})
    put(harness, LAYOUT.model_evaluation(7), evaluation.to_json())
    result = settle(run, budget(600))
    model = result.model
    assert model is not None
    assert (model.uri, model.round, model.bytes, model.files) == ("s3://bucket/output/one/model/", 7, 1000, 2)
    assert (model.checksum, model.evaluation) == ("ab" * 32, {"loss": 0.25})
    assert model.manifest == "s3://bucket/output/one/model-00000007.json"
    assert model.manifest_sha256 == hashlib.sha256(manifest(7)).hexdigest()
    assert result.model_problem is None
    assert harness.result() == result


def test_the_model_of_the_replicas_that_trained_longest_counts(harness: ControlHarness) -> None:
    run = planned(harness, 3, 9)
    put(harness, LAYOUT.model_manifest(3), manifest(3))
    put(harness, LAYOUT.model_manifest(9), manifest(9))
    model = settle(run, budget(600)).model
    assert model is not None
    assert model.round == 9


def test_a_run_that_should_have_a_model_says_why_it_has_none(harness: ControlHarness) -> None:
    result = settle(planned(harness, 7), budget(600))
    assert result.model is None
    assert result.model_problem is not None
    assert "`muster rerun one` lets another one do it" in result.model_problem


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff",
        b"[]",
        b'{"version": 9}',
        b" " * (MANIFEST_BYTES_MAX + 1),
        manifest(7).replace(b"config", b"../con"),
    ],
    ids=["empty", "no text", "no list", "a newer form", "too large", "a path that leads out"],
)
def test_a_list_that_cannot_be_read_is_a_problem_and_no_failure(harness: ControlHarness, body: bytes) -> None:
    run = planned(harness, 7)
    put(harness, LAYOUT.model_manifest(7), body)
    result = settle(run, budget(600))
    assert (result.verdict, result.model) == ("succeeded", None)
    assert result.model_problem is not None
    assert LAYOUT.model_manifest(7) in result.model_problem


def test_an_evaluation_that_cannot_be_read_is_left_out(harness: ControlHarness) -> None:
    run = planned(harness, 7)
    put(harness, LAYOUT.model_manifest(7), manifest(7))
    put(harness, LAYOUT.model_evaluation(7), b'{"run": "one", "round": 7, "metrics": {"loss": NaN}}')
    model = settle(run, budget(600)).model
    assert model is not None
    assert model.evaluation == {}


def test_a_program_without_a_trainer_is_not_asked_for_a_model(harness: ControlHarness) -> None:
    run = harness.plan(trainer=None, entrypoint=["python", "own.py"])
    complete(harness, 0, 7)
    harness.cloud.calls.reset()
    assert find_model(run, settle(run, budget(600)).replicas, 7).problem is None


def test_a_settlement_looks_at_few_rounds_however_many_ends_there_are(harness: ControlHarness) -> None:
    run = planned(harness, *range(1, 9))
    result = settle(run, budget(600))
    harness.cloud.calls.reset()
    find_model(run, result.replicas, 8)
    assert harness.cloud.calls.counts()["GetObject"] == 4
