"""The first process of a pod: what comes before the agent, passing signals on, and the notice of the end.

In this order: read the pod's work, make the tree of folders, download the channels, start the agent, wait for its end,
copy what checkpoints are left, and write the notice of the end as the very last thing. The agent starts and ends the
program (`worker.py`) when the operator asks for it, any number of times; the pod ends when the agent does.

Process 1 of a container inherits the processes that lose their parent: it reaps them. Kubernetes ends a pod with
SIGTERM to this process alone, and with SIGKILL `pod_bootstrap.STOP_SECONDS` later: every wait after it is bounded.
"""

from __future__ import annotations

import ctypes
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import IO

from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit, with_exit_word
from muster.options.hyperpod.contract.pod_log_lines import line_head
from muster.options.hyperpod.replica.agent import WORKER_STOP_SECONDS, agent_command, agent_variables, find_agent
from muster.options.hyperpod.replica.channels import download_channels
from muster.options.hyperpod.replica.ending import (
    End,
    Reporter,
    end_of,
    reporter_of,
    write_failure,
    write_termination_message,
)
from muster.options.hyperpod.replica.folder import PodFolder
from muster.options.hyperpod.replica.kept_checkpoints import KeptCheckpoints
from muster.options.hyperpod.replica.objects import Objects
from muster.options.hyperpod.replica.pod import ENV_POD_FOLDER, Pod, base_of, read_pod
from muster.replica.group.process_output import PrefixedLines
from muster.replica.replica_errors import InputError, StoppedError

# Together less than Kubernetes waits, with NOTICE_SECONDS.
AGENT_STOP_SECONDS = WORKER_STOP_SECONDS + 10.0
LAST_KEEP_SECONDS = 20.0
# After a program has ended the operator ends its agent. If that takes longer, the control plane is woken already.
EARLY_NOTICE_SECONDS = 20.0
_LOOK_SECONDS = 0.1
_DRAIN_SECONDS = 2.0
_READ_BYTES = 1 << 16
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>

log = logging.getLogger("muster.replica")


def main(variables: Mapping[str, str]) -> int:
    """Run the pod; returns its exit code."""
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    logging.basicConfig(level=logging.INFO, format=f"{_head(variables)}muster %(levelname)s %(message)s")
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs where it finds credentials
    objects = Objects(stop)
    reporter = reporter_of(variables, objects)
    try:
        end = _run(variables, stop, reporter, objects)
    except Exception as error:
        traceback.print_exc()
        text = f"The pod's first process failed: {type(error).__name__}: {error}"
        end = End(ReplicaExit.RENDEZVOUS, with_exit_word(ReplicaExit.RENDEZVOUS, text))
    if end.reason:
        log.error("%s", end.reason)
        write_termination_message(end.reason, variables)
    log.info("event=pod-ended code=%d", end.code)
    if reporter is not None:
        reporter.ended(end.code, end.reason)
    sys.stdout.flush()
    return end.code


def _head(variables: Mapping[str, str]) -> str:
    """What stands in front of each line of this process; nothing where the pod's work cannot be read."""
    try:
        pod = read_pod(variables)
    except InputError:
        return ""
    return line_head(pod.work.job, pod.number)


def _run(variables: Mapping[str, str], stop: threading.Event, reporter: Reporter | None, objects: Objects) -> End:
    base = base_of(variables)
    try:
        pod = read_pod(variables)
        agent = find_agent(variables)
        _make_tree(pod)
        folder = PodFolder.of(pod.base)
        got = download_channels(objects, pod.work.channels, pod.base)
        log.info("event=pod-started channels=%d bytes=%d", len(pod.work.channels), got)
        if stop.is_set():
            raise StoppedError
    except StoppedError:
        return _stopped("before its program was started")
    except (MusterError, OSError) as error:
        end = end_of(error)
        write_failure(base, end.reason)
        return end
    return _Pod(pod, folder, reporter, objects, stop).run(agent, variables)


def _stopped(when: str) -> End:
    return End(ReplicaExit.STOPPED, with_exit_word(ReplicaExit.STOPPED, f"The pod was asked to stop {when}."))


def _make_tree(pod: Pod) -> None:
    """The folders of a training job's container, and what SageMaker writes to input/config."""
    config = pod.base / "input" / "config"
    for folder in (config, pod.base / "checkpoints", pod.base / "model", pod.base / "output" / "data"):
        folder.mkdir(parents=True, exist_ok=True)
    (pod.base / "output" / "failure").unlink(missing_ok=True)
    shown = {"TrainingInputMode": "File", "S3DistributionType": "FullyReplicated", "RecordWrapperType": "None"}
    documents: dict[str, object] = {
        "hyperparameters.json": pod.work.hyper_parameters,
        "inputdataconfig.json": {channel.name: shown for channel in pod.work.channels},
    }
    for name, document in documents.items():
        (config / name).write_text(json.dumps(document))


