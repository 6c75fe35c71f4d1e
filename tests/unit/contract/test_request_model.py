"""Every request that a spec leads to is one that botocore's own model of the service accepts; its instance types."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape

from muster.contract.aws.instance_types import TRAINING_INSTANCE_TYPES, has_own_disks
from muster.contract.errors import SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.training.hints import LEFT_OUT
from muster.local.sagemaker.request_validation import operation_model
from tests.support.full_specs import FULL_SPECS
from tests.support.job_requests import refusals, requests

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


def changed(value: Any) -> Iterator[Any]:
    """`value` with one part of it changed: taken away, repeated, longer, or out of its range or alphabet."""
    match value:
        case bool():
            yield not value
        case int():
            yield from (-1, 0, 1_000, 10**8)
        case str():
            yield from ("", *(value + end for end in ("\n", "\u00e9", "_", "*", "x" * 300, "x" * 5_000)))
        case list():
            yield from ([], value * 50)
            yield from ([*value[:at], new, *value[at + 1 :]] for at, item in enumerate(value) for new in changed(item))
        case _:
            yield from ({other: value[other] for other in value if other != name} for name in value)
            yield from ({**value, name: new} for name, item in value.items() for new in changed(item))


def test_nothing_that_passes_the_spec_is_refused_by_the_service() -> None:
    """Whatever single part of the full specs is changed."""
    accepted: list[Spec] = []
    for fields in (part for spec in FULL_SPECS for part in changed(spec)):
        # The stack's image takes the place of a missing one.
        image = {} if "algorithm_name" in fields else {"image": "image:1"}
        with suppress(SpecError):
            accepted.append(parse_spec({**image, **fields}))
    # The client looks up the ARN of a role that only has a name.
    sent = [requests(spec, 1)[0] for spec in accepted if spec.named_role is None]
    assert [refusal for request in sent for refusal in refusals(request)] == []
    assert len(sent) > 100


def test_a_role_of_ones_own_may_do_without_session_tags() -> None:
    found = {}
    for chained in (None, False):
        config = None if chained is None else {"enable_session_tag_chaining": chained}
        spec: dict[str, Any] = {"replicas": 1, "trainer": "a.b:c", "image": "i", "session_chaining_config": config}
        spec["role_arn"] = "arn:aws:iam::123456789012:role/own"
        (request,) = requests(parse_spec(spec))
        found[chained] = request["SessionChainingConfig"]["EnableSessionTagChaining"]
    assert found == {None: True, False: False}
