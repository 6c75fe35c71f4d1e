"""The environment and the command of a container."""

from typing import Any

import pytest

from muster.options.hyperpod.local.pods.container_values import MissingReferenceError, command_of, expanded, variables


def values(*entries: dict[str, Any], **container: Any) -> dict[str, str]:
    return variables({"metadata": {"name": "p-0"}}, {"env": list(entries), **container}, "127.1.2.3")


def source(**what: Any) -> dict[str, Any]:
    return {"name": "V", "valueFrom": what}


def test_the_downward_api() -> None:
    known = {"metadata.name": "p-0", "status.podIP": "127.1.2.3"}
    assert {path: values(source(fieldRef={"fieldPath": path}))["V"] for path in known} == known


def test_what_is_not_there_is_waited_for() -> None:
    for entry in (source(fieldRef={"fieldPath": "status.hostIP"}), source(secretKeyRef={"name": "a", "key": "b"})):
        with pytest.raises(MissingReferenceError):
            values(entry)
    with pytest.raises(MissingReferenceError, match='secret "keys" not found'):
        values(envFrom=[{"secretRef": {"name": "keys"}}])
    assert values(envFrom=[{"configMapRef": {"name": "keys", "optional": True}}]) == {}


def test_references_to_variables() -> None:
    known = {"A": "1"}
    assert expanded("$(A) $$(A) $(B) $A", known) == "1 $(A) $(B) $A"
    assert values({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}) == {"A": "1", "B": "12"}


def test_command_and_arguments() -> None:
    container = {"command": ["python", "-c"], "args": ["print('$(A)')"]}
    assert command_of(container, {"A": "1"}) == ["python", "-c", "print('1')"]
    assert command_of({"args": ["x"]}, {}) == []
