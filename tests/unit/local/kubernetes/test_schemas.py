"""Schemas of the embedded API: what they add, drop and refuse, and that a spec's own check agrees."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from muster.contract.hyperpod.job_schema import schema_problems
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.resources import JOBS
from muster.local.kubernetes.schema.schemas import schema_of
from muster.local.kubernetes.schema.structural import Schema
from tests.support.kubernetes_api import job, pod

SCHEMA = schema_of(JOBS)


def changed(path: str, value: Any) -> dict[str, Any]:
    """A job with another value somewhere."""
    document = copy.deepcopy(job(runPolicy={}, elasticPolicy={}))
    *parents, last = path.split(".")
    place: Any = document
    for name in parents:
        place = place[int(name)] if name.isdigit() else place.setdefault(name, {})
    place[last] = value
    return document


CONTAINER = "spec.replicaSpecs.0.template.spec.containers.0"
CHANGES: list[tuple[str, Any]] = [
    ("spec.nprocPerNode", "8"),
    ("spec.nprocPerNode", 8),
    ("spec.nprocPerNode", "many"),
    ("spec.replicaSpecs", []),
    ("spec.replicaSpecs", {}),
    ("spec.replicaSpecs.0.replicas", -1),
    ("spec.replicaSpecs.0.replicas", 1.5),
    ("spec.replicaSpecs.0.replicas", True),
    ("spec.replicaSpecs.0.spares", 2),
    ("spec.runPolicy.ttlSecondsAfterFinished", -1),
    ("spec.runPolicy.ttlSecondsAfterFinished", -2),
    ("spec.runPolicy.cleanPodPolicy", "None"),
    ("spec.runPolicy.cleanPodPolicy", "none"),
    ("spec.runPolicy.suspend", "true"),
    ("spec.runPolicy.logMonitoringConfiguration", [{"name": "a"}]),
    ("spec.runPolicy.logMonitoringConfiguration", [{"name": "a", "logPattern": "b", "operator": "gt"}]),
    ("spec.runPolicy.restartPolicy", {}),
    ("spec.elasticPolicy.minReplicas", 0),
    (f"{CONTAINER}.name", 1),
    (f"{CONTAINER}.env", [{"value": "x"}]),
    (f"{CONTAINER}.env", [{"name": "A", "value": "x"}]),
    (f"{CONTAINER}.resources", {"limits": {"nvidia.com/gpu": 8, "cpu": "3250m"}}),
    (f"{CONTAINER}.resources", {"limits": {"nvidia.com/gpu": [8]}}),
    (f"{CONTAINER}.ports", [{"containerPort": 0}]),
    (f"{CONTAINER}.imagePullPolicy", "Sometimes"),
    ("spec.replicaSpecs.0.template.spec.containers", []),
]


@pytest.mark.parametrize(("path", "value"), CHANGES)
def test_the_api_refuses_what_the_check_of_a_spec_refuses(path: str, value: Any) -> None:
    document = changed(path, value)
    assert {problem.path for problem in SCHEMA.problems(document)} == {
        problem.path for problem in schema_problems(document)
    }


@pytest.mark.parametrize(
    "path", ["surprise", "spec.surprise", "spec.runPolicy.surprise", f"{CONTAINER}.surprise", "spec.replicaSpecs.0.x"]
)
def test_an_unknown_field_is_found_and_dropped(path: str) -> None:
    document = changed(path, {"a": [1]})
    (found,) = SCHEMA.unknown_fields(document)
    assert found == path.replace(".0", "[0]")
    assert SCHEMA.pruned(document) == job(runPolicy={}, elasticPolicy={})


def test_defaults_stand_where_nothing_is_said() -> None:
    spec = SCHEMA.defaulted(job(runPolicy={}))["spec"]
    assert spec["nprocPerNode"] == "auto"
    assert spec["replicaSpecs"][0]["spares"] == 0
    assert spec["runPolicy"] == {"cleanPodPolicy": "All", "ttlSecondsAfterFinished": 0}
    assert "runPolicy" not in SCHEMA.defaulted(job())["spec"]
    assert SCHEMA.defaulted(job(nprocPerNode="2"))["spec"]["nprocPerNode"] == "2"


def test_null_is_dropped_where_it_is_not_allowed() -> None:
    document = changed(f"{CONTAINER}.env", [{"name": "A", "value": None}])
    document["metadata"]["creationTimestamp"] = None
    pruned = SCHEMA.pruned(document)
    assert pruned["spec"]["replicaSpecs"][0]["template"]["spec"]["containers"][0]["env"] == [{"name": "A"}]
    assert pruned["metadata"]["creationTimestamp"] is None


def test_a_pod_has_the_schema_of_a_template() -> None:
    document = pod("worker", nodeName=3, colour="red")
    assert [problem.path for problem in schema_of(PODS).problems(document)] == ["spec.nodeName"]
    assert schema_of(PODS).unknown_fields(document) == ["spec.colour"]


def test_references_of_a_schema_may_follow_each_other() -> None:
    schema = Schema({"$ref": "#/$defs/A"}, {"A": {"$ref": "#/$defs/B", "default": 1}, "B": {"type": "integer"}})
    assert schema.resolve(schema.root) == {"type": "integer", "default": 1}
