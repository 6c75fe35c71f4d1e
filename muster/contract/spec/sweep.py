"""`sweep`: values by rank. The replicas of a sweep train apart: none of them waits for another, or shares its model.

A name that begins with `kwargs.`, `hyper_parameters.` or `environment.` is a field of the spec. Every other name is a
value of the recipe, whose ranks are resolved one by one.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from pydantic import JsonValue, TypeAdapter, ValidationError

from muster.contract.errors import Problem, StatedProblem
from muster.contract.names import APART_MAX
from muster.contract.spec.policies import OnEarlyFinish, OnReplicaFailure
from muster.contract.spec.private_values import kind_of, may_be_secret
from muster.contract.spec.sweep_values import FIELDS, of_spec
from muster.contract.training.values import (
    EnvironmentKey,
    EnvironmentValue,
    HyperParameterKey,
    HyperParameterValue,
)

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields

S = TypeVar("S", bound="SpecFields")

# Status and page show the values of a sweep, and of an environment none.
_SECRET = re.compile(r"SECRET|PASSWORD|CREDENTIAL|TOKEN|(^|_)KEY", re.IGNORECASE)


def with_sweep_defaults(document: Mapping[str, object]) -> dict[str, object]:
    """A spec's fields; of a sweep with its own defaults: the loss of a replica does not end the others."""
    if not document.get("sweep"):
        return dict(document)
    policy = document.get("on_replica_failure", str(OnReplicaFailure.CONTINUE))
    least = {} if policy != OnReplicaFailure.CONTINUE else {"min_replicas": 1}
    return {"on_replica_failure": policy, **least, **document}


def with_sweep(spec: S, rank: int) -> S:
    """`spec` with the values of `rank` in its fields."""
    fields: dict[str, dict[str, JsonValue]] = {
        "kwargs": dict(spec.kwargs),
        "hyper_parameters": dict(spec.hyper_parameters),
        "environment": dict(spec.environment),
    }
    for name, values in spec.sweep.items():
        if of_spec(name) and rank < len(values):
            field, _, key = name.partition(".")
            path = key.split(".") if field == "kwargs" else [key]
            fields[field] = _with_value(fields[field], path, values[rank])
    return spec.model_copy(update=dict(fields))


def _with_value(values: Mapping[str, JsonValue], path: Sequence[str], value: JsonValue) -> dict[str, JsonValue]:
    key, *rest = path
    inner = values.get(key)
    if rest:
        value = _with_value(inner if isinstance(inner, dict) else {}, rest, value)
    return {**values, key: value}


def sweep_problems(spec: SpecFields) -> Iterator[Problem]:
    """Problems of a spec with `sweep`."""
    for name, values in spec.sweep.items():
        if len(values) != spec.replicas:
            count = f"{len(values):,} value{'s' if len(values) != 1 else ''}"
            yield Problem(f"sweep.{name}", count, "write one value for each rank", f"replicas is {spec.replicas:,}")
        if _may_be_secret(name):
            remedy = "set it in environment or in overrides, or choose another name"
            yield StatedProblem(f"sweep.{name}", "this may be a secret, and the values of a sweep are shown", remedy)
        elif of_spec(name):
            yield from _field_problems(spec, name, values)
        elif spec.recipe is None:
            statement = "it is no field of the spec, and there is no recipe"
            yield StatedProblem(f"sweep.{name}", statement, _nearest(spec, name))
    if not spec.sweep:
        return
    yield from _twice(spec.sweep)
    if (spec.has_trainer or spec.recipe is not None) and spec.replicas > APART_MAX:
        remedy = "lower it, or launch several sweeps"
        allowed = f"at most {APART_MAX} in a sweep with a trainer or a recipe"
        yield Problem("replicas", f"{spec.replicas:,}", remedy, allowed)
    apart = "the replicas of a sweep exchange nothing"
    members = spec.rendezvous.min_participants
    if members not in {None, 1}:
        yield Problem("rendezvous.min_participants", str(members), "leave it out", f"with sweep 1: {apart}")
    if spec.on_early_finish is OnEarlyFinish.STOP:
        yield StatedProblem("on_early_finish", "stop is set together with sweep", "leave it out", apart)
    for rule in spec.watch.excluding:
        remedy = "choose report, restart or stop"
        yield StatedProblem(f"watch.{rule}.then", "exclude is set together with sweep", remedy, apart)


def _may_be_secret(name: str) -> bool:
    field, _, key = name.partition(".")
    return bool(_SECRET.search(key)) if field == "environment" else may_be_secret(name)


def _nearest(spec: SpecFields, name: str) -> str:
    known = [f"{field}.{key}" for field in FIELDS for key in getattr(spec, field)]
    keys = {key.partition(".")[2]: key for key in known}
    near = difflib.get_close_matches(name, keys, 1) or difflib.get_close_matches(name, known, 1)
    if near:
        return f"did you mean {keys.get(near[0], near[0])}?"
    return "begin with kwargs., hyper_parameters. or environment., or name a recipe"


def _field_problems(spec: SpecFields, name: str, values: Sequence[JsonValue]) -> Iterator[Problem]:
    field, _, key = name.partition(".")
    if field == "kwargs":
        yield from _argument_problems(spec, name, key.split("."))
        return
    of_key, of_value = _texts(field)
    if not _fits(of_key, key):
        yield Problem(f"sweep.{name}", repr(key), "correct the name", f"a name that {field} can have")
    elif field == "environment" and key.startswith("MUSTER_"):
        yield StatedProblem(f"sweep.{name}", "this name is reserved", "choose one that does not begin with MUSTER_")
    wrong = next((rank for rank, value in enumerate(values) if not _fits(of_value, value)), None)
    if wrong is not None:
        found = f"{kind_of(values[wrong])} for rank {wrong}"
        yield Problem(f"sweep.{name}", found, f"write texts that {field} can have, such as '0.1'")


def _argument_problems(spec: SpecFields, name: str, path: Sequence[str]) -> Iterator[Problem]:
    if not spec.has_trainer:
        remedy = "sweep hyper_parameters, environment or values of the recipe"
        yield StatedProblem(f"sweep.{name}", "kwargs are swept without trainer", remedy)
    if not all(path):
        yield Problem(f"sweep.{name}", repr(name), "write names between the dots", "kwargs.name or kwargs.name.name")
        return
    found: JsonValue = spec.kwargs
    for number, key in enumerate(path):
        if not isinstance(found, dict):
            where = ".".join(["kwargs", *path[:number]])
            yield StatedProblem(f"sweep.{name}", f"{where} is no mapping in kwargs", "name a value that can be there")
            return
        if key not in found:
            return
        found = found[key]


def _twice(sweep: Mapping[str, object]) -> Iterator[Problem]:
    for name in sweep:
        over = next((other for other in sweep if name.startswith(f"{other}.") and of_spec(other)), None)
        if over is not None:
            yield StatedProblem(f"sweep.{name}", f"it is a part of {over}, which is swept as well", "leave one out")


@cache
def _texts(field: str) -> tuple[TypeAdapter[str], TypeAdapter[str]]:
    """The keys and the values of a field. Made for the first sweep of texts: most specs have none."""
    if field == "environment":
        return TypeAdapter(EnvironmentKey), TypeAdapter(EnvironmentValue)
    return TypeAdapter(HyperParameterKey), TypeAdapter(HyperParameterValue)


def _fits(kind: TypeAdapter[str], value: object) -> bool:
    try:
        kind.validate_python(value, strict=True)
    except ValidationError:
        return False
    return True
