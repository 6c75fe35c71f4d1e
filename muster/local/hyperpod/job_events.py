"""Events of jobs, as the operator and Kueue record them."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any, Literal

from muster.local.kubernetes.kinds.resources import EVENTS
from muster.local.kubernetes.objects.status_errors import StatusError
from muster.local.kubernetes.objects.store import ObjectStore, timestamp

OPERATOR = "hyperpod-pytorch-job-controller"


class JobEvents:
    """Writes events about objects."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def say(
        self,
        about: Mapping[str, Any],
        reason: str,
        message: str,
        kind: Literal["Normal", "Warning"] = "Normal",
        by: str = OPERATOR,
    ) -> None:
        """Record an event of an object; one that is gone has none."""
        metadata, now = about["metadata"], timestamp(self._store.now())
        document = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}"},
            "involvedObject": {
                "apiVersion": about.get("apiVersion", "v1"),
                "kind": about.get("kind", ""),
                "name": metadata["name"],
                "namespace": metadata.get("namespace", "default"),
                "uid": metadata["uid"],
            },
            "reason": reason,
            "message": message,
            "type": kind,
            "source": {"component": by},
            "reportingComponent": by,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        try:
            self._store.create(EVENTS, document, metadata.get("namespace", "default"))
        except StatusError as error:
            if error.code not in {403, 404}:  # its namespace is ending
                raise
