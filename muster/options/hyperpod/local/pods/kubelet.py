"""The kubelets of all nodes: a process for each pod that is bound to a node."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any

from muster.options.hyperpod.local.kubernetes.object_store import DEFAULT_GRACE_SECONDS, ObjectStore
from muster.options.hyperpod.local.operator.pod_view import PodView
from muster.options.hyperpod.local.pods.pod_machine import PodMachine
from muster.options.hyperpod.local.pods.pod_process import PodProcess

_AGENT = "muster.options.hyperpod.local.agent"


class Kubelet:
    """Follows pods. Thread-safe."""

    def __init__(self, store: ObjectStore, machine: PodMachine) -> None:
        self._store = store
        self._machine = machine
        self._pods: dict[str, PodProcess] = {}
        self._lock = threading.Lock()
        self._bin = machine.place / "image" / "bin"
        self._bin.mkdir(parents=True, exist_ok=True)
        program = self._bin / "hyperpodrun"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {_AGENT} "$@"\n')
        program.chmod(0o755)

    def seen(self, pod: Mapping[str, Any], *, is_gone: bool) -> None:
        """A pod was added, changed or deleted."""
        metadata, view = pod["metadata"], PodView(pod)
        is_new = bool(view.node) and view.phase == "Pending" and not view.deleting and not is_gone
        with self._lock:
            known = self._pods.get(metadata["uid"])
            if known is None and is_new:
                process = PodProcess(self._store, self._machine, pod, self._bin)
                self._pods[metadata["uid"]] = process
                threading.Thread(target=process.run, name=f"pod-{metadata['name']}", daemon=True).start()
                return
            if known is not None and is_gone:
                del self._pods[metadata["uid"]]
        if known is None:
            return
        if is_gone:
            # Deleted by force: a real node learns of that, and kills what still runs.
            known.terminate(0)
            known.forget()
        elif metadata.get("deletionTimestamp"):
            known.terminate(float(metadata.get("deletionGracePeriodSeconds", DEFAULT_GRACE_SECONDS)))

    def lose(self, node: str) -> None:
        """A node is gone: its processes end without a signal and without a word."""
        with self._lock:
            lost = [process for process in self._pods.values() if process.node == node]
        for process in lost:
            process.lose()
