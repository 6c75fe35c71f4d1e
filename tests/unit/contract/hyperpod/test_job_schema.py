"""What the schema of HyperPodPyTorchJob refuses: everything at once, each with its path."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.contract.hyperpod.job_document import cluster_job
from muster.contract.hyperpod.job_schema import SchemaRule, job_schema, resolved_schema, schema_problems
from muster.contract.spec.spec_reader import parse_spec
from tests.support.job_requests import plan_of

SPEC = {"replicas": 1, "trainer": "a.b:c", "image": "image:1", "backend": "hyperpod"}
JOB: Any = cluster_job(plan_of(parse_spec(SPEC)), 0, 1)
KEYWORDS = {
    *("$defs", "$ref", "additionalProperties", "default", "enum", "items", "maximum", "minItems", "minLength"),
    *("minimum", "pattern", "properties", "propertyNames", "required", "type"),
}


def changed(path: str, value: object) -> Any:
    document = copy.deepcopy(JOB)
    *above, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = document
    for part in above:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "where", "rule"),
    [
        ("kind", "PyTorchJob", "kind", SchemaRule.VALUE),
        ("spec", ..., "spec", SchemaRule.REQUIRED),
        ("metadata.name", "Upper", "metadata.name", SchemaRule.LIMIT),
        ("metadata.name", "a\n", "metadata.name", SchemaRule.LIMIT),
        ("metadata.labels", {"a": "b c"}, "metadata.labels.a", SchemaRule.LIMIT),
        ("metadata.labels", {"/": "b"}, "metadata.labels./", SchemaRule.LIMIT),
        ("spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs", SchemaRule.UNKNOWN),
        ("spec.nprocPerNode", 1, "spec.nprocPerNode", SchemaRule.TYPE),
        ("spec.nprocPerNode", "many", "spec.nprocPerNode", SchemaRule.LIMIT),
        ("spec.runPolicy.suspend", None, "spec.runPolicy.suspend", SchemaRule.TYPE),
        ("spec.runPolicy.activeDeadlineSeconds", 0, "spec.runPolicy.activeDeadlineSeconds", SchemaRule.LIMIT),
        ("spec.runPolicy.activeDeadlineSeconds", True, "spec.runPolicy.activeDeadlineSeconds", SchemaRule.TYPE),
        ("spec.runPolicy.cleanPodPolicy", "Some", "spec.runPolicy.cleanPodPolicy", SchemaRule.VALUE),
        ("spec.replicaSpecs", [], "spec.replicaSpecs", SchemaRule.LIMIT),
        ("spec.replicaSpecs.0.name", ..., "spec.replicaSpecs[0].name", SchemaRule.REQUIRED),
        ("spec.replicaSpecs.0.template.spec.host", "x", "spec.replicaSpecs[0].template.spec.host", SchemaRule.UNKNOWN),
    ],
)
def test_each_mistake_is_refused_at_its_place(path: str, value: object, where: str, rule: SchemaRule) -> None:
    assert [(problem.path, problem.rule) for problem in schema_problems(changed(path, value))] == [(where, rule)]


def test_all_mistakes_are_found_at_once() -> None:
    document = changed("kind", 1)
    document["spec"] |= {"a": 1, "b": 2}
    assert len(schema_problems(document)) == 3


@pytest.mark.parametrize("found", [{"limits": {"nvidia.com/gpu": 8}}, {"limits": {"nvidia.com/gpu": "8"}}])
def test_a_quantity_is_a_number_or_a_text(found: Any) -> None:
    assert schema_problems(changed("spec.replicaSpecs.0.template.spec.containers.0.resources", found)) == []


def test_the_defaults_of_the_operator_stand_in_the_schema() -> None:
    policy = resolved_schema(resolved_schema(job_schema()["properties"]["spec"])["properties"]["runPolicy"])
    assert policy["properties"]["ttlSecondsAfterFinished"]["default"] == 0
    assert policy["properties"]["cleanPodPolicy"]["default"] == "All"


def test_the_schema_has_no_keyword_that_is_not_checked() -> None:
    def keywords(node: Any, *, names: bool = False) -> set[str]:
        if isinstance(node, list):
            return set().union(*map(keywords, node))
        if not isinstance(node, dict):
            return set()
        own = set() if names else set(node)
        return own.union(
            *(keywords(item, names=not names and name in {"properties", "$defs"}) for name, item in node.items())
        )

    assert keywords(job_schema()) == KEYWORDS


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["spec", "kind", "metadata", "x"]), inner),
    )
)
def test_nothing_that_json_can_hold_breaks_the_check(value: Any) -> None:
    assert schema_problems(value)
