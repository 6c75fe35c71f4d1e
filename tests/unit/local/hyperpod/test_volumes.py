"""The volumes of a pod."""

import base64
from pathlib import Path

import pytest

from muster.local.hyperpod.pods.container_values import MissingReferenceError
from muster.local.hyperpod.pods.volumes import Places, mounts

SECRET = {"data": {"key": base64.b64encode(b"a secret").decode()}}


def test_a_secret_and_a_config_map_are_files(tmp_path: Path) -> None:
    spec = {
        "volumes": [
            {"name": "s", "secret": {"secretName": "keys"}},
            {"name": "c", "configMap": {"name": "settings"}},
            {"name": "n", "secret": {"secretName": "none", "optional": True}},
        ]
    }
    container = {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in "scn"]}
    known = {("Secret", "keys"): SECRET, ("ConfigMap", "settings"): {"data": {"key": "plain"}}}
    places = Places(*(tmp_path / name for name in ("pod", "node", "claims")))
    found = mounts(spec, container, places, lambda kind, name: known.get((kind, name)))
    assert [(found[path] / "key").read_text() for path in ("/s", "/c")] == ["a secret", "plain"]
    assert list(found["/n"].iterdir()) == []
    with pytest.raises(MissingReferenceError, match='secret "keys" not found'):
        mounts(spec, container, places, lambda *_: None)
