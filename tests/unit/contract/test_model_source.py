"""`model:` in a spec: its forms, what a job gets of it, and where the model of an earlier run or of a hub is."""

from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.layout import RunLayout
from muster.contract.run.model import ModelKind, ModelResult
from muster.contract.run.model_lookup import EarlierRun, find_model, with_found_model
from muster.contract.run.plan import Lineage, Place, Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.session_tags import model_tag
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.contract.training.model_source import ModelSource, with_model
from tests.support.refused_specs import refusal

SPEC = {"replicas": 2, "entrypoint": ["train"], "image": "image"}
ARN = "arn:aws:states:eu-west-1:123456789012:execution:Runs:one"
AT = Timestamp("2026-11-22T12:00:00.000Z")
PACKAGE = "arn:aws:sagemaker:eu-west-1:123456789012:model-package/mine/3"
MODEL = ModelResult(
    uri="s3://bucket/output/one/model/",
    kind=ModelKind.MODEL,
    round=3,
    bytes=1,
    files=1,
    checksum="x",
    manifest="s3://bucket/output/one/model-00000003.json",
    manifest_sha256="0" * 64,
)


def _replica(rank: int, checkpoint: str | None = None, **fields: Any) -> ReplicaResult:
    return ReplicaResult(rank=rank, checkpoint_uri=checkpoint, **{"outcome": ReplicaOutcome.SUCCEEDED, **fields})


def _earlier(*replicas: ReplicaResult, root: str | None = None, **fields: Any) -> EarlierRun:
    lineage = None if root is None else Lineage(parent=root, root=root, generation=1, attempts_before=1)
    place = Place(bucket="bucket", role_arn="role", job_prefix="muster")
    plan = Plan.make("one", ARN, AT, place, parse_spec(SPEC), lineage=lineage)
    result = Result(
        run="one", verdict=Verdict.SUCCEEDED, reason="", settled_at=AT, replicas=replicas, reruns=0, **fields
    )
    return EarlierRun(plan, result)


def _found(run: EarlierRun | None, **source: Any) -> str | None:
    return find_model(ModelSource(run="one", **source), {"one": run}.get).s3


def _refusal(run: EarlierRun | None, **source: Any) -> str:
    with pytest.raises(SpecError) as caught:
        _found(run, **source)
    [problem] = caught.value.problems
    return str(problem)


ARTIFACT = "s3://bucket/output/one/j/output/model.tar.gz"
ESCROW = "s3://customer-escrow-111122223333-smtj-1/muster-one-r0-a1/step_40"


def test_the_model_of_a_run_is_the_one_of_its_replicas_or_a_checkpoint_or_else_the_artifact() -> None:
    assert _found(_earlier(_replica(0, ESCROW), model=MODEL)) == MODEL.uri
    assert _found(_earlier(_replica(0, ESCROW, artifacts=ARTIFACT))) == ESCROW
    assert _found(_earlier(_replica(0, artifacts=ARTIFACT))) == ARTIFACT


def test_a_manifest_in_the_stacks_bucket_names_what_its_own_run_has_written() -> None:
    for key in ("output/two/model/", "output/one2/x", "control/one/plan.json", "output/one/../two/x"):
        assert "which is not its own" in _refusal(_earlier(_replica(0, f"s3://bucket/{key}"))), key
    # A continuation may name the checkpoints of its lineage.
    uri = "s3://bucket/checkpoints/zero/r0/last/"
    assert _found(_earlier(_replica(0, uri), root="zero")) == uri
    assert "not its own" in _refusal(_earlier(_replica(0, uri)))


def test_replicas_with_different_checkpoints_need_a_rank() -> None:
    replicas = [_replica(rank, f"s3://elsewhere/sweep/{rank}/") for rank in range(3)]
    words = _refusal(_earlier(*replicas))
    assert "rank 0: s3://elsewhere/sweep/0/, rank 1: s3://elsewhere/sweep/1/" in words
    assert "choose one: {run: one, rank: 0}" in words
    assert _found(_earlier(*replicas), rank=2) == "s3://elsewhere/sweep/2/"
    assert "rank: found 3; one has 3 replicas, numbered from 0" in _refusal(_earlier(*replicas), rank=3)


