"""The schema of HyperPodPyTorchJob, and what of a document it refuses.

`job_schema.json` is derived from the models of AWS's SDK for HyperPod
(tests/release/oracle/hyperpod_side/job_schema.py). Only the keywords that stand in it are known here, so that the
functions need no package for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, cast

from pydantic import JsonValue

from muster.contract.text import shortened

Schema = Mapping[str, Any]
_DEFINITION = "#/$defs/"
_FOUND_MAX = 80
_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


class SchemaRule(StrEnum):
    """Which rule of the schema a value breaks: the reasons that the API of Kubernetes has for it."""

    UNKNOWN = "FieldValueForbidden"
    REQUIRED = "FieldValueRequired"
    TYPE = "FieldValueTypeInvalid"
    VALUE = "FieldValueNotSupported"
    LIMIT = "FieldValueInvalid"


@dataclass(frozen=True)
class SchemaProblem:
    """One value that the schema refuses. `path` is as Kubernetes writes it: `spec.replicaSpecs[0].name`."""

    path: str
    rule: SchemaRule
    allowed: str
    found: str = ""
    """Empty where the value is not shown."""

    @property
    def statement(self) -> str:
        """What was found, and what is allowed."""
        return f"found {self.found}; {self.allowed}" if self.found else self.allowed

    def __str__(self) -> str:
        return f"{self.path}: {self.statement}"


@cache
def job_schema() -> Schema:
    """The schema of the whole object."""
    path = Path(__file__).with_name("job_schema.json")
    return cast("Schema", json.loads(path.read_text(encoding="utf-8")))


def schema_problems(document: JsonValue) -> list[SchemaProblem]:
    """Everything in `document` that no HyperPodPyTorchJob may have."""
    return problems_of(document, job_schema())


def problems_of(document: JsonValue, schema: Schema) -> list[SchemaProblem]:
    """Everything in `document` that a schema refuses; it may refer to definitions of that of HyperPodPyTorchJob."""
    return list(_problems(document, schema, ""))


def member_problems(definition: str, name: str, value: JsonValue, path: str) -> list[SchemaProblem]:
    """Everything in the value of a member, which the definition has, that no HyperPodPyTorchJob may have."""
    return list(_problems(value, job_schema()["$defs"][definition]["properties"][name], path))


def resolved_schema(schema: Schema) -> Schema:
    """The schema itself, or the definition that it refers to, with what stands beside the reference."""
    reference = schema.get("$ref")
    if reference is None:
        return schema
    definition = job_schema()["$defs"][str(reference).removeprefix(_DEFINITION)]
    return {**definition, **{name: value for name, value in schema.items() if name != "$ref"}}


def _problems(value: JsonValue, schema: Schema, path: str) -> Iterator[SchemaProblem]:
    schema = resolved_schema(schema)
    kinds = types_of(schema)
    if kinds and _kind(value) not in kinds and not (_kind(value) == "integer" and "number" in kinds):
        found = "null" if value is None else f"{_kind(value)} {_shown(value)}"
        yield SchemaProblem(path or "the document", SchemaRule.TYPE, f"must be {' or '.join(kinds)}", found)
    elif isinstance(value, dict):
        yield from _object_problems(value, schema, path)
    elif isinstance(value, list):
        if len(value) < schema.get("minItems", 0):
            yield SchemaProblem(path, SchemaRule.LIMIT, f"must have at least {schema['minItems']} items")
        for index, item in enumerate(value):
            yield from _problems(item, schema.get("items", {}), f"{path}[{index}]")
    else:
        yield from _value_problems(value, schema, path)


def _object_problems(value: Mapping[str, JsonValue], schema: Schema, path: str) -> Iterator[SchemaProblem]:
    properties: Mapping[str, Schema] = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield SchemaProblem(member_path(path, name), SchemaRule.REQUIRED, "missing; it is required")
    further, names = schema.get("additionalProperties", True), schema.get("propertyNames", {})
    for name, item in value.items():
        where = member_path(path, name)
        if name in properties:
            yield from _problems(item, properties[name], where)
        elif further is False:
            known = ", ".join(sorted(properties))
            yield SchemaProblem(where, SchemaRule.UNKNOWN, f"unknown field; known are {known}")
        else:
            pattern = names.get("pattern")
            if pattern is not None and re.search(pattern, name) is None:
                yield SchemaProblem(where, SchemaRule.LIMIT, f"the name {_shown(name)} does not match {pattern}")
            if further is not True:
                yield from _problems(item, further, where)


def _value_problems(value: JsonValue, schema: Schema, path: str) -> Iterator[SchemaProblem]:
    choices, pattern = schema.get("enum"), schema.get("pattern")
    if choices is not None and value not in choices:
        listed = ", ".join(map(_shown, choices))
        yield SchemaProblem(path, SchemaRule.VALUE, f"must be one of {listed}", _shown(value))
    if isinstance(value, str):
        # `$` of the pattern would also match before a line break at the end.
        if pattern is not None and (value.endswith("\n") or re.search(pattern, value) is None):
            yield SchemaProblem(path, SchemaRule.LIMIT, f"must match {pattern}", _shown(value))
        if len(value) < schema.get("minLength", 0):
            yield SchemaProblem(path, SchemaRule.LIMIT, f"must have at least {schema['minLength']} characters")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is not None and value < least:
            yield SchemaProblem(path, SchemaRule.LIMIT, f"must be at least {least}", str(value))
        if most is not None and value > most:
            yield SchemaProblem(path, SchemaRule.LIMIT, f"must be at most {most}", str(value))


def types_of(schema: Schema) -> list[str]:
    """The types that a schema allows; empty: any."""
    allowed = schema.get("type")
    return [allowed] if isinstance(allowed, str) else allowed or []


def member_path(path: str, name: str) -> str:
    """The path of a member of the object at `path`."""
    return f"{path}.{name}" if path else name


def _kind(value: JsonValue) -> str:
    """The type of a value as the schema names it."""
    return _KINDS[type(value)]


def _shown(value: object) -> str:
    return shortened(json.dumps(value, ensure_ascii=False), _FOUND_MAX)
