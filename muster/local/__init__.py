"""The embedded cloud: AWS on one machine, with training jobs that are processes.

The names load on first use: what runs in a container of the embedded cloud needs nothing of the cloud itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.local.cloud_settings import Settings
    from muster.local.local_cloud import LocalCloud

__all__ = ["LocalCloud", "Settings"]


def __getattr__(name: str) -> object:
    if name == "LocalCloud":
        from muster.local.local_cloud import LocalCloud  # noqa: PLC0415 - on first use

        return LocalCloud
    if name == "Settings":
        from muster.local.cloud_settings import Settings  # noqa: PLC0415 - on first use

        return Settings
    message = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(message)
