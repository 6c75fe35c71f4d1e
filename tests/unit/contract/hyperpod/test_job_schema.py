"""What the schema of HyperPodPyTorchJob refuses: everything at once, each with its path."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from muster.contract.hyperpod.job_document import cluster_job
from muster.contract.hyperpod.job_schema import SchemaRule, job_schema, schema_problems
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


POLICY, POD = "spec.runPolicy", "spec.replicaSpecs[0].template.spec"
MISTAKES: list[tuple[str, object, str, SchemaRule]] = [
    ("kind", "PyTorchJob", "kind", SchemaRule.VALUE),
    ("spec", ..., "spec", SchemaRule.REQUIRED),
    ("metadata.name", "Upper", "metadata.name", SchemaRule.LIMIT),
    ("metadata.labels", {"a": "b c"}, "metadata.labels.a", SchemaRule.LIMIT),
    ("metadata.labels", {"/": "b"}, "metadata.labels./", SchemaRule.LIMIT),
    ("spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs", SchemaRule.UNKNOWN),
    ("spec.nprocPerNode", 1, "spec.nprocPerNode", SchemaRule.TYPE),
    (f"{POLICY}.suspend", None, f"{POLICY}.suspend", SchemaRule.TYPE),
    (f"{POLICY}.activeDeadlineSeconds", 0, f"{POLICY}.activeDeadlineSeconds", SchemaRule.LIMIT),
    (f"{POLICY}.cleanPodPolicy", "Some", f"{POLICY}.cleanPodPolicy", SchemaRule.VALUE),
    ("spec.replicaSpecs", [], "spec.replicaSpecs", SchemaRule.LIMIT),
    ("spec.replicaSpecs.0.name", ..., "spec.replicaSpecs[0].name", SchemaRule.REQUIRED),
    ("spec.replicaSpecs.0.template.spec.host", "x", f"{POD}.host", SchemaRule.UNKNOWN),
]


def test_each_mistake_is_refused_at_its_place() -> None:
    for path, value, where, rule in MISTAKES:
        assert [(problem.path, problem.rule) for problem in schema_problems(changed(path, value))] == [(where, rule)]
    document = changed("kind", 1)
    document["spec"] |= {"a": 1, "b": 2}
    assert len(schema_problems(document)) == 3


def test_a_quantity_is_a_number_or_a_text_and_the_server_checks_other_metadata() -> None:
    assert schema_problems(changed("metadata.generateName", "a-")) == []
    for quantity in (8, "8"):
        found = {"limits": {"nvidia.com/gpu": quantity}}
        assert schema_problems(changed("spec.replicaSpecs.0.template.spec.containers.0.resources", found)) == []


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


@settings(max_examples=50)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["spec", "kind", "metadata", "x"]), inner),
    )
)
def test_nothing_that_json_can_hold_breaks_the_check(value: Any) -> None:
    assert schema_problems(value)
