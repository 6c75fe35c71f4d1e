"""Watches: the changes of objects, for the controllers in this process."""

from __future__ import annotations

from dataclasses import dataclass

from muster.options.hyperpod.local.kubernetes.objects.resource import Resource
from muster.options.hyperpod.local.kubernetes.objects.status_errors import Document

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(frozen=True)
class WatchEvent:
    """A change of an object. The document is shared: copy it before you change it."""

    type: str
    object: Document
    resource: Resource
