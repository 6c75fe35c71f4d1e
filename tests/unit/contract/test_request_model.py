"""Every request that a spec leads to is one that botocore's own model of the service accepts; its instance types."""

from __future__ import annotations

import types
import typing
from typing import Any, get_args, get_origin

import annotated_types
from botocore.model import ListShape, MapShape, Shape, StructureShape
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from muster.contract.aws.instance_types import TRAINING_INSTANCE_TYPES
from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.hints import LEFT_OUT
from muster.contract.training.resources import has_own_disks
from muster.local.sagemaker.request_validation import operation_model
from tests.support.full_specs import FULL_SPECS
from tests.support.job_requests import refusals, requests

BASE = {"replicas": 3, "trainer": "a.b:c", "image": "image:1"}
# What a run has and a training job has not, or what is not drawn: the rules between fields of `overrides` are many.
NOT_DRAWN = {
    *("name", "replicas", "trainer", "kwargs", "entrypoint", "image", "reruns", "rendezvous", "overrides", "recipe"),
    *("backend", "hyperpod", "on_replica_failure"),
}
# The service's list of instance types grows; ours is a pattern. For the model's enum, take some that it has.
KNOWN_TYPES = ["ml.m5.xlarge", "ml.g5.2xlarge", "ml.p3.2xlarge", "ml.c5.xlarge", "ml.m5.large"]
# EC2, "Amazon EBS-only" families of the training types. A family that botocore learns of is decided here.
EBS_ONLY = {
    *("c4", "c5", "c5n", "c6i", "c7i", "c7i-flex", "c8i", "c8i-flex"),
    *("m4", "m5", "m6i", "m7i", "m7i-flex", "m8i", "m8i-flex"),
    *("r5", "r6i", "r7i", "r8i", "r8i-flex", "t3", "p2", "p3"),
}


def test_every_instance_type_is_known_and_has_disks_of_its_own_or_a_volume() -> None:
    resources = operation_model("CreateTrainingJob").input_shape.members["ResourceConfig"]
    types_ = resources.members["InstanceType"].metadata["enum"]
    assert set(types_) == TRAINING_INSTANCE_TYPES
    assert {name.split(".")[1] for name in types_ if not has_own_disks(name)} == EBS_ONLY
    newest = ("g7", "g7e", "p6-b300", "p6e-gb200")
    assert [family for family in newest if not has_own_disks(f"ml.{family}.48xlarge")] == []


def paths(shape: Shape, value: Any, path: str = "") -> set[str]:
    """The members of the model that `value` sets."""
    if isinstance(shape, StructureShape):
        inner = [paths(shape.members[name], member, f"{path}.{name}") for name, member in value.items()]
        return {path}.union(*inner)
    if isinstance(shape, ListShape):
        return {path}.union(*(paths(shape.member, member, path) for member in value))
    return {path}


def all_paths(shape: Shape, path: str = "") -> set[str]:
    if isinstance(shape, StructureShape):
        known = {name: member for name, member in shape.members.items() if name not in LEFT_OUT}
        return {path}.union(*(all_paths(member, f"{path}.{name}") for name, member in known.items()))
    return all_paths(shape.member, path) if isinstance(shape, ListShape) else {path}


def test_full_specs_lead_to_accepted_requests_and_set_every_member_that_is_not_left_out_with_a_reason() -> None:
    shape = operation_model("CreateTrainingJob").input_shape
    sent = [request for spec in FULL_SPECS for request in requests(parse_spec(spec))]
    assert [refusal for request in sent for refusal in refusals(request)] == []
    unset = all_paths(shape) - set().union(*(paths(shape, request) for request in sent))
    # Named by Muster in every request, or given by the list as a whole.
    assert unset <= {".ResourceConfig.InstancePreferences.InstanceCount"}
    assert set(LEFT_OUT) <= _names(shape), "a reason for a member that the service does not have"


