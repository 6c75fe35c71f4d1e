"""The environment and the command of a container."""

from typing import Any

import pytest

from muster.local.hyperpod.pods.container_values import MissingReferenceError, command_of, expanded, variables

POD = {
    "metadata": {"name": "p-0", "namespace": "ns", "uid": "u", "labels": {"muster/run": "r"}},
    "spec": {"nodeName": "n", "serviceAccountName": "sa"},
    "status": {"podIP": "127.1.2.3", "hostIP": "127.1.2.4"},
}


def values(*entries: dict[str, Any], **container: Any) -> dict[str, str]:
    return variables(POD, {"env": list(entries), **container}, lambda *_: None)


def source(**what: Any) -> dict[str, Any]:
    return {"name": "V", "valueFrom": what}


def test_the_downward_api() -> None:
    known = {
        "metadata.name": "p-0",
        "metadata.namespace": "ns",
        "metadata.uid": "u",
        "metadata.labels['muster/run']": "r",
        "spec.nodeName": "n",
        "spec.serviceAccountName": "sa",
        "status.podIP": "127.1.2.3",
        "status.hostIP": "127.1.2.4",
    }
    assert {path: values(source(fieldRef={"fieldPath": path}))["V"] for path in known} == known


def test_what_is_not_there_is_waited_for() -> None:
    for entry in (source(fieldRef={"fieldPath": "status.nothing"}), source(other={})):
        with pytest.raises(MissingReferenceError):
            values(entry)


def test_references_to_variables() -> None:
    known = {"A": "1"}
    assert expanded("$(A) $$(A) $(B) $A", known) == "1 $(A) $(B) $A"
    assert values({"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2"}) == {"A": "1", "B": "12"}


def test_command_and_arguments() -> None:
    container = {"command": ["python", "-c"], "args": ["print('$(A)')"]}
    assert command_of(container, {"A": "1"}) == ["python", "-c", "print('1')"]
    assert command_of({"args": ["x"]}, {}) == []
