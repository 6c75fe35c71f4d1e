"""The embedded cloud: AWS on one machine, with training jobs that are processes.

The names load on first use: what runs in a container of the embedded cloud needs nothing of the cloud itself.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.local.cloud_settings import Settings
    from muster.local.local_cloud import LocalCloud

__all__ = ["LocalCloud", "Settings"]
_HOMES = {"LocalCloud": "muster.local.local_cloud", "Settings": "muster.local.cloud_settings"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    found: object = getattr(import_module(_HOMES[name]), name)
    return found
