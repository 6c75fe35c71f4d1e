"""The operator: one run for each job."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from muster.options.hyperpod.local.kubernetes.object_store import owner_of
from muster.options.hyperpod.local.operator.job_run import JobCluster, JobRun


class Operator:
    """Follows jobs, their pods and the nodes. Thread-safe."""

    def __init__(self, cluster: JobCluster) -> None:
        self._cluster = cluster
        self._runs: dict[str, JobRun] = {}
        self._lock = threading.Lock()
        self._paused_until = 0.0

    def job_seen(self, job: Mapping[str, Any], *, is_gone: bool) -> None:
        """A job was added, changed or deleted."""
        metadata = job["metadata"]
        with self._lock:
            run = self._runs.get(metadata["uid"])
            if run is None:
                if not is_gone:
                    new = JobRun(self._cluster, metadata["namespace"], metadata["name"], metadata["uid"], self._forget)
                    new.loop.pause(self._paused_until - time.monotonic())
                    new.loop.wake()
                    self._runs[metadata["uid"]] = new
                return
        run.loop.wake()

    def pod_seen(self, pod: Mapping[str, Any]) -> None:
        """A pod was added, changed or deleted."""
        with self._lock:
            run = self._runs.get(owner_of(pod) or "")
        if run is not None:
            run.loop.wake()

    def wake_all(self) -> None:
        """Nodes or quotas have changed."""
        for run in self._known():
            run.loop.wake()

    def pause(self, seconds: float) -> None:
        """The operator is down for so long: nothing is reconciled."""
        with self._lock:
            self._paused_until = time.monotonic() + seconds
        for run in self._known():
            run.loop.pause(seconds)

    def _known(self) -> list[JobRun]:
        with self._lock:
            return [*self._runs.values()]

    def _forget(self, uid: str) -> None:
        with self._lock:
            self._runs.pop(uid, None)
