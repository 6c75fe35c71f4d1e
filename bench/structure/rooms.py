"""Which part of Muster a file belongs to: the core, or one of the options that the core does not need."""

from __future__ import annotations

import re

OPTIONS = {
    "HyperPod": r"hyperpod|kubernetes|(^|/)eks/|/pod/|cluster|kueue",
    "recipes": r"/recipe|recipes?_|hub_|/hubs",
    "verify": r"/verify",
    "TorchX": r"/torchx/",
    "executor": r"/executor|/own_loop",
    "torchft": r"torchft",
    "frameworks": r"huggingface|lightning|hydra_plugin",
    "tiers": r"/options/tiers/",
    "watch": r"/options/watch/|watch_rules",
    "sinks": r"/options/sinks/",
    "sweeps of values": r"sweep_v",
}
"""Each option with a pattern that its files match, wherever they lie today."""
_PATTERNS = {name: re.compile(pattern) for name, pattern in OPTIONS.items()}
CORE = "core"
_LOCAL = "muster/local/"


def room_of(path: str) -> str:
    """The option of a file of the product, or `core`."""
    return next((name for name, pattern in _PATTERNS.items() if pattern.search(path)), CORE)


def is_embedded_cloud(path: str) -> bool:
    """Whether a file belongs to the embedded cloud, its HyperPod left out."""
    return path.startswith(_LOCAL) and room_of(path) != "HyperPod"
