"""What a container's environment, command and arguments contain: literals, references, `$(NAME)`."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from muster.local.hyperpod.quantities import quantity

Document = Mapping[str, Any]
Lookup = Callable[[str, str], Document | None]
"""The ConfigMap or Secret of a name in the pod's namespace: (kind, name)."""

_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")
_IN_STATUS = {"status.podIP": "podIP", "status.podIPs": "podIP", "status.hostIP": "hostIP", "status.hostIPs": "hostIP"}


class MissingReferenceError(Exception):
    """What a container refers to is not there: the kubelet reports CreateContainerConfigError, and waits."""


def variables(pod: Document, container: Document, lookup: Lookup) -> dict[str, str]:
    """The environment that a container's `envFrom` and `env` describe.

    Raises:
        MissingReferenceError: a ConfigMap, Secret or key is not there.
    """
    found: dict[str, str] = {}
    for source in container.get("envFrom") or ():
        found.update(_all_of(source, lookup))
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            value = _referenced(entry["valueFrom"], pod, container, lookup)
            if value is not None:
                found[entry["name"]] = value
        else:
            found[entry["name"]] = expanded(entry.get("value") or "", found)
    return found


def expanded(text: str, known: Mapping[str, str]) -> str:
    """`text` with the values of `$(NAME)`; a name that is not known stays, and `$$` is one `$`."""
    return _REFERENCE.sub(lambda match: "$" if match[1] is None else known.get(match[1], match[0]), text)


def command_of(container: Document, known: Mapping[str, str]) -> list[str]:
    """Command and arguments. Empty where the container names none: the embedded image has no entrypoint of its own."""
    words: Sequence[str] = [*(container.get("command") or ()), *(container.get("args") or ())]
    return [expanded(word, known) for word in words] if container.get("command") else []


def _referenced(source: Document, pod: Document, container: Document, lookup: Lookup) -> str | None:
    if "fieldRef" in source:
        return _field(str(source["fieldRef"]["fieldPath"]), pod)
    if "resourceFieldRef" in source:
        return _resource(source["resourceFieldRef"], container)
    for member, kind in (("configMapKeyRef", "ConfigMap"), ("secretKeyRef", "Secret")):
        if member in source:
            reference = source[member]
            return _key(kind, reference["name"], reference["key"], bool(reference.get("optional")), lookup)
    message = f"valueFrom has none of the known sources: {', '.join(source) or 'nothing'}"
    raise MissingReferenceError(message)


def _field(path: str, pod: Document) -> str:
    metadata, spec, status = pod["metadata"], pod.get("spec", {}), pod.get("status", {})
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    if path in {"metadata.name", "metadata.namespace", "metadata.uid"}:
        return str(metadata.get(path.split(".")[1], ""))
    if path == "spec.nodeName":
        return str(spec.get("nodeName", ""))
    if path == "spec.serviceAccountName":
        return str(spec.get("serviceAccountName", "default"))
    if path in _IN_STATUS:
        return str(status.get(_IN_STATUS[path], ""))
    message = f"fieldPath {path} is not one of the downward API"
    raise MissingReferenceError(message)


def _resource(reference: Document, container: Document) -> str:
    section, _, name = str(reference["resource"]).partition(".")
    value = ((container.get("resources") or {}).get(section) or {}).get(name, "0")
    divisor = quantity(reference.get("divisor") or "1") or Fraction(1)
    return str(-(-quantity(value) // divisor))


def _key(kind: str, name: str, key: str, optional: bool, lookup: Lookup) -> str | None:
    document = lookup(kind, name)
    value = None if document is None else values_in(kind, document).get(key)
    if value is None and not optional:
        what = f'{kind.lower()} "{name}" not found' if document is None else f"couldn't find key {key} in {kind} {name}"
        raise MissingReferenceError(what)
    return value


def _all_of(source: Document, lookup: Lookup) -> dict[str, str]:
    for member, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret")):
        if member in source:
            document = lookup(kind, source[member]["name"])
            if document is None and not source[member].get("optional"):
                message = f'{kind.lower()} "{source[member]["name"]}" not found'
                raise MissingReferenceError(message)
            return {f"{source.get('prefix', '')}{key}": value for key, value in values_in(kind, document or {}).items()}
    return {}


def values_in(kind: str, document: Document) -> dict[str, str]:
    """The values of a ConfigMap or Secret, as a container gets them."""
    data = document.get("data") or {}
    if kind == "ConfigMap":
        return {key: str(value) for key, value in data.items()}
    return {key: base64.b64decode(value).decode(errors="replace") for key, value in data.items()}
