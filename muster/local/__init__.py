"""The embedded cloud: AWS on one machine, with training jobs that are processes."""

from muster.local.cloud_settings import Settings
from muster.local.local_cloud import LocalCloud

__all__ = ["LocalCloud", "Settings"]
