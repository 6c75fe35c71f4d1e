"""TorchX's interface to Muster; the entry point `muster` of the group `torchx.schedulers`.

Written against TorchX 0.7.0 and the nightly of 26 October 2026.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from torchx.schedulers.api import DescribeAppResponse, ListAppResponse, Scheduler, Stream
from torchx.specs import (
    AppDef,
    AppDryRunInfo,
    AppState,
    BindMount,
    DeviceMount,
    ReplicaStatus,
    RetryPolicy,
    Role,
    RoleStatus,
    VolumeMount,
    macros,
    runopts,
)
from torchx.specs.finder import ComponentValidationException
from torchx.workspace.api import WorkspaceMixin

from muster.client.checks.source_check import check_source
from muster.client.cli.output import print_error
from muster.client.client_errors import UnknownRunError, os_reason
from muster.client.launch.expanded_spec import with_files_beside
from muster.client.runs.continued_runs import generations, latest
from muster.client.runs.run_state import RunState
from muster.client.runs.run_status import ReplicaState, RunStatus
from muster.client.sdk import Muster
from muster.contract.errors import MusterError, SpecError
from muster.contract.spec.yaml_text import load_yaml
from muster.options.torchx.client.application_spec import (
    TAG_ROLE,
    Application,
    Fields,
    Mount,
    OptionsError,
    command_of,
    document_of,
    new_run_name,
)
from muster.options.torchx.client.command import RANK, started_in
from muster.options.torchx.client.options import FORMER, OWN
from muster.options.torchx.client.workspace import Workspaces

_INSTANCE_TYPE = (
    "node.kubernetes.io/instance-type"  # the capability that holds the instance type of TorchX's named resources
)
_RANK0 = "MUSTER_RANK0_HOST"  # never set: each replica is its own torchrun group, on localhost
_DEFAULT_ROLE = "app"
_SOURCE = "muster.source"  # in a role's metadata, which TorchX keeps for schedulers: the folder of its workspace
_PROGRAM = "torchx"
_OF_RUN = {
    RunState.SUCCEEDED: AppState.SUCCEEDED,
    RunState.FAILED: AppState.FAILED,
    RunState.STOPPED: AppState.CANCELLED,
}


class ApplicationError(MusterError, ComponentValidationException):
    """An application cannot be run. TorchX's command line shows the message of this type without a traceback."""


@contextmanager
def _as_torchx_errors() -> Iterator[None]:
    try:
        yield
    except MusterError as error:
        raise ApplicationError(str(error)) from error


@dataclass
class Request:
    """A run and where to start it. TorchX prints it for a dry run: the spec as YAML, or all of it as JSON."""

    spec: Fields
    stack: str | None = None
    profile: str | None = None
    region: str | None = None

    def __str__(self) -> str:
        return str(yaml.safe_dump(self.spec, sort_keys=False, allow_unicode=True))


