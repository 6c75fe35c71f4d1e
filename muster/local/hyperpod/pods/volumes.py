"""The volumes of a pod: folders of this machine.

A process without root cannot mount them at the paths that the pod names. A path below /opt/ml or /tmp is a link in the
tree that stands for it; every mount is in MUSTER_LOCAL_MOUNTS, a JSON object of path and folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from muster.local.hyperpod.pods.container_values import Lookup, MissingReferenceError, values_in

ENV_MOUNTS = "MUSTER_LOCAL_MOUNTS"
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Places:
    """Where the folders lie."""

    pod: Path
    """Of this pod alone: gone with it."""
    node: Path
    """Of its node: stands for the node's own file system."""
    claims: Path
    """Of the namespace: the PersistentVolumeClaims."""


def mounts(
    pod_spec: Mapping[str, Any], container: Mapping[str, Any], places: Places, lookup: Lookup
) -> dict[str, Path]:
    """The folder of each mount path of a container; the folders exist afterwards.

    Raises:
        MissingReferenceError: a volume, a claim or a ConfigMap is not there, or its kind is not emulated.
    """
    volumes = {volume["name"]: volume for volume in pod_spec.get("volumes") or ()}
    found = {}
    for mount in container.get("volumeMounts") or ():
        volume = volumes.get(mount["name"])
        if volume is None:
            message = f'volume "{mount["name"]}" of a volumeMount is not among the pod\'s volumes'
            raise MissingReferenceError(message)
        folder = _folder(volume, places, lookup)
        if mount.get("subPath"):
            folder = folder / _plain(mount["subPath"])
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


def _folder(volume: Mapping[str, Any], places: Places, lookup: Lookup) -> Path:
    name = volume["name"]
    if "hostPath" in volume:
        folder = places.node / _plain(volume["hostPath"]["path"])
    elif "persistentVolumeClaim" in volume:
        claim = volume["persistentVolumeClaim"]["claimName"]
        if lookup("PersistentVolumeClaim", claim) is None:
            message = f'persistentvolumeclaim "{claim}" not found'
            raise MissingReferenceError(message)
        folder = places.claims / _UNSAFE.sub("_", claim)
    elif "configMap" in volume:
        source = volume["configMap"]
        return _copied("ConfigMap", source["name"], source, places.pod / "volumes" / name, lookup)
    elif "secret" in volume:
        source = volume["secret"]
        return _copied("Secret", source["secretName"], source, places.pod / "volumes" / name, lookup)
    elif "emptyDir" in volume or set(volume) == {"name"}:
        folder = places.pod / "volumes" / name
    else:
        kind = next(iter(set(volume) - {"name"}))
        message = f'volume "{name}": the embedded cluster has no volumes of the kind {kind}'
        raise MissingReferenceError(message)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _copied(kind: str, name: str, source: Mapping[str, Any], folder: Path, lookup: Lookup) -> Path:
    document = lookup(kind, name)
    if document is None and not source.get("optional"):
        message = f'{kind.lower()} "{name}" not found'
        raise MissingReferenceError(message)
    folder.mkdir(parents=True, exist_ok=True)
    for key, text in values_in(kind, document or {}).items():
        (folder / _plain(key)).write_text(text)
    return folder


def _plain(path: str) -> Path:
    """A path without its root, and without steps upwards."""
    return Path(*[part for part in PurePosixPath(path).parts if part not in {"/", ".."}])
