"""The environment and the command of a container."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from muster.local.hyperpod.pods.container_values import MissingReferenceError, command_of, expanded, variables

POD = {
    "metadata": {"name": "p-0", "namespace": "ns", "uid": "u", "labels": {"muster/run": "r"}},
    "spec": {"nodeName": "n", "serviceAccountName": "sa"},
    "status": {"podIP": "127.1.2.3", "hostIP": "127.1.2.4"},
}
OBJECTS = {
    ("ConfigMap", "cm"): {"data": {"key": "value"}},
    ("Secret", "s"): {"data": {"key": base64.b64encode(b"hidden").decode()}},
}


def lookup(kind: str, name: str) -> Mapping[str, Any] | None:
    return OBJECTS.get((kind, name))


def values(*entries: dict[str, Any], **container: Any) -> dict[str, str]:
    return variables(POD, {"env": list(entries), **container}, lookup)


def source(**what: Any) -> dict[str, Any]:
    return {"name": "V", "valueFrom": what}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("metadata.name", "p-0"),
        ("metadata.namespace", "ns"),
        ("metadata.uid", "u"),
        ("metadata.labels['muster/run']", "r"),
        ("spec.nodeName", "n"),
        ("spec.serviceAccountName", "sa"),
        ("status.podIP", "127.1.2.3"),
        ("status.hostIP", "127.1.2.4"),
    ],
)
def test_the_downward_api(path: str, value: str) -> None:
    assert values(source(fieldRef={"fieldPath": path})) == {"V": value}


def test_resources_of_the_container_are_rounded_up() -> None:
    resources = {"limits": {"cpu": "1500m", "memory": "1Gi"}}
    entries = (source(resourceFieldRef={"resource": "limits.cpu"}),)
    assert values(*entries, resources=resources) == {"V": "2"}
    mebi = source(resourceFieldRef={"resource": "limits.memory", "divisor": "1Mi"})
    assert values(mebi, resources=resources) == {"V": "1024"}


def test_config_maps_and_secrets() -> None:
    assert values(source(configMapKeyRef={"name": "cm", "key": "key"})) == {"V": "value"}
    assert values(source(secretKeyRef={"name": "s", "key": "key"})) == {"V": "hidden"}
    assert values(source(configMapKeyRef={"name": "none", "key": "key", "optional": True})) == {}
    assert values(envFrom=[{"prefix": "X_", "configMapRef": {"name": "cm"}}]) == {"X_key": "value"}


@pytest.mark.parametrize(
    "entry",
    [
        source(configMapKeyRef={"name": "none", "key": "key"}),
        source(configMapKeyRef={"name": "cm", "key": "none"}),
        source(fieldRef={"fieldPath": "status.nothing"}),
        source(other={}),
    ],
)
def test_what_is_not_there_is_waited_for(entry: dict[str, Any]) -> None:
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