class MusterScheduler(WorkspaceMixin, Scheduler):
    """Runs a TorchX application as a run of Muster: each replica of its role is a job of its own.

    The workspace becomes the source of the run, so an image needs none of the code.
    """

    def __init__(self, session_name: str, muster: Muster | None = None) -> None:
        super().__init__("muster", session_name)
        self._workspaces = Workspaces()
        self._muster = muster
        self._lock = threading.Lock()

    def _run_opts(self) -> runopts:
        opts = runopts()
        for option in (*FORMER, *OWN):
            opts.add(option.name, type_=option.kind, default=None, help=option.help)
        return opts

    def _validate(self, *_: object) -> None:
        """Accepts every application: one without a resource uses the stack's default instance type."""

    def _submit_dryrun(self, app: AppDef, cfg: Mapping[str, Any]) -> AppDryRunInfo:
        """Calls and writes nothing: the source folder is packed when the run is scheduled."""
        with _as_torchx_errors():
            further = _further(cfg.get("spec"))
            name = new_run_name(app.name, cfg.get("base_job_name"), cfg.get("backend") or further.get("backend"))
            role = _only_role(app)
            if _SOURCE not in role.metadata:
                # TorchX builds the workspaces first, unless a program calls this itself.
                role.metadata[_SOURCE] = self._workspaces.merged(getattr(role, "workspace", None))
            application = _application(app, name)
            document = document_of(name, application, dict(cfg), further)
            _check_program(command_of(application, dict(cfg)), document.get("source_dir"))
            place = {option: cfg.get(option) for option in ("stack", "profile", "region")}
            return AppDryRunInfo(Request(document, **place), str)

    def build_workspace_and_update_role(self, role: Role, workspace: str, cfg: Mapping[str, Any]) -> None:  # noqa: ARG002
        """TorchX 0.7.0: the folder that `schedule` packs. Nothing is copied that need not be."""
        with _as_torchx_errors():
            role.metadata[_SOURCE] = self._workspaces.folder(workspace)

    def caching_build_workspace_and_update_role(
        self,
        role: Role,
        cfg: Mapping[str, Any],  # noqa: ARG002 - TorchX's signature
        build_cache: dict[object, object],  # noqa: ARG002
    ) -> None:
        """The nightly: the same for a role's own workspace, whose folders are merged."""
        with _as_torchx_errors():
            role.metadata[_SOURCE] = self._workspaces.merged(role.workspace)

    def schedule(self, dryrun_info: AppDryRunInfo) -> str:
        """Start the run. Idempotent: the same request is the same run until it has ended."""
        request = dryrun_info.request
        with _as_torchx_errors():
            return self._at(asdict(request)).launch(request.spec).name

    def describe(self, app_id: str) -> DescribeAppResponse | None:
        """The run, or its last continuation, with its replicas; None when there is no such run."""
        try:
            run, status, restarts = latest(self._at({}), app_id)
        except UnknownRunError:
            return None
        asked = run.spec()
        role = asked.get("tags", {}).get(TAG_ROLE, _DEFAULT_ROLE)
        replicas = [
            ReplicaStatus(
                id=replica.rank,
                state=AppState[replica.state_in(status.state).name],
                role=role,
                hostname=replica.job or "",
            )
            for replica in status.replicas
        ]
        return DescribeAppResponse(
            app_id=app_id,
            state=_app_state(status),
            num_restarts=restarts,
            msg=status.reason,
            ui_url=run.console_url,
            roles_statuses=[RoleStatus(role, replicas)],
            roles=[_role(role, asked, len(replicas))],
        )

    def list(self, cfg: Mapping[str, Any] | None = None) -> list[ListAppResponse]:
        """The newest runs of the stack, however they were started."""
        return [
            ListAppResponse(app_id=run.run, state=_OF_RUN.get(run.state, AppState.RUNNING))
            for run in self._at(cfg or {}).list()
        ]

    def _cancel_existing(self, app_id: str) -> None:
        self._at({}).run(app_id).cancel()

    def log_iter(  # noqa: PLR0917 - TorchX's signature
        self,
        app_id: str,
        role_name: str,  # noqa: ARG002 - there is one role
        k: int = 0,
        regex: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        should_tail: bool = False,
        streams: Stream | None = None,
    ) -> Iterable[str]:
        """The lines of replica `k`, in all its attempts and all continuations of the run."""
        if streams not in {None, Stream.COMBINED}:
            message = f"streams: found {streams}; a job writes stdout and stderr to one log. Leave it out."
            raise ApplicationError(message)

        def lines() -> Iterator[str]:
            for run in generations(self._at({}), app_id, wait=should_tail):
                for line in run.logs(k, follow=should_tail, since=since, until=until, regex=regex):
                    yield f"{line.message}\n"

        return lines()

    def _at(self, options: Mapping[str, Any]) -> Muster:
        """The stack of the options. TorchX has them only when it starts a run; otherwise the environment decides."""
        # TorchX reads the log of each replica in its own thread.
        with self._lock:
            if self._muster is None:
                stack = options.get("stack") or os.environ.get("MUSTER_STACK")
                self._muster = Muster(stack, profile=options.get("profile"), region=options.get("region"))
            return self._muster


