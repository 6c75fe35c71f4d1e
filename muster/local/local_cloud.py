"""The embedded cloud for programs: start it, find it, call it, stop it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from muster.local.admin_client import AdminClient, Calls, Clock, Faults, Rates
from muster.local.cloud_errors import AlreadyRunningError, DeadCloudError, NotRunningError, PortInUseError, StartError
from muster.local.cloud_settings import Settings
from muster.local.cloud_state import DEFAULT_STATE, OBSERVER_HEADER, PORT_IN_USE, READY, CloudState, StateDirectory
from muster.local.process_environment import bare_environment, client_environment

if TYPE_CHECKING:
    import boto3
    from botocore.awsrequest import AWSPreparedRequest

_DAEMON = "muster.local.service.daemon"
_STOP_SECONDS = 15.0
_POLL_SECONDS = 0.02


class LocalCloud:
    """A running embedded cloud.

    `start` starts one, `attach` finds the one of a state directory. A context manager stops it at the end:

        with LocalCloud.start(tmp_path, Settings(port=0, end_with_parent=True)) as cloud:
            cloud.client("s3").create_bucket(Bucket="data")
    """

    def __init__(
        self, directory: StateDirectory, state: CloudState, parent_pipe: subprocess.Popen[bytes] | None
    ) -> None:
        """Call `start` or `attach` instead."""
        self.directory = directory
        self.state = state
        self._process = parent_pipe
        self.admin = AdminClient(state, directory)
        self.faults = Faults(self.admin)
        """Faults on demand."""
        self.clock = Clock(self.admin)
        """The clock by which lifecycle rules act."""
        self.rates = Rates(self.admin)
        """How often each call may be made."""
        self.calls = Calls(self.admin)
        """Calls, counted by service, operation and caller."""

    @classmethod
    def start(cls, path: Path = DEFAULT_STATE, settings: Settings | None = None) -> LocalCloud:
        """Start a service with its state in `path`; it listens when this returns.

        Raises:
            AlreadyRunningError: one runs there already.
            PortInUseError: another process uses the port.
            StartError: it did not start for another reason; the log says why.
        """
        settings = settings or Settings()
        directory = StateDirectory.at(path)
        _refuse_second(directory)
        directory.prepare()
        command = [sys.executable, "-P", "-m", _DAEMON, str(directory.root), settings.model_dump_json()]
        with directory.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                env=bare_environment(directory.scratch / "home", directory.scratch / "tmp"),
                cwd=directory.scratch,
                stdin=subprocess.PIPE if settings.end_with_parent else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                # A group of its own: a Ctrl-C in the terminal must not reach it, and the group ends with all that the
                # service starts.
                start_new_session=True,
            )
        assert process.stdout is not None  # noqa: S101 - opened as a pipe above
        with process.stdout as pipe:
            answer = pipe.readline().decode().strip()
        if answer == READY:
            return cls(directory, directory.read(), process)
        process.wait()
        directory.clear()
        if not answer:
            raise StartError(_last_line(directory.log), directory.log)
        detail = json.loads(answer)["error"]
        raise PortInUseError(settings.port) if detail == PORT_IN_USE else StartError(detail, directory.log)

    @classmethod
    def attach(cls, path: Path = DEFAULT_STATE) -> LocalCloud:
        """The service whose state lies in `path`.

        Raises:
            NotRunningError: none was started there.
            DeadCloudError: it does not answer.
        """
        directory = StateDirectory.at(path)
        cloud = cls(directory, directory.read(), None)
        cloud.running_jobs()
        return cloud

    def __enter__(self) -> LocalCloud:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def at(self, place: str) -> LocalCloud:
        """The same cloud as one of its places sees it: clients and environments are that place's administrator's.

        Raises:
            UnknownPlaceError: it has no such place.
        """
        return LocalCloud(self.directory, self.state.at(place), None)

    @property
    def endpoint(self) -> str:
        """`https://127.0.0.1:PORT`, for every service."""
        return self.state.endpoint

    def running_jobs(self) -> list[str]:
        """Names of the training jobs that have not ended."""
        return self.admin.status()["running_jobs"]

    def cluster_jobs(self) -> list[str]:
        """The jobs of the HyperPod cluster that have not ended, as `namespace/name`."""
        return self.admin.status()["cluster_jobs"]

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a process that calls this cloud as root, from `base` (this process's environment)."""
        return client_environment(self.state, os.environ if base is None else base)

    def session(self) -> boto3.Session:
        """A boto3 session as root. Its clients need `**cloud.client_options()`; `client` does both."""
        # Commands that make no call start faster without boto3.
        import boto3  # noqa: PLC0415

        return boto3.Session(
            aws_access_key_id=self.state.access_key_id,
            aws_secret_access_key=self.state.secret_access_key,
            region_name=self.state.region,
        )

    def client_options(self) -> dict[str, str]:
        """The endpoint of this cloud and its trust store, as options of a boto3 client."""
        return {"endpoint_url": self.endpoint, "verify": str(self.state.ca_file)}

    def client(self, service: str, **options: Any) -> Any:
        """A boto3 client as root; `options` go to boto3. Its calls do not count towards the account's rates."""
        client = self.session().client(service, **{**self.client_options(), **options})  # type: ignore[call-overload]
        client.meta.events.register("before-send", self._observe)
        return client

    def _observe(self, request: AWSPreparedRequest, **_: object) -> None:
        request.headers[OBSERVER_HEADER] = self.state.admin_token

    def stop(self) -> None:
        """Stop the service and everything that it started; nothing of it is left when this returns."""
        stop(self.directory, self.state)
        if self._process is not None:
            if self._process.stdin is not None:
                self._process.stdin.close()
            self._process.wait()

    def wait(self) -> None:
        """Wait for the end of the service. Only for a cloud from `start`."""
        assert self._process is not None  # noqa: S101 - a caller's mistake
        self._process.wait()


def stop(directory: StateDirectory, state: CloudState) -> None:
    """End the service of `state`, if it is alive, and clear its directory."""
    if _is_service(state, directory):
        os.kill(state.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while _alive(state.pid):
            if time.monotonic() >= deadline:
                os.kill(state.pid, signal.SIGKILL)
                deadline += _STOP_SECONDS
            time.sleep(_POLL_SECONDS)
    directory.clear()


def _refuse_second(directory: StateDirectory) -> None:
    """Allow one service per state directory; the state of a dead one does not count."""
    try:
        state = directory.read()
    except NotRunningError:
        return
    if _is_service(state, directory):
        raise AlreadyRunningError(directory.root, state.endpoint, state.pid)


def _is_service(state: CloudState, directory: StateDirectory) -> bool:
    """Whether the process is alive and is the service: its process id may belong to another process by now."""
    if not _alive(state.pid):
        return False
    try:
        AdminClient(state, directory).status()
    except DeadCloudError:
        return False
    return True


def _alive(pid: int) -> bool:
    """Whether a process runs. A child of this process that has ended is reaped."""
    try:
        if os.waitpid(pid, os.WNOHANG)[0] == pid:
            return False
    except ChildProcessError:
        pass
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1] if lines else "it ended without a message"
