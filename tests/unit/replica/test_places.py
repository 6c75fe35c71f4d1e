"""What a replica of a run over several places is told, and what it refuses."""

from dataclasses import asdict, replace
from pathlib import Path

import pytest

from muster.contract.run.replica_variables import (
    ENV_ATTEMPT,
    ENV_DOCUMENT,
    ENV_HOME_REGION,
    ENV_NEAR,
    ENV_PLACE,
    ENV_RANK,
    ENV_RUN,
)
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.hook import hook_problems, hooked_kwargs
from muster.contract.training.source_delivery import ENV_BASE_DIR
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.entry.container_environment import Place, read_environment
from muster.replica.entry.main import _suspicions
from muster.replica.replica_errors import AlgorithmError, InputError
from muster.replica.rounds.run_options import agree_on_options
from muster.replica.store import s3_store
from tests.support.peers import Run


def test_a_codec_that_leaves_values_out_is_refused_between_places() -> None:
    with pytest.raises(AlgorithmError, match="far_codec is topk2-64; allowed: a codec that keeps every value"):
        Algorithm(codec="int8", far_codec="topk2-64")


def test_replicas_that_differ_in_the_codec_between_places_are_refused(tmp_path: Path) -> None:
    run = Run(tmp_path)
    first, second = (asdict(Algorithm(codec="bf16", far_codec=far)) for far in ("int4", "int8"))
    agree_on_options(run.context(), "bf16", first)
    with pytest.raises(AlgorithmError, match="far_codec is int8 here and int4 in the run"):
        agree_on_options(run.context(), "bf16", second)


def test_a_hooked_program_may_have_a_codec_for_each_way() -> None:
    kwargs = {"sync_every": 5, "codec": {"near": "bf16", "far": "int4"}}
    assert list(hook_problems(None, ["python", "train.py"], [], kwargs)) == []
    settings = hooked_kwargs("lightning", ["train.py"], kwargs)["algorithm"]
    assert settings == {"sync_every": 5, "codec": "bf16", "far_codec": "int4"}
    [problem] = hook_problems(None, ["python", "train.py"], [], {**kwargs, "codec": {"near": "bf16"}})
    assert "{near: …, far: …}" in str(problem)


def variables_at(folder: Path, **more: str) -> dict[str, str]:
    usual = {ENV_DOCUMENT: f"{folder.as_uri()}/run.json", ENV_RUN: "run", ENV_RANK: "0", ENV_ATTEMPT: "1"}
    return {**usual, ENV_BASE_DIR: str(folder), **more}


def test_a_replica_elsewhere_needs_the_bucket_of_its_place(tmp_path: Path) -> None:
    there = {ENV_PLACE: "oregon", ENV_NEAR: "s3://near/rendezvous/run/", ENV_HOME_REGION: "us-east-1"}
    expected = Place("oregon", "s3://near/rendezvous/run/", "us-east-1")
    assert read_environment(variables_at(tmp_path, **there)).place == expected
    assert read_environment(variables_at(tmp_path, **{ENV_PLACE: "home"})).place == Place("home")
    assert read_environment(variables_at(tmp_path)).place is None
    with pytest.raises(InputError, match=r"MUSTER_NEAR_URI is .., not an s3:// or file:// URI"):
        read_environment(variables_at(tmp_path, **{ENV_PLACE: "oregon"}))


@pytest.fixture
def _in_oregon(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"):
        monkeypatch.delenv(name, raising=False)
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "MUSTER_REGION"):
        monkeypatch.setenv(name, "us-west-2")


@pytest.mark.usefixtures("_in_oregon")
def test_notices_of_a_replica_elsewhere_are_written_in_homes_region(tmp_path: Path) -> None:
    home = {name: f"s3://home/{name}/run/" for name in ("rendezvous", "notices")}
    document = RunDocument(
        run="run",
        plan_digest="0",
        replicas=2,
        kwargs={},
        rendezvous_uri=home["rendezvous"],
        notices_uri=home["notices"],
        min_participants=1,
        grace_seconds=1.0,
        timeout_seconds=1.0,
    )
    there = {ENV_PLACE: "oregon", ENV_NEAR: "s3://near/rendezvous/run/", ENV_HOME_REGION: "us-east-1"}
    store = _suspicions(read_environment(variables_at(tmp_path, **there)), document).store
    assert isinstance(store, s3_store.S3ObjectStore)
    assert store.client.config["region"] == "us-east-1"


@pytest.mark.usefixtures("_in_oregon")
def test_a_bucket_of_another_region_is_reached_there(monkeypatch: pytest.MonkeyPatch) -> None:
    assert s3_store._place()[:2] == ("us-west-2", "https://s3.us-west-2.amazonaws.com")
    assert s3_store._place("us-east-1")[:2] == ("us-east-1", "https://s3.us-east-1.amazonaws.com")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9001")
    assert s3_store._place()[1] == s3_store._place("us-east-1")[1] == "http://127.0.0.1:9001", "as obstore and boto3 do"


def test_a_run_at_one_place_has_the_options_that_it_had_before(tmp_path: Path) -> None:
    run = Run(tmp_path)
    old = {name: value for name, value in asdict(Algorithm()).items() if name != "far_codec"}
    agree_on_options(run.context(), "fp32", old)
    agreed = agree_on_options(replace(run.context()), "fp32", asdict(Algorithm()))
    assert agreed.places is None
