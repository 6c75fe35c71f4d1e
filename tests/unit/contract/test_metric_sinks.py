"""`metrics` of a spec: what a user can write, what becomes of it, and what is refused."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from muster.contract.errors import SpecError
from muster.contract.run.job_request import training_job_request
from muster.contract.run.plan import Place, Plan
from muster.contract.run.run_document import RunDocument
from muster.contract.spec.metric_sinks import MetricSinks
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec

ARN = "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/team"
ALL = {
    "tensorboard": True,
    "mlflow": {"tracking_uri": "https://mlflow.example.org:5000/base", "experiment": "gpt"},
    "wandb": {"project": "gpt", "entity": "team", "mode": "online"},
    "cloudwatch": ["loss", "tokens_per_second"],
}


def spec(metrics: dict[str, Any], **fields: Any) -> Spec:
    return parse_spec({"replicas": 2, "trainer": "m:f", "image": "image:1", "metrics": metrics, **fields})


def plan(metrics: dict[str, Any], **fields: Any) -> Plan:
    arn = "arn:aws:states:us-east-1:123456789012:execution:Muster:run"
    place = Place(bucket="bucket", role_arn="arn:aws:iam::123456789012:role/r", job_prefix="muster")
    return Plan.make("run", arn, "2026-11-22T00:00:00.000Z", place, spec(metrics, **fields))  # type: ignore[arg-type]


def definitions(metrics: dict[str, Any], **fields: Any) -> list[dict[str, str]]:
    algorithm = training_job_request(plan(metrics, **fields), 0, 1)["AlgorithmSpecification"]
    assert isinstance(algorithm, dict)
    return algorithm.get("MetricDefinitions", [])  # type: ignore[return-value]


def test_replicas_read_in_their_document_where_metrics_go() -> None:
    document = RunDocument.of(plan(ALL))
    assert RunDocument.from_json(document.to_json(), "run.json").metrics.model_dump() == ALL


def test_a_document_of_a_newer_version_may_name_more_sinks() -> None:
    stored = json.loads(RunDocument.of(plan({"wandb": {"project": "gpt"}})).to_json())
    stored["metrics"] |= {"comet": {"project": "gpt"}}
    stored["metrics"]["wandb"] |= {"notes": "new"}
    read = RunDocument.from_json(json.dumps(stored), "run.json").metrics
    assert read == MetricSinks.model_validate({"wandb": {"project": "gpt"}})
    del stored["metrics"]
    assert RunDocument.from_json(json.dumps(stored), "run.json").metrics == MetricSinks()


def test_metrics_for_cloudwatch_become_metric_definitions_beside_the_users_own() -> None:
    own = {"name": "own", "regex": "own: ([0-9.]+)"}
    found = definitions({"cloudwatch": ["loss", "eval/loss"]}, metric_definitions=[own])
    assert [one["Name"] for one in found] == ["own", "loss", "eval/loss"]
    assert definitions({}) == []
    loss, eval_loss = (re.compile(one["Regex"]) for one in found[1:])
    for line, expected in {
        "loss=0.5 eval/loss=0.7": "0.5",
        "[2.5] loss=1e-05": "1e-05",
        "accuracy=0.9 loss=nan": "nan",
        "eval/loss=0.7": None,
        "train_loss=0.7": None,
    }.items():
        hit = loss.search(line)
        assert (hit and hit[1]) == expected, line
    hit = eval_loss.search("loss=0.5 eval/loss=0.7")
    assert hit is not None
    assert hit[1] == "0.7"


def problems(metrics: Any, **fields: Any) -> list[str]:
    with pytest.raises(SpecError) as refused:
        spec(metrics, **fields)
    return [str(problem) for problem in refused.value.problems]


@pytest.mark.parametrize(
    "uri", ["https://user:hunter2@mlflow.example.org", "sqlite:///runs.db", "/mlruns", "arn:aws:s3:::bucket"]
)
def test_an_address_is_one_of_a_server_and_has_no_password(uri: str) -> None:
    [problem] = problems({"mlflow": {"tracking_uri": uri}})
    assert "metrics.mlflow.tracking_uri" in problem
    assert "without a password" in problem


@pytest.mark.parametrize(
    ("metrics", "field"),
    [
        ({"wandb": {"project": "a/b"}}, "metrics.wandb.project"),
        ({"wandb": {"project": "gpt", "api_key": "0123"}}, "metrics.wandb.api_key"),
        ({"wandb": {"project": "gpt", "mode": "later"}}, "metrics.wandb.mode"),
        ({"cloudwatch": ["0loss"]}, "metrics.cloudwatch.0"),
        ({"cloudwatch": [f"m{number}" for number in range(41)]}, "metrics.cloudwatch"),
        ({"tensorboard": {"folder": "events"}}, "metrics.tensorboard"),
    ],
)
def test_what_no_sink_takes_is_refused_by_name(metrics: dict[str, Any], field: str) -> None:
    [problem] = problems(metrics)
    assert field in problem


def test_metrics_need_a_trainer() -> None:
    [problem] = problems({"tensorboard": True}, trainer=None, entrypoint=["python", "train.py"])
    assert "metrics: set without trainer" in problem


def test_one_metric_has_one_definition_and_all_of_them_have_a_limit() -> None:
    own = [{"name": "loss", "regex": "x"}, *({"name": f"m{number}", "regex": "x"} for number in range(38))]
    found = problems({"cloudwatch": ["loss", "accuracy"]}, metric_definitions=own)
    assert len(found) == 2
    assert "'loss' is there 2 times" in found[0]
    assert "41 metrics" in found[1]
    assert "40" in found[1]


def test_a_managed_server_needs_a_right_that_the_remark_shows() -> None:
    [remark] = ReplicaAccess(data=[]).remarks(spec({"mlflow": {"tracking_uri": ARN}}), "stack-bucket")
    assert "metrics.mlflow needs a right" in remark
    assert f'"Action": ["sagemaker-mlflow:*"], "Resource": "{ARN}"' in remark
    assert ReplicaAccess(data=[]).remarks(spec({"mlflow": {"tracking_uri": "https://own"}}), "stack-bucket") == []
