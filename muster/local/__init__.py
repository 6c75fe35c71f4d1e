"""The embedded cloud: AWS on one machine, with training jobs that are processes."""

from muster.local.cloud import LocalCloud
from muster.local.settings import Settings

__all__ = ["LocalCloud", "Settings"]