def test_what_has_no_model_says_why() -> None:
    runs: list[tuple[EarlierRun | None, str]] = [
        (None, "one is not a run of this stack;"),
        (EarlierRun(_earlier(_replica(0)).plan, None), "one has not ended; wait for its end: muster wait one"),
        (_earlier(_replica(0)), "one has left no model;"),
        (_earlier(_replica(0, outcome=ReplicaOutcome.FAILED)), "one has left no model: replica 0 is failed"),
        (_earlier(_replica(0, problem="its manifest is damaged")), "one has left no model: its manifest is damaged"),
        (_earlier(_replica(0), model_problem="the writer ended"), "one has left no model: the writer ended"),
    ]
    for run, words in runs:
        assert _refusal(run).startswith(f"model.run: {words}")


def test_a_place_beside_a_run_must_be_the_one_that_is_found() -> None:
    run = _earlier(_replica(0), model=MODEL)
    assert _found(run, s3=MODEL.uri) == MODEL.uri
    assert "the model of one is s3://bucket/output/one/model/" in _refusal(run, s3="s3://bucket/output/two/model/")


def test_a_model_becomes_the_channel_of_a_spec_once() -> None:
    document = {**SPEC, "model": {"run": "one"}}
    run = _earlier(_replica(0), model=MODEL)
    expanded = with_found_model(document, {"one": run}.get)
    source = {"s3_uri": MODEL.uri}
    channel = {"channel_name": "model", "data_source": {"s3_data_source": source}, "input_mode": "File"}
    assert expanded["input_data_config"] == [channel]
    assert with_found_model(expanded, {"one": run}.get) == expanded
    assert with_found_model(SPEC, dict[str, EarlierRun]().get) == SPEC


def test_a_package_becomes_the_configuration_of_the_job() -> None:
    group = "arn:aws:sagemaker:eu-west-1:123456789012:model-package-group"
    own = {"model_package_config": {"model_package_group_arn": f"{group}/other"}}
    for document, arn in ((SPEC, f"{group}/mine"), ({**SPEC, **own}, f"{group}/other")):
        filled = with_model(document, ModelSource(package=PACKAGE))
        assert filled["model_package_config"] == {"model_package_group_arn": arn, "source_model_package_arn": PACKAGE}
        assert "input_data_config" not in filled


def test_a_model_that_is_none_is_refused_with_its_field() -> None:
    channel = {"channel_name": "model", "data_source": {"s3_data_source": {"s3_uri": "s3://other/x/"}}}
    models: list[tuple[dict[str, Any], str]] = [
        ({"model": {}}, "model: no source is set; set one of run, s3, hub and package"),
        ({"model": {"run": "one", "hub": "llama"}}, "model: run and hub are set"),
        ({"model": {"s3": "s3://bucket/x", "rank": 1}}, "model.rank: set without run"),
        ({"model": {"package": "arn:aws:iam::1:role/x"}}, "model.package: found"),
        ({"model": {"runn": "one"}}, "model.runn: unknown field; did you mean run?"),
        ({"model": {"s3": "s3://bucket/x/"}, "input_data_config": [channel]}, "model: set together with a channel"),
    ]
    for fields, words in models:
        error = refusal({**SPEC, **fields})
        assert any(str(problem).startswith(words) for problem in error.problems), error


def test_replicas_may_read_the_model_of_the_run_that_is_named_and_are_told_about_others() -> None:
    access = ReplicaAccess(data=[])
    run = _earlier(_replica(0), model=MODEL)
    named = parse_spec(with_found_model({**SPEC, "model": {"run": "one"}}, {"one": run}.get))
    assert access.remarks(named, "bucket") == []
    [remark] = access.remarks(parse_spec(with_model(SPEC, ModelSource(s3=MODEL.uri))), "bucket")
    assert "write model: {run: one}" in remark
    [remark] = access.remarks(parse_spec(with_model(SPEC, ModelSource(s3="s3://bucket/else/m/"))), "bucket")
    assert 'write data = ["s3://bucket/else/m/"]' in remark


def test_the_tag_of_a_model_is_its_folder_and_never_a_pattern() -> None:
    for key, value in {
        RunLayout("one").model: "one/model",
        "checkpoints/one/r0/last": "one/r0/last",
        "output/one/": "one",
        "control/one/": None,
        "output/one/*/": None,
        "output/one/a?/": None,
        f"output/{'x' * 257}/": None,
    }.items():
        assert model_tag(f"s3://bucket/{key}") == value, key