def create_scheduler(session_name: str, **_: object) -> MusterScheduler:
    """The entry point that TorchX calls."""
    _report_plainly()
    return MusterScheduler(session_name)


@cache
def _report_plainly() -> None:
    """In TorchX's own program, show an uncaught error of Muster as one line; TorchX itself shows a traceback."""
    if Path(sys.argv[0]).stem != _PROGRAM:
        return
    before, before_in_thread = sys.excepthook, threading.excepthook

    def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if isinstance(error, MusterError):
            print_error(error, as_json=False)
        else:
            before(kind, error, trace)

    def report_in_thread(uncaught: threading.ExceptHookArgs) -> None:
        # `torchx log` reads in threads, and raises their errors again in the main thread.
        if not isinstance(uncaught.exc_value, MusterError):
            before_in_thread(uncaught)

    sys.excepthook, threading.excepthook = report, report_in_thread


def _app_state(status: RunStatus) -> AppState:
    """The state of the application; pending until the first replica's program runs."""
    started = any(replica.state_in(status.state) is not ReplicaState.PENDING for replica in status.replicas)
    waits = status.state is RunState.RUNNING and status.round is None and not started
    return AppState.PENDING if waits else _OF_RUN.get(status.state, AppState.RUNNING)


def _only_role(app: AppDef) -> Role:
    if len(app.roles) != 1:
        message = f"roles: found {len(app.roles)}; all replicas of a run have the same role: run each role separately."
        raise OptionsError(message)
    (role,) = app.roles
    return role


def _mount(mount: BindMount | VolumeMount | DeviceMount) -> Mount:
    if isinstance(mount, BindMount):
        return Mount(mount.dst_path, host_path=mount.src_path, read_only=mount.read_only)
    if isinstance(mount, VolumeMount):
        return Mount(mount.dst_path, claim=mount.src, read_only=mount.read_only)
    return Mount(mount.dst_path)


def _application(app: AppDef, name: str) -> Application:
    values = macros.Values(img_root="", app_id=name, replica_id=RANK, rank0_env=_RANK0)
    role = values.apply(_only_role(app))
    instance_type = role.resource.capabilities.get(_INSTANCE_TYPE)
    return Application(
        name=app.name,
        role=role.name,
        image=role.image,
        entrypoint=role.entrypoint or "",
        arguments=tuple(role.args),
        source=role.metadata.get(_SOURCE),
        replicas=role.num_replicas,
        environment=dict(role.env),
        tags=dict(app.metadata),
        min_replicas=role.min_replicas,
        max_retries=role.max_retries,
        each_replica=role.retry_policy is RetryPolicy.REPLICA,
        instance_type=f"ml.{instance_type.removeprefix('ml.')}" if instance_type else None,
        mounts=tuple(map(_mount, role.mounts)),
    )


def _check_program(command: list[str], source: str | None) -> None:
    """Refuse a script that is not in the source: its instances would start, be billed, and not find it.

    Raises:
        SpecError: it is not there.
    """
    if source is not None:
        found = check_source({"entrypoint": started_in(command), "source_dir": source})
        if found.problems:
            raise SpecError(found.problems)


def _role(name: str, asked: Fields, replicas: int) -> Role:
    return Role(
        name=name,
        image=asked.get("image", ""),
        min_replicas=asked.get("min_replicas"),
        entrypoint=(asked.get("entrypoint") or [""])[0],
        args=[*(asked.get("entrypoint") or [])[1:], *asked.get("arguments", [])],
        env=asked.get("environment", {}),
        num_replicas=replicas,
    )


def _further(file: str | None) -> Fields:
    if not file:
        return {}
    try:
        found = load_yaml(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        why = os_reason(error) if isinstance(error, OSError) else error
        message = f"spec: {file} cannot be read: {why}; name a YAML or JSON file."
        raise OptionsError(message) from error
    if not isinstance(found, dict):
        message = f"spec: {file} does not contain a mapping; name a file with fields of a spec."
        raise OptionsError(message)
    return with_files_beside(found, Path(file).parent)