@dataclass
class _Pod:
    """A pod whose input is there: its agent runs until the operator ends it."""

    pod: Pod
    folder: PodFolder
    reporter: Reporter | None
    objects: Objects
    stop: threading.Event
    noticed_at: float = 0.0
    ran_when_asked: bool = False

    def run(self, agent: str, variables: Mapping[str, str]) -> End:
        """Start the agent, and return how the pod ends."""
        _adopt_orphans()
        logs = self.folder.place / "logs"
        logs.mkdir(exist_ok=True)
        process = subprocess.Popen(
            agent_command(agent, self.pod, logs),
            env={**agent_variables(variables, self.pod), ENV_POD_FOLDER: str(self.folder.place)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        head = line_head(self.pod.work.job, self.pod.number)
        output = threading.Thread(target=_pass_on, args=(process.stdout, head), name="output", daemon=True)
        output.start()
        code = self._wait(process)
        self.folder.end_processes()
        output.join(_DRAIN_SECONDS)
        _reap()
        self._keep_checkpoints()
        return self._end(code)

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        """The agent's exit code, as a shell has it. SIGTERM is passed on once, and SIGKILL follows in time."""
        kill_at: float | None = None
        while True:
            # Here alone children are waited for: their ends would be lost in two places.
            for pid, status in _reap():
                if pid == process.pid:
                    code = os.waitstatus_to_exitcode(status)
                    process.returncode = code
                    return code if code >= 0 else 128 - code
            if self.stop.is_set() and kill_at is None:
                kill_at = time.monotonic() + AGENT_STOP_SECONDS
                self.ran_when_asked = self.folder.is_running or not self.folder.has_begun
                # Not by `process`: that would wait for it, too. Until it is waited for its number stays its own.
                os.kill(process.pid, signal.SIGTERM)
            elif kill_at is not None and time.monotonic() > kill_at:
                log.warning("event=agent-killed seconds=%d", AGENT_STOP_SECONDS)
                os.killpg(process.pid, signal.SIGKILL)
                kill_at = time.monotonic() + AGENT_STOP_SECONDS
            self._notice_early()
            self.stop.wait(_LOOK_SECONDS) if kill_at is None else time.sleep(_LOOK_SECONDS)

    def _notice_early(self) -> None:
        """Wake the control plane where the agent outlives its program for long."""
        end = self.folder.end
        if self.reporter is None or end is None or end.at == self.noticed_at:
            return
        if time.time() - end.at > EARLY_NOTICE_SECONDS:
            self.noticed_at = end.at
            suffix = f"-early-{int(end.at)}"
            # Beside this: a signal must be passed on at any time.
            report = partial(self.reporter.ended, end.code, end.reason, suffix)
            threading.Thread(target=report, name="early-notice", daemon=True).start()

    def _keep_checkpoints(self) -> None:
        """Copy what a killed worker has left. Most often there is nothing."""
        if not self.folder.has_begun:
            return
        place, uri = self.pod.base / "checkpoints", self.pod.work.checkpoints_uri
        checkpoints = KeptCheckpoints(self.objects, place, uri, self.folder.place)
        keeping = threading.Thread(target=checkpoints.try_to_keep, name="last-checkpoints", daemon=True)
        keeping.start()
        keeping.join(LAST_KEEP_SECONDS)

    def _end(self, agents_code: int) -> End:
        """What the program's end was; where it has not reported one, what is known of the agent's."""
        end = self.folder.end
        if end is not None:
            return End(end.code, end.reason)
        if self.ran_when_asked:
            return _stopped("and its program did not end in time" if self.folder.has_begun else "while it waited")
        if self.folder.has_begun:
            text = "The pod's program was killed, and left no reason: its memory may have been used up"
            return End(ReplicaExit.KILLED, text)
        if agents_code == 0:
            return _stopped("before its program was started: the operator has ended its agent")
        text = f"The elastic agent (hyperpodrun) ended with exit code {agents_code} before the pod's program began"
        return End(ReplicaExit.RENDEZVOUS, with_exit_word(ReplicaExit.RENDEZVOUS, text))


def _adopt_orphans() -> None:
    """Where this is not process 1 (the embedded cluster): become the parent of processes that lose theirs."""
    if os.getpid() != 1 and sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


def _reap() -> list[tuple[int, int]]:
    """The children that have ended since: numbers and statuses."""
    ended: list[tuple[int, int]] = []
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended.append((pid, status))


def _pass_on(stream: IO[bytes] | None, head: str) -> None:
    """Copy the agent's lines and its workers' to this process's output, with `head` in front."""
    if stream is None:
        return
    lines = PrefixedLines(head)
    target = sys.stdout.buffer
    while data := os.read(stream.fileno(), _READ_BYTES):
        target.write(lines.take(data))
        target.flush()
    target.write(lines.end())
    target.flush()


if __name__ == "__main__":
    sys.exit(main(os.environ))
