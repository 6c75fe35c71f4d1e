"""The volumes of a pod: folders of this machine.

A process without root cannot mount them at the paths that the pod names. A path below /opt/ml or /tmp is a link in the
tree that stands for it; every mount is in MUSTER_LOCAL_MOUNTS, a JSON object of path and folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from muster.options.hyperpod.local.pods.container_values import MissingReferenceError

ENV_MOUNTS = "MUSTER_LOCAL_MOUNTS"
_NAMES = {"persistentVolumeClaim": "claimName", "configMap": "name", "secret": "secretName"}
"""Sources that refer to an object. The embedded cluster has none of these."""


def mounts(pod_spec: Mapping[str, Any], container: Mapping[str, Any], pod: Path, node: Path) -> dict[str, Path]:
    """The folder of each mount path of a container; the folders exist afterwards.

    Args:
        pod_spec: with the volumes.
        container: with the mounts.
        pod: the folder of this pod alone, which is gone with it.
        node: the folder that stands for the file system of its node.

    Raises:
        MissingReferenceError: a volume is not there, or its kind is not emulated.
    """
    volumes = {volume["name"]: volume for volume in pod_spec.get("volumes") or ()}
    found = {}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            message = f'volume "{mount["name"]}" of a volumeMount is not among the pod\'s volumes'
            raise MissingReferenceError(message)
        folder = _folder(volume, pod, node) / _plain(mount.get("subPath") or "")
        folder.mkdir(parents=True, exist_ok=True)
        found[str(mount["mountPath"])] = folder
    return found


def link(found: Mapping[str, Path], tree: Mapping[PurePosixPath, Path]) -> None:
    """Make a link for each mount path that lies below a path of `tree`, which maps paths to the folders for them."""
    for mount, folder in found.items():
        path = PurePosixPath(mount)
        for root, place in tree.items():
            if path.is_relative_to(root) and path != root and ".." not in path.parts:
                entry = place / path.relative_to(root)
                entry.parent.mkdir(parents=True, exist_ok=True)
                if not entry.exists():
                    entry.symlink_to(folder, target_is_directory=True)


def _folder(volume: Mapping[str, Any], pod: Path, node: Path) -> Path:
    if "hostPath" in volume:
        return node / _plain(volume["hostPath"]["path"])
    for kind, name in _NAMES.items():
        if kind in volume and not volume[kind].get("optional"):
            message = f'{kind.lower()} "{volume[kind].get(name, "")}" not found'
            raise MissingReferenceError(message)
    kinds = set(volume) - {"name", "emptyDir", *_NAMES}
    if kinds:
        message = f'volume "{volume["name"]}": the embedded cluster has no volumes of the kind {min(kinds)}'
        raise MissingReferenceError(message)
    return pod / "volumes" / str(volume["name"])


def _plain(path: str) -> Path:
    """A path without its root, and without steps upwards."""
    return Path(*[part for part in PurePosixPath(path).parts if part not in {"/", ".."}])
