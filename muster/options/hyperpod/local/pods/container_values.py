"""What a container's environment, command and arguments contain: literals, fields of the pod, `$(NAME)`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

Document = Mapping[str, Any]
_REFERENCE = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")


class MissingReferenceError(Exception):
    """What a container refers to is not there: the kubelet reports CreateContainerConfigError, and waits."""


def variables(pod: Document, container: Document, address: str) -> dict[str, str]:
    """The environment that a container's `env` describes, in a pod that gets an address.

    Raises:
        MissingReferenceError: an entry refers to what is not there.
    """
    for source in container.get("envFrom") or ():
        for member in ("configMapRef", "secretRef"):
            if member in source and not source[member].get("optional"):
                message = f'{member.removesuffix("Ref").lower()} "{source[member].get("name", "")}" not found'
                raise MissingReferenceError(message)
    fields = {"metadata.name": pod["metadata"]["name"], "status.podIP": address}
    found: dict[str, str] = {}
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            path = (entry["valueFrom"].get("fieldRef") or {}).get("fieldPath", "")
            if path not in fields:
                message = f"the embedded cluster has no value for {entry['name']}: of valueFrom it knows {[*fields]}"
                raise MissingReferenceError(message)
            found[entry["name"]] = fields[path]
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
