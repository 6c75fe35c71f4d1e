"""Structural schemas as a kube-apiserver uses them: unknown fields, pruning, defaults, validation.

The keywords are those of the committed schema of HyperPodPyTorchJob.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from muster.options.hyperpod.contract.job_schema import resolved_schema
from muster.options.hyperpod.local.kubernetes.objects.status_errors import (
    Document,
    Problem,
    invalid,
    required,
    unsupported,
    wrong_type,
)

Node = Mapping[str, Any]
_KINDS: Mapping[type, str] = {
    type(None): "null",
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
}


@dataclass(frozen=True)
class Schema:
    """A schema, which may refer to the definitions of that of HyperPodPyTorchJob."""

    root: Node

    def unknown_fields(self, document: Document) -> list[str]:
        """The paths of all fields that the schema does not know."""
        return list(self._unknown(document, self.root, ""))

    def pruned(self, document: Document) -> Document:
        """The document without unknown fields, and without null where the schema takes none."""
        result: Document = self._prune(document, self.root)
        return result

    def defaulted(self, document: Document) -> Document:
        """The document with the schema's defaults where it says nothing."""
        result: Document = self._default(copy.deepcopy(document), self.root)
        return result

    def problems(self, document: Document, path: str = "") -> list[Problem]:
        """Everything that the schema refuses, unknown fields left aside."""
        return list(self._problems(document, self.root, path))

    def _members(self, node: Node) -> tuple[Mapping[str, Node], Any]:
        """The known properties, and what the schema says of others: False, True, or their schema."""
        properties = node.get("properties", {})
        return properties, node.get("additionalProperties", not properties)

    def _unknown(self, value: Any, node: Node, path: str) -> Iterator[str]:
        node = resolved_schema(node)
        if isinstance(value, dict):
            properties, others = self._members(node)
            for name, item in value.items():
                if name in properties:
                    yield from self._unknown(item, properties[name], _member(path, name))
                elif others is False:
                    yield _member(path, name)
                elif isinstance(others, Mapping):
                    yield from self._unknown(item, others, _member(path, name))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from self._unknown(item, node.get("items", {}), f"{path}[{index}]")

    def _prune(self, value: Any, node: Node) -> Any:
        node = resolved_schema(node)
        if isinstance(value, dict):
            properties, others = self._members(node)
            kept = {}
            for name, item in value.items():
                if item is None and name in properties and "null" not in _types(resolved_schema(properties[name])):
                    continue
                if name in properties:
                    kept[name] = self._prune(item, properties[name])
                elif others is not False:
                    kept[name] = self._prune(item, others) if isinstance(others, Mapping) else copy.deepcopy(item)
            return kept
        if isinstance(value, list):
            return [self._prune(item, node.get("items", {})) for item in value]
        return value

    def _default(self, value: Any, node: Node) -> Any:
        node = resolved_schema(node)
        if isinstance(value, dict):
            properties, others = self._members(node)
            for name, member in properties.items():
                found = resolved_schema(member)
                if name not in value and "default" in found:
                    value[name] = copy.deepcopy(found["default"])
                if name in value:
                    value[name] = self._default(value[name], found)
            if isinstance(others, Mapping):
                for name in value.keys() - properties.keys():
                    value[name] = self._default(value[name], others)
        elif isinstance(value, list):
            return [self._default(item, node.get("items", {})) for item in value]
        return value

    def _problems(self, value: Any, node: Node, path: str) -> Iterator[Problem]:
        node = resolved_schema(node)
        allowed = _types(node)
        kind = _KINDS[type(value)]
        if allowed and kind not in allowed and not (kind == "integer" and "number" in allowed):
            yield wrong_type(path, value, ",".join(allowed))
        elif isinstance(value, dict):
            yield from self._object_problems(value, node, path)
        elif isinstance(value, list):
            least = node.get("minItems", 0)
            if len(value) < least:
                yield invalid(path, len(value), f"{path} in body should have at least {least} items")
            for index, item in enumerate(value):
                yield from self._problems(item, node.get("items", {}), f"{path}[{index}]")
        else:
            yield from _value_problems(value, node, path)

    def _object_problems(self, value: Document, node: Node, path: str) -> Iterator[Problem]:
        properties, others = self._members(node)
        for name in node.get("required", ()):
            if name not in value:
                yield required(_member(path, name))
        for name, item in value.items():
            if name in properties:
                yield from self._problems(item, properties[name], _member(path, name))
            elif isinstance(others, Mapping):
                yield from self._problems(item, others, _member(path, name))


def _value_problems(value: Any, node: Node, path: str) -> Iterator[Problem]:
    choices, pattern = node.get("enum"), node.get("pattern")
    if choices is not None and value not in choices:
        yield unsupported(path, value, choices)
    if isinstance(value, str):
        if pattern is not None and (value.endswith("\n") or not _compiled(pattern).search(value)):
            yield invalid(path, value, f"{path} in body should match '{pattern}'")
        least = node.get("minLength", 0)
        if len(value) < least:
            yield invalid(path, value, f"{path} in body should be at least {least} chars long")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        least, most = node.get("minimum"), node.get("maximum")
        if least is not None and value < least:
            yield invalid(path, value, f"{path} in body should be greater than or equal to {least}")
        if most is not None and value > most:
            yield invalid(path, value, f"{path} in body should be less than or equal to {most}")


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _types(node: Node) -> list[str]:
    found = node.get("type")
    return [found] if isinstance(found, str) else list(found or ())


def _member(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
