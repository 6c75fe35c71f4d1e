"""What is mounted in every pod: shared memory, and the folders below /opt/ml that are written."""

from __future__ import annotations

from muster.contract.training.source_delivery import DEFAULT_BASE_DIR

MEMORY_VOLUME, TREE_VOLUME = "dshm", "opt-ml"
MEMORY_PATH = "/dev/shm"  # noqa: S108 # the container's own, which PyTorch fills
# Folder by folder, as SageMaker does: an image may have its code in /opt/ml/code.
_FOLDERS = ("input", "model", "output", "checkpoints")
_LOCAL_STATES = "local-states"

OWN_PATHS = (MEMORY_PATH, *(f"{DEFAULT_BASE_DIR}/{folder}" for folder in _FOLDERS))
"""Paths that no volume of a spec may hide."""
TREE_PATHS = {f"{DEFAULT_BASE_DIR}/{folder}": folder for folder in (*_FOLDERS, _LOCAL_STATES)}
"""The paths of the tree with their folders in its volume. A volume of a spec may keep the local states instead."""
