"""The volumes of a pod."""

from pathlib import Path

import pytest

from muster.options.hyperpod.local.pods.container_values import MissingReferenceError
from muster.options.hyperpod.local.pods.volumes import mounts


def test_a_volume_is_a_folder_of_the_pod_or_of_its_node_and_what_is_not_there_is_waited_for(tmp_path: Path) -> None:
    spec = {
        "volumes": [
            {"name": "e", "emptyDir": {}},
            {"name": "h", "hostPath": {"path": "/mnt/../disk"}},
            {"name": "o", "secret": {"secretName": "none", "optional": True}},
            {"name": "s", "secret": {"secretName": "keys"}},
            {"name": "c", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "x", "ephemeral": {}},
        ]
    }

    def mounted(*names: str) -> dict[str, Path]:
        container = {"volumeMounts": [{"name": name, "mountPath": f"/{name}"} for name in names]}
        return mounts(spec, container, tmp_path / "pod", tmp_path / "node")

    found = mounted("e", "h", "o")
    assert found["/h"] == tmp_path / "node" / "mnt" / "disk"
    assert all(folder.is_dir() and not any(folder.iterdir()) for folder in found.values())
    for name, words in (
        ("s", 'secret "keys"'),
        ("c", 'persistentvolumeclaim "data"'),
        ("x", "ephemeral"),
        ("y", '"y"'),
    ):
        with pytest.raises(MissingReferenceError, match=words):
            mounted(name)
