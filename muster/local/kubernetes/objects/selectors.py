"""Label and field selectors, in the grammar of Kubernetes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from muster.local.kubernetes.objects.resource import Resource
from muster.local.kubernetes.objects.status_errors import Document, StatusError, bad_request

_NAME = r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_PREFIX = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"
LABEL_KEY = re.compile(rf"(?:(?P<prefix>{_PREFIX})/)?{_NAME}")
LABEL_VALUE = re.compile(rf"({_NAME})?")
_SET = re.compile(r"^(?P<key>\S+)\s+(?P<operator>in|notin)\s*\((?P<values>[^)]*)\)$")
_EQUAL = re.compile(r"^(?P<key>[^=!<>\s]+)\s*(?P<operator>==|=|!=|>|<)\s*(?P<value>\S*)$")


def is_label_key(key: str) -> bool:
    """Whether a text may be the key of a label or an annotation."""
    found = LABEL_KEY.fullmatch(key)
    return found is not None and len(found["prefix"] or "") <= 253


def is_label_value(value: str) -> bool:
    """Whether a text may be the value of a label."""
    return LABEL_VALUE.fullmatch(value) is not None


@dataclass(frozen=True)
class Requirement:
    """One part of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "absent":
            return value is None
        if self.operator == "in":
            return value in self.values
        if self.operator == "notin":
            return value not in self.values
        return _compares(value, self.operator, next(iter(self.values)))


def _compares(value: str | None, operator: str, limit: str) -> bool:
    try:
        number = int(value or "")
    except ValueError:
        return False
    return number > int(limit) if operator == ">" else number < int(limit)


@dataclass(frozen=True)
class Selector:
    """Which objects of a resource a request means."""

    requirements: tuple[Requirement, ...] = ()
    fields: tuple[tuple[Callable[[Document], str], str, bool], ...] = ()
    """Getter of a field, the value, and whether it must be equal."""

    def matches(self, document: Document) -> bool:
        """Whether an object is meant."""
        labels = document.get("metadata", {}).get("labels") or {}
        return all(requirement.matches(labels) for requirement in self.requirements) and all(
            (get(document) == value) is equal for get, value, equal in self.fields
        )


EVERYTHING = Selector()


def selector(resource: Resource, labels: str = "", fields: str = "") -> Selector:
    """Parse a label selector and a field selector.

    Raises:
        StatusError: one of them cannot be parsed, or names a field that cannot be selected by.
    """
    if not labels and not fields:
        return EVERYTHING
    return Selector(parse_labels(labels), _parse_fields(resource, labels, fields))


def parse_labels(text: str) -> tuple[Requirement, ...]:
    """The requirements of a label selector.

    Raises:
        StatusError: it cannot be parsed.
    """
    return tuple(_requirement(part.strip(), text) for part in _split(text))


def _split(text: str) -> list[str]:
    """At the commas that are not between parentheses."""
    return re.split(r",(?![^(]*\))", text) if text.strip() else []


def _requirement(part: str, whole: str) -> Requirement:
    if found := _SET.match(part):
        values = frozenset(value.strip() for value in found["values"].split(","))
        return _checked(Requirement(found["key"], found["operator"], values))
    if found := _EQUAL.match(part):
        operator = {"=": "in", "==": "in", "!=": "notin"}.get(found["operator"], found["operator"])
        return _checked(Requirement(found["key"], operator, frozenset((found["value"],))))
    if part.startswith("!") and part[1:].strip():
        return _checked(Requirement(part[1:].strip(), "absent"))
    if not part or re.search(r"[\s()=<>!]", part):
        raise _unparsable(f"found '{part}', expected: identifier" if part else f"unexpected end of '{whole}'")
    return _checked(Requirement(part, "exists"))


def _checked(requirement: Requirement) -> Requirement:
    if not is_label_key(requirement.key):
        msg = f'<nil>: Invalid value: "{requirement.key}": name part must consist of alphanumeric characters'
        raise _unparsable(msg)
    for value in sorted(requirement.values):
        if requirement.operator in "<>":
            if not re.fullmatch(r"[+-]?\d+", value):
                msg = (
                    f'values[0][{requirement.key}]: Invalid value: "{value}": '
                    "for 'Gt', 'Lt' operators, the value must be an integer"
                )
                raise _unparsable(msg)
        elif not is_label_value(value):
            msg = (
                f'values[0][{requirement.key}]: Invalid value: "{value}": a valid label must be an empty string or '
                "consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
                "character"
            )
            raise _unparsable(msg)
    return requirement


def _unparsable(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _parse_fields(
    resource: Resource, labels: str, text: str
) -> tuple[tuple[Callable[[Document], str], str, bool], ...]:
    found = []
    for part in filter(None, (part.strip() for part in text.split(","))):
        match = re.match(r"^([^=!]+?)(==|=|!=)(.*)$", part)
        if match is None:
            msg = f"invalid selector: '{text}'; can't understand '{part}'"
            raise bad_request(msg)
        name, operator, value = match.groups()
        get = field_getter(resource, name)
        if get is None:
            msg = (
                f'Unable to find "{_named(resource)}" that match label selector "{labels}", field selector "{text}": '
                f"field label not supported: {name}"
            )
            raise bad_request(msg)
        found.append((get, value, operator != "!="))
    return tuple(found)


def _named(resource: Resource) -> str:
    return f"{resource.group}/{resource.version}, Resource={resource.plural}"


def field_getter(resource: Resource, name: str) -> Callable[[Document], str] | None:
    """How a field that a selector names is read; None where the resource has no such field label."""
    if name == "metadata.name":
        return lambda document: str(document["metadata"]["name"])
    if name == "metadata.namespace" and resource.namespaced:
        return lambda document: str(document["metadata"]["namespace"])
    return resource.fields.get(name)


def field_of(*path: str) -> Callable[[Document], str]:
    """A field that selectors may name, by its path: texts as they are, true and false in lower case."""

    def read(document: Document) -> str:
        value: Any = document
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)

    return read