def _names(shape: Shape) -> set[str]:
    if isinstance(shape, StructureShape):
        return set(shape.members).union(*map(_names, shape.members.values()))
    if isinstance(shape, ListShape):
        return _names(shape.member)
    return _names(shape.value) if isinstance(shape, MapShape) else set()


def drawn(annotation: Any, metadata: tuple[Any, ...] = ()) -> st.SearchStrategy[Any]:
    """Values that a field's type and limits allow."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return drawn(arguments[0], (*arguments[1:], *metadata))
    if origin in {typing.Union, types.UnionType}:
        return drawn(next(argument for argument in arguments if argument is not types.NoneType), metadata)
    if origin is typing.Literal:
        return st.sampled_from(arguments)
    return _bounded(annotation, _limits(metadata))


def _bounded(annotation: Any, limits: tuple[Any, Any, Any, Any, str | None]) -> st.SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    least, most, low, high, pattern = limits
    if origin is list:
        return st.lists(drawn(arguments[0]), min_size=least or 0, max_size=min(most or 3, (least or 0) + 3))
    if origin is dict:
        return st.dictionaries(drawn(arguments[0]), drawn(arguments[1]), max_size=3)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return model(annotation)
    if annotation is str:
        return _text(pattern, least or 0, most or 300)
    if annotation is int:
        return st.integers(low, high)
    return st.booleans()


def _limits(metadata: tuple[Any, ...]) -> tuple[Any, Any, Any, Any, str | None]:
    found: dict[str, Any] = {}
    for item in (inner for outer in metadata for inner in getattr(outer, "metadata", [outer])):
        match item:
            case annotated_types.MinLen():
                found["least"] = item.min_length
            case annotated_types.MaxLen():
                found["most"] = min(item.max_length, found.get("most", item.max_length))
            case annotated_types.Ge():
                found["low"] = item.ge
            case annotated_types.Le():
                found["high"] = item.le
            case _ if getattr(item, "pattern", None):
                found["pattern"] = item.pattern
    return tuple(found.get(name) for name in ("least", "most", "low", "high", "pattern"))  # type: ignore[return-value]


def _text(pattern: str | None, least: int, most: int) -> st.SearchStrategy[str]:
    if pattern is not None and pattern.startswith(r"^ml\."):
        return st.sampled_from(KNOWN_TYPES)
    if pattern is None:
        return st.text(st.characters(exclude_categories=("Cs",)), min_size=least, max_size=most)
    # Python's expressions know no \p; what they lack is covered by the table of limits.
    python = pattern.replace(r"\p{L}\p{Z}\p{N}_", r"\w ")
    return st.from_regex(python.removesuffix("$") + r"\Z").filter(lambda text: least <= len(text) <= most)


def model(annotation: type[BaseModel]) -> st.SearchStrategy[dict[str, Any]]:
    required, optional = {}, {}
    for name, field in annotation.model_fields.items():
        part = required if field.is_required() else optional
        part[name] = drawn(field.annotation, tuple(field.metadata))
    return st.fixed_dictionaries(required, optional=optional)


def specs() -> st.SearchStrategy[dict[str, Any]]:
    """Specs of one to four fields besides the base: more of them would mostly disagree with each other."""
    fields = {
        name: drawn(field.annotation, tuple(field.metadata))
        for name, field in Spec.model_fields.items()
        if name not in NOT_DRAWN and not isinstance(field.annotation, type(None))
    }
    chosen = st.lists(st.sampled_from(sorted(fields)), min_size=1, max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: fields[name] for name in names}))


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(specs())
def test_nothing_that_passes_the_spec_is_refused_by_the_service(fields: dict[str, Any]) -> None:
    try:
        spec = parse_spec({**BASE, **fields} if "algorithm_name" not in fields else {**BASE, **fields, "image": None})
    except SpecError:
        return
    if spec.named_role is not None:
        return  # the client looks its ARN up
    assert [refusal for request in requests(spec) for refusal in refusals(request)] == []
