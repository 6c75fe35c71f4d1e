"""One pod: from its binding to a node to its end, in a thread of its own."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from muster.local.processes.process_pool import Child
from muster.local.sagemaker.local_image import image_variables, is_local
from muster.local.sagemaker.log_shipping import LogShipper, MetricScraper
from muster.options.hyperpod.local.agent.arguments import ENV_POD_ADDRESS
from muster.options.hyperpod.local.kubernetes.object_store import ObjectStore, timestamp
from muster.options.hyperpod.local.kubernetes.served_resources import PODS
from muster.options.hyperpod.local.pods import pod_status, volumes
from muster.options.hyperpod.local.pods.container_values import MissingReferenceError, command_of, variables
from muster.options.hyperpod.local.pods.pod_machine import PodMachine
from muster.options.hyperpod.local.quantities import quantity

_log = logging.getLogger(__name__)
_TICK_SECONDS = 0.1
_MEMORY_SECONDS = 1.0
_WAIT_SECONDS = 1.0  # between two looks for what a container waits for; a kubelet syncs a pod once a minute
ENV_TERMINATION_LOG = "MUSTER_LOCAL_TERMINATION_LOG"
"""The file that stands for terminationMessagePath."""
_KILLED = 137
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_TAIL_LINES, _TAIL_BYTES = 80, 2048  # kubelet: of the log, with FallbackToLogsOnError


class PodProcess:
    """The kubelet's work for one pod. It acts on the pod with this uid alone."""

    def __init__(self, store: ObjectStore, machine: PodMachine, pod: Mapping[str, Any], bin_folder: Path) -> None:
        self._store = store
        self._machine = machine
        self._pod = pod
        self._name: str = pod["metadata"]["name"]
        self._namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        self.node: str = pod["spec"]["nodeName"]
        self._container: Mapping[str, Any] = pod["spec"]["containers"][0]
        self._bin = bin_folder
        self.place: Path = machine.place / "pods" / self.uid
        self._output = self.place / "output"
        self._address = machine.new_address()
        self._ended = threading.Event()
        self._stop = threading.Event()
        self._deadline: float | None = None
        """When SIGKILL comes, on the monotonic clock."""
        self._lost = False
        self._forgotten = False
        self._out_of_memory = False

    def terminate(self, grace_seconds: float) -> None:
        """End it: SIGTERM, and SIGKILL after the grace. A second call can only make the grace shorter."""
        deadline = time.monotonic() + grace_seconds
        self._deadline = deadline if self._deadline is None else min(deadline, self._deadline)
        self._stop.set()

    def lose(self) -> None:
        """Its node is gone: no signal before SIGKILL, and nothing is said of it any more."""
        self._lost = True
        self.terminate(0)

    def run(self) -> None:
        """Start the container and follow it to its end."""
        try:
            self._live()
        except Exception:
            _log.exception("The pod %s/%s failed inside the kubelet", self._namespace, self._name)
            self._write(pod_status.ended(self._pod, 128, "ContainerCannotRun", "the kubelet failed"))
        finally:
            self._ended.set()
            if self._stop.is_set() and not self._lost:
                # The object was waiting for the end of the container.
                self._store.discard(PODS, self._pod["metadata"], grace_seconds=0)
            if self._forgotten:
                shutil.rmtree(self.place, ignore_errors=True)

    def forget(self) -> None:
        """Its object is gone: remove its files as soon as it has ended."""
        self._forgotten = True
        if self._ended.is_set():
            shutil.rmtree(self.place, ignore_errors=True)

    # --- from the start to the end -------------------------------------------------------------

    def _live(self) -> None:
        self.place.mkdir(parents=True)
        ship = self._machine.open_log(self.node)
        self._write(pod_status.waiting(self._pod, "ContainerCreating"))
        if not self._image_is_there():
            return
        child = self._start()
        if child is None:
            return
        started = timestamp()
        self._write(pod_status.running(self._pod, self._address, started))
        shipper = LogShipper(self._output, ship, MetricScraper([], {}))
        self._follow(child, shipper)
        shipper.pump(final=True)
        if not self._lost:
            self._write(self._end_of(child, started))

    def _image_is_there(self) -> bool:
        """Whether the image can be had; otherwise the pod waits until it is deleted."""
        image = str(self._container.get("image", ""))
        if is_local(image):
            return True
        message = f'failed to pull image "{image}": not found; the embedded cluster has muster-local/python'
        self._write(pod_status.waiting(self._pod, "ErrImagePull", message))
        if not self._stop.wait(_WAIT_SECONDS):
            self._write(pod_status.waiting(self._pod, "ImagePullBackOff", f'Back-off pulling image "{image}"'))
            self._stop.wait()
        return False

    def _start(self) -> Child | None:
        """Start the container as soon as what it refers to is there; None where the pod is deleted before."""
        said = ""
        while not self._stop.is_set():
            try:
                return self._spawn()
            except MissingReferenceError as error:
                if str(error) != said:
                    said = str(error)
                    self._write(pod_status.waiting(self._pod, "CreateContainerConfigError", said))
                self._stop.wait(_WAIT_SECONDS)
        return None

    def _spawn(self) -> Child:
        spec, container = self._pod["spec"], self._container
        if len(spec["containers"]) > 1 or spec.get("initContainers"):
            message = "the embedded cluster runs pods of one container, without init containers"
            raise MissingReferenceError(message)
        base, home, temporary = (self.place / name for name in ("ml", "home", "tmp"))
        for folder in (base, home, temporary):
            folder.mkdir(exist_ok=True)
        mounts = volumes.mounts(spec, container, self.place, self._machine.place / "nodes" / self.node)
        volumes.link(mounts, {PurePosixPath("/opt/ml"): base, PurePosixPath("/tmp"): temporary})  # noqa: S108
        own = variables(self._pod, container, self._address)
        command = command_of(container, own)
        if not command:
            message = "the image muster-local/python has no entrypoint: give the container a command"
            raise MissingReferenceError(message)
        # As for training jobs (local_image.py), with `hyperpodrun` on the PATH.
        image = image_variables(home, temporary, self._machine.code)
        environment = {
            **image,
            "PATH": os.pathsep.join([str(self._bin), image["PATH"]]),
            "PYTHONDONTWRITEBYTECODE": "1",
            **own,
            "SAGEMAKER_BASE_DIR": str(base),
            "HOSTNAME": self._name,
            ENV_POD_ADDRESS: self._address,
            ENV_TERMINATION_LOG: str(self.place / "termination-log"),
            volumes.ENV_MOUNTS: json.dumps({path: str(folder) for path, folder in mounts.items()}),
            **self._machine.endpoint,
            **self._machine.credentials(self._pod, self.place / "credentials-token"),
        }
        code = self._machine.code
        return self._machine.processes.spawn(command, env=environment, cwd=code[0] if code else base, log=self._output)

    def _follow(self, child: Child, shipper: LogShipper) -> None:
        """Wait for the end of the container; logs are shipped meanwhile."""
        limit = ((self._container.get("resources") or {}).get("limits") or {}).get("memory")
        limit_bytes = None if limit is None else int(quantity(limit))
        next_look, asked = time.monotonic() + _MEMORY_SECONDS, False
        while not child.wait(_TICK_SECONDS):
            shipper.pump()
            now = time.monotonic()
            if self._stop.is_set() and not asked and not self._lost:
                child.signal(signal.SIGTERM)
                asked = True
            if self._deadline is not None and now >= self._deadline:
                child.signal(signal.SIGKILL)
            if limit_bytes is not None and now >= next_look and child.pid is not None:
                next_look = now + _MEMORY_SECONDS
                if _used_bytes(child.pid) > limit_bytes:
                    self._out_of_memory = True
                    child.signal(signal.SIGKILL)

    def _end_of(self, child: Child, started: str) -> dict[str, Any]:
        code = _KILLED if self._out_of_memory else child.exit_code
        reason = "OOMKilled" if self._out_of_memory else "Completed" if code == 0 else "Error"
        if child.missing is not None:
            words = f'exec: "{(self._container.get("command") or [""])[0]}": {child.missing}'
            return pod_status.ended(self._pod, 128, "StartError", words)
        message = self._termination_message()
        if not message and code and self._container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
            message = "\n".join(self._output.read_text(errors="replace").splitlines()[-_TAIL_LINES:])[-_TAIL_BYTES:]
        return pod_status.ended(self._pod, code, reason, message, started)

    def _termination_message(self) -> str:
        try:
            return Path(self.place, "termination-log").read_text(errors="replace")
        except FileNotFoundError:
            return ""

    # --- the object ----------------------------------------------------------------------------

    def _write(self, status: dict[str, Any]) -> None:
        """Write the status, unless the pod is gone."""

        def change(document: dict[str, Any]) -> None:
            first = document["status"].get("startTime") or timestamp()
            document["status"] = {**document["status"], **status, "startTime": first}

        self._pod = self._store.change(PODS, self._pod["metadata"], change) or self._pod


def _used_bytes(pid: int) -> int:
    """Resident memory of a process and of what it has started, on Linux; elsewhere limits are not enforced."""
    total, waiting = 0, [pid]
    while waiting:
        current = waiting.pop()
        try:
            total += int(Path(f"/proc/{current}/statm").read_text().split()[1]) * _PAGE_BYTES
            for task in Path(f"/proc/{current}/task").iterdir():
                waiting += [int(child) for child in (task / "children").read_text().split()]
        except (OSError, IndexError):  # it has ended meanwhile
            continue
    return total
