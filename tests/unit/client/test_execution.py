"""What StartExecution is given, and what a dry run shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from muster.client.aws.reported import Execution
from muster.client.sdk import new_run_name
from muster.contract.errors import SpecError
from muster.contract.names import is_run_name, numbered_run_name
from muster.contract.run.execution_input import execution_input
from muster.contract.spec.spec_reader import parse_spec


def test_a_name_is_made_of_the_trainer_and_is_new_each_time() -> None:
    for module, head in (
        ("examples.digits.trainer", "digits-trainer-20"),
        ("__main__", "main-20"),
        ("my.very_long_module_name_that_never_ends_at_all", "my-very-long-m-20"),
    ):
        spec = parse_spec({"replicas": 2, "trainer": f"{module}:train"})
        names = {new_run_name(spec) for _ in range(50)}
        assert len(names) >= 49  # of 29 million
        assert all(name.startswith(head) for name in names), names
        # A run that goes on from it is named after it.
        assert all(
            is_run_name(continued_by := numbered_run_name(name, 99)) and continued_by == f"{name}-x99" for name in names
        ), names


def test_the_input_is_what_the_user_wrote_without_defaults() -> None:
    document = {"trainer": "m:f", "replicas": 2, "reruns": {"spot": {"max_reruns": 3}}}
    assert json.loads(execution_input(parse_spec(document))) == document


def test_an_input_beyond_the_quota_is_refused_before_it_is_sent() -> None:
    spec = parse_spec({"replicas": 1, "trainer": "m:f", "kwargs": {"text": "x" * 262_144}})
    with pytest.raises(SpecError, match="keep data in S3"):
        execution_input(spec)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ('{"errorMessage": "The spec has 1 problem", "errorType": "SpecError"}', "The spec has 1 problem"),
        ("plain words", "plain words"),
        ("[1]", "[1]"),
        (
            'Muster itself has failed. {"errorMessage": "no bucket", "stackTrace": []}',
            "Muster itself has failed. no bucket",
        ),
        ("environment: found {1}; write a mapping", "environment: found {1}; write a mapping"),
        ("replica 1 was lost\n\nLogs: https://…", "replica 1 was lost"),
    ],
)
def test_the_message_of_a_cause_is_found(cause: str, message: str) -> None:
    answer = {"name": "x", "status": "FAILED", "startDate": None, "input": '{"replicas": true}', "cause": cause}
    execution = Execution.from_description(answer)
    assert (execution.cause, execution.replicas) == (message, 0)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        ({"name": "verl", "family": "llmft", "digest": "a" * 64, "sources": "b" * 64}, "verl"),
        # Such a recipe is resolved by the first step of the run.
        ({"file": "s3://bucket/verl.yaml"}, None),
        ({"name": 5, "family": "llmft", "digest": "a"}, None),
        ("s3://bucket/verl.yaml", None),
    ],
)
def test_the_recipe_of_an_execution_is_that_of_its_input(found: object, name: str | None) -> None:
    answer = {
        "name": "x",
        "status": "RUNNING",
        "startDate": None,
        "input": json.dumps({"replicas": 1, "recipe": found}),
    }
    recipe = Execution.from_description(answer).recipe
    assert (recipe and recipe.name) == name


@pytest.mark.parametrize(
    ("spec", "clusters"),
    [
        ({"replicas": 2}, {}),
        ({"replicas": 2, "backend": "hyperpod", "hyperpod": {"cluster": "a"}}, {0: "a", 1: "a"}),
        (
            {
                "replicas": 4,
                "backend": "hyperpod",
                "overrides": {"1": {"backend": "training-job"}, "2-9": {"hyperpod": {"cluster": "b"}}, "x": 1, "y": {}},
            },
            {0: "", 2: "b", 3: "b"},
        ),
        ({"replicas": 2, "hyperpod": {"cluster": "a"}, "overrides": {"1": {"backend": "hyperpod"}}}, {1: "a"}),
        ({"replicas": 2, "hyperpod": [], "overrides": [], "backend": {}}, {}),
    ],
)
def test_the_clusters_of_the_ranks_are_in_the_input(spec: dict[str, object], clusters: dict[int, str]) -> None:
    answer: Any = {"name": "x", "status": "RUNNING", "startDate": None, "input": json.dumps(spec)}
    assert Execution.from_description(answer).clusters == clusters
