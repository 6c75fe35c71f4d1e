"""What the agent starts in a pod (`python -m` with this module), once for every start by the operator.

It restores the checkpoints, runs the pod's program, keeps its checkpoints in S3 meanwhile, and stores what it leaves.
Only then does it end: the agent reports a program as completed when everything that it has left is in S3. It ends with
the program's exit code.

The operator ends a start with SIGTERM, or with SIGUSR1 before it changes the number of pods. Both reach the program as
SIGTERM: it saves its state, and continues from it in the next start, with as many processes as there are then.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from muster.contract.errors import MusterError
from muster.contract.exits import FAILURE_CHARACTERS, failure_text
from muster.options.hyperpod.contract.pod_work import ENV_POD_WORK
from muster.options.hyperpod.replica.agent import program_variables
from muster.options.hyperpod.replica.ending import Reporter, end_of, reporter_of, write_failure
from muster.options.hyperpod.replica.folder import ENV_POD_START, PodFolder
from muster.options.hyperpod.replica.hosts import Hosts, read_hosts, write_resource_config
from muster.options.hyperpod.replica.kept_checkpoints import KeptCheckpoints
from muster.options.hyperpod.replica.objects import Objects
from muster.options.hyperpod.replica.pod import Pod, base_of, read_pod
from muster.replica.group.spawning import end_with_parent
from muster.replica.replica_errors import InputError, StoppedError

# Of archives: weights hardly become smaller, and the program's end waits for this.
_ARCHIVE_LEVEL = 1
_ENV_ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
_ENV_JOB = "TRAINING_JOB_NAME"  # as SageMaker names it

log = logging.getLogger("muster.replica")


def main(variables: Mapping[str, str]) -> int:
    """Run the pod's program once; returns its exit code."""
    logging.basicConfig(level=logging.INFO, format="muster %(levelname)s %(message)s", stream=sys.stderr)
    logging.getLogger("botocore").setLevel(logging.WARNING)  # it logs where it finds credentials
    worker = _Worker(variables)
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, worker.stop)
    code, reason = worker.run()
    worker.report(code, reason)
    return code


class _Worker:
    """One start of the program."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables = variables
        self._base = base_of(variables)
        self._folder = PodFolder.of(self._base)
        self._mark = self._folder.begin()
        self._asked = threading.Event()
        self._objects = Objects(self._asked)
        self._program: subprocess.Popen[bytes] | None = None

    def stop(self, *_: object) -> None:
        """The operator ends this start: SIGTERM for the program; nothing is downloaded any more."""
        self._asked.set()
        if self._program is not None and self._program.poll() is None:
            self._program.send_signal(signal.SIGTERM)

    def run(self) -> tuple[int, str]:
        """Run the program; returns its exit code, and the reason if it has failed."""
        failure = self._base / "output" / "failure"
        failure.unlink(missing_ok=True)
        try:
            pod = read_pod(self._variables)
            left = self._folder.end_processes(but=self._mark)
            if left:
                log.warning("event=left-over-processes killed=%d", left)
            hosts = read_hosts(self._variables, self._base, pod.address)
            write_resource_config(hosts, self._base)
            code = self._train(pod, hosts)
        except (MusterError, OSError) as error:
            return self._failed(error, failure)
        return code, _read_failure(failure) if code else ""

    def _train(self, pod: Pod, hosts: Hosts) -> int:
        place = self._base / "checkpoints"
        checkpoints = KeptCheckpoints(self._objects, place, pod.work.checkpoints_uri, self._folder.place)
        restored = checkpoints.restore()
        log.info("event=pod-ready pods=%d number=%d restored=%d", len(hosts.hosts), hosts.index, restored)
        if self._asked.is_set():
            raise StoppedError
        program = self._start(pod, hosts)
        if hosts.is_first and (reporter := reporter_of(self._variables, self._objects)) is not None:
            # Nothing waits for it.
            threading.Thread(target=Reporter.started, args=(reporter, self._mark), daemon=True).start()
        over = threading.Event()
        keeping = threading.Thread(target=checkpoints.keep_until, args=(over,), name="checkpoints", daemon=True)
        keeping.start()
        code = program.wait()
        over.set()
        keeping.join()
        checkpoints.keep()
        if hosts.is_first:
            stored = upload_archives(self._objects, self._base, pod.work.output_uri, pod.work.job)
            log.info("event=stored archives=%s", ",".join(stored) or "none")
        return code if code >= 0 else 128 - code  # as a shell has it

    def _start(self, pod: Pod, hosts: Hosts) -> subprocess.Popen[bytes]:
        variables = {
            **program_variables(self._variables),
            ENV_POD_START: self._mark,
            _ENV_JOB: pod.work.job,
            "SM_CURRENT_HOST": hosts.hosts[hosts.index],
            "SM_HOSTS": json.dumps(list(hosts.hosts)),
        }
        variables.pop(ENV_POD_WORK, None)
        command = list(pod.work.program)
        try:
            program = subprocess.Popen(
                command,
                env=variables,
                start_new_session=True,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - no other thread runs yet; a second one would train beside it
            )
        except OSError as error:
            message = f"the program {command[0]!r} cannot be started: {error.strerror}"
            raise InputError([message]) from None
        self._program = program
        if self._asked.is_set():
            self.stop()  # it was asked before there was a program
        return program

    def _failed(self, error: MusterError | OSError, failure: Path) -> tuple[int, str]:
        log.error("%s", error)
        end = end_of(error)
        # Why the program failed says more than what could not be stored after it.
        reason = _read_failure(failure) or end.reason
        write_failure(self._base, reason)
        return end.code, reason

    def report(self, code: int, reason: str) -> None:
        """Write how this start has ended, for the pod's first process and for the agent."""
        place = self._variables.get(_ENV_ERROR_FILE)
        if code and reason and place:
            # The agent shows it to the operator as the fault's message.
            # torch takes no message of this form without its time: the agent would end.
            message = {"message": reason, "extraInfo": {"timestamp": str(int(time.time()))}}
            try:
                Path(place).write_text(json.dumps({"message": message}))
            except OSError as error:
                log.warning("event=error-file-not-written reason=%r", str(error))
        self._folder.finish(code, reason)


def _read_failure(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return failure_text(file.read(4 * FAILURE_CHARACTERS).decode("utf-8", errors="replace"))
    except OSError:
        return ""


def upload_archives(objects: Objects, base: Path, output_uri: str, job: str) -> list[str]:
    """Store the archives of a job's program; returns their URIs. An empty folder has none.

    Raises:
        StoreDeniedError, StoreUnavailableError
    """
    place = f"{output_uri.rstrip('/')}/{job}/output"
    folders = {"model": base / "model", "output": base / "output" / "data"}
    stored = []
    for name, folder in folders.items():
        if folder.is_dir() and any(folder.iterdir()):
            uri = f"{place}/{name}.tar.gz"
            _upload(objects, folder, uri)
            stored.append(uri)
    return stored


def _upload(objects: Objects, folder: Path, uri: str) -> None:
    with tempfile.TemporaryFile(dir=folder.parent) as archive:
        with tarfile.open(fileobj=archive, mode="w:gz", compresslevel=_ARCHIVE_LEVEL) as tar:
            for path in sorted(folder.iterdir()):
                tar.add(path, arcname=path.name)
        archive.flush()
        objects.upload(archive, archive.seek(0, os.SEEK_CUR), uri, lambda: True)


if __name__ == "__main__":
    sys.exit(main(os.environ))
