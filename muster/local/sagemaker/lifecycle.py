"""The life of one job: instance, downloads, process, uploads, end; and everything that may come in between."""

from __future__ import annotations

import logging
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from muster.contract.status import JobStatus
from muster.local.faults import CapacityError, Crash, FaultBook, LostInstance, SlowStart, SpotInterruption
from muster.local.processes import Child, ProcessPool
from muster.local.sagemaker import container
from muster.local.sagemaker.job import Job, Secondary
from muster.local.sagemaker.logs import LogShipper, LogSink, MetricScraper
from muster.local.sagemaker.storage import CheckpointSync, DownloadError, JobStorage, UploadError
from muster.local.sagemaker.tree import JobTree, instance_type
from muster.local.settings import Settings

_log = logging.getLogger(__name__)

_TICK_SECONDS = 0.1
_DEFAULT_CHECKPOINT_PATH = "/opt/ml/checkpoints"
_INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."
_F = TypeVar("_F", CapacityError, SlowStart, SpotInterruption, LostInstance, Crash)


@dataclass(frozen=True)
class Platform:
    """What a lifecycle needs of the service around it."""

    settings: Settings
    faults: FaultBook
    processes: ProcessPool
    place: Path
    """Where the job's trees go."""
    storage: JobStorage
    open_log: Callable[[], LogSink]
    variables: Callable[[], dict[str, str]]
    """What the platform sets in a process's environment, fresh role credentials among it."""


class _Cause(Enum):
    """Why a process ended."""

    EXITED = auto()
    STOPPED = auto()
    MAX_RUNTIME = auto()
    MAX_WAIT = auto()
    INTERRUPTED = auto()
    LOST = auto()


@dataclass(frozen=True)
class _Ending:
    cause: _Cause
    exit_code: int = 0
    wait_seconds: float | None = None
    """Interrupted only: how long there is no new instance."""


class _EndError(Exception):
    """The job ends here and now."""

    def __init__(self, status: JobStatus, secondary: Secondary, reason: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.secondary = secondary
        self.reason = reason


def _failed(reason: str) -> _EndError:
    return _EndError(JobStatus.FAILED, Secondary.FAILED, reason)


_ENDS = {
    _Cause.STOPPED: (JobStatus.STOPPED, Secondary.STOPPED),
    _Cause.MAX_RUNTIME: (JobStatus.STOPPED, Secondary.MAX_RUNTIME_EXCEEDED),
    _Cause.MAX_WAIT: (JobStatus.STOPPED, Secondary.MAX_WAIT_TIME_EXCEEDED),
}


@dataclass
class Lifecycle:
    """Runs in a thread of its own from the job's creation to its end."""

    job: Job
    platform: Platform
    _incarnations: int = 0
    _trained_seconds: float = 0.0
    _retries_left: int = field(init=False)

    def __post_init__(self) -> None:
        self._retries_left = self.job.request.get("RetryStrategy", {}).get("MaximumRetryAttempts", 0)

    def run(self) -> None:
        """Live. Whatever happens, the job ends."""
        try:
            self._live()
        except _EndError as end:
            self.job.end(end.status, end.secondary, end.reason)
        except Exception:
            _log.exception("The job %s broke the service", self.job.name)
            self.job.end(JobStatus.FAILED, Secondary.FAILED, _INTERNAL_ERROR)
        finally:
            shutil.rmtree(self.platform.place, ignore_errors=True)

    def _live(self) -> None:
        self._wait_for_instance()
        process = self._start()
        ending = process.watch()
        while ending.cause in {_Cause.INTERRUPTED, _Cause.LOST}:
            self._wait_for_another_instance(ending)
            process = self._start()
            ending = process.watch()
        self._finish(process, ending)

    # --- instances -----------------------------------------------------------------------------

    def _wait_for_instance(self) -> None:
        slow = self._fault(SlowStart)
        self._pause(self.platform.settings.phase_seconds + (slow.seconds if slow else 0))
        if self._fault(CapacityError):
            kind = instance_type(self.job.request["ResourceConfig"])
            reason = (
                "CapacityError: Unable to provision requested ML compute capacity. "
                f"Please retry using a different ML instance type or after some time. ({kind})"
            )
            raise _failed(reason)

    def _wait_for_another_instance(self, ending: _Ending) -> None:
        phase = self.platform.settings.phase_seconds
        if ending.cause is _Cause.INTERRUPTED:
            self.job.advance(Secondary.INTERRUPTED)
            self._pause(phase if ending.wait_seconds is None else ending.wait_seconds)
        elif self._retries_left > 0:
            self._retries_left -= 1
        else:
            raise _failed(_INTERNAL_ERROR)
        self.job.advance(Secondary.RESTARTING)
        self._pause(phase)

    def _pause(self, seconds: float) -> None:
        """Let time pass, unless the job is stopped or waited too long."""
        left = self._wait_left()
        if self.job.stop_requested.wait(seconds if left is None else min(seconds, left)):
            raise _EndError(JobStatus.STOPPED, Secondary.STOPPED)
        if left is not None and left < seconds:
            raise _EndError(*_ENDS[_Cause.MAX_WAIT])

    def _wait_left(self) -> float | None:
        limit = self.job.request["StoppingCondition"].get("MaxWaitTimeInSeconds")
        return None if limit is None else max(0.0, self.job.created + limit - time.time())

    def _runtime_left(self) -> float | None:
        limit = self.job.request["StoppingCondition"].get("MaxRuntimeInSeconds")
        return None if limit is None else limit - self._trained_seconds

    # --- a process -----------------------------------------------------------------------------

    def _start(self) -> _Process:
        """Fill a fresh tree and start the process: a new instance has nothing of the old one."""
        request = self.job.request
        self.job.advance(Secondary.DOWNLOADING)
        image = request["AlgorithmSpecification"].get("TrainingImage", "")
        if not container.is_local(image):
            reason = (
                f"ClientError: Cannot find image {image}. Please ensure that it exists in its repository and that "
                "the role may pull it. The embedded cloud has one image: muster-local/python."
            )
            raise _failed(reason)
        self._incarnations += 1
        tree = JobTree(self.platform.place / str(self._incarnations))
        tree.make(request)
        checkpoints = self._checkpoints(tree)
        try:
            for channel in request.get("InputDataConfig", []):
                self.platform.storage.download_channel(channel, tree.channel(channel["ChannelName"]))
            if checkpoints is not None:
                checkpoints.restore()
        except DownloadError as error:
            reason = f"ClientError: Data download failed:{error}"
            raise _failed(reason) from error
        if self.job.stop_requested.is_set():
            raise _EndError(JobStatus.STOPPED, Secondary.STOPPED)
        metrics = MetricScraper(request["AlgorithmSpecification"].get("MetricDefinitions", []), self.job.metrics)
        logs = LogShipper(tree.log, self.platform.open_log(), metrics)
        code = self.platform.settings.code
        child = self.platform.processes.spawn(
            container.command(request["AlgorithmSpecification"]),
            env=container.environment(tree, code, request, self.platform.variables()),
            cwd=container.working_directory(code, tree),
            log=tree.log,
        )
        self.job.advance(Secondary.TRAINING)
        return _Process(self, tree, child, logs, checkpoints)

    def _checkpoints(self, tree: JobTree) -> CheckpointSync | None:
        config = self.job.request.get("CheckpointConfig")
        if config is None:
            return None
        directory = tree.local(config.get("LocalPath", _DEFAULT_CHECKPOINT_PATH))
        return CheckpointSync(self.platform.storage, directory, config["S3Uri"])

    # --- the end -------------------------------------------------------------------------------

    def _finish(self, process: _Process, ending: _Ending) -> None:
        self.job.advance(Secondary.UPLOADING)
        try:
            self._upload(process.tree)
        except UploadError as error:
            reason = f"ClientError: Artifact upload failed:{error}"
            raise _failed(reason) from error
        if ending.cause in _ENDS:
            raise _EndError(*_ENDS[ending.cause])
        if ending.exit_code != 0:
            detail = process.tree.failure()
            if not detail and process.child.missing is not None:
                program = container.command(self.job.request["AlgorithmSpecification"])[0]
                detail = f'exec: "{program}": {process.child.missing}'
            reason = f"AlgorithmError: {detail}, exit code: {ending.exit_code}"
            raise _failed(reason)
        raise _EndError(JobStatus.COMPLETED, Secondary.COMPLETED)

    def _upload(self, tree: JobTree) -> None:
        output = self.job.request["OutputDataConfig"]
        base = f"{output['S3OutputPath'].rstrip('/')}/{self.job.name}/output"
        storage = self.platform.storage
        if output.get("CompressionType") == "NONE":
            storage.upload_directory(tree.model, f"{base}/model")
            storage.upload_directory(tree.output, f"{base}/output")
            self.job.stored(f"{base}/model/")
            return
        storage.upload_archive(tree.model, f"{base}/model.tar.gz")
        if any(tree.output.iterdir()):
            storage.upload_archive(tree.output, f"{base}/output.tar.gz")
        self.job.stored(f"{base}/model.tar.gz")

    def _fault(self, kind: type[_F], running_seconds: float = 0.0) -> _F | None:
        def due(fault: _F) -> bool:
            return fnmatchcase(self.job.name, fault.job) and getattr(fault, "after_seconds", 0.0) <= running_seconds

        return self.platform.faults.take(kind, due)


@dataclass
class _Process:
    """One process of a job, watched until it ends."""

    life: Lifecycle
    tree: JobTree
    child: Child
    logs: LogShipper
    checkpoints: CheckpointSync | None

    def watch(self) -> _Ending:
        """Wait for the end, whoever brings it; logs and checkpoints are complete when this returns."""
        started = time.monotonic()
        self._next_sync = started + self.life.platform.settings.checkpoint_sync_seconds
        while not self.child.wait(_TICK_SECONDS):
            self._tend()
            running = time.monotonic() - started
            if ending := self._brought_down(running):
                break
        else:
            ending = _Ending(_Cause.EXITED, self.child.exit_code)
        self.life._trained_seconds += time.monotonic() - started
        self.logs.pump(final=True)
        if ending.cause is not _Cause.LOST:
            self._sync()
        if ending.cause is _Cause.EXITED and self.life.job.stop_requested.is_set():
            return _Ending(_Cause.STOPPED)
        return ending

    def _brought_down(self, running: float) -> _Ending | None:
        """End the process when something wants that; None lets it run."""
        life = self.life
        if life.job.stop_requested.is_set():
            self._terminate()
            return _Ending(_Cause.STOPPED)
        for cause, left in (
            (_Cause.MAX_RUNTIME, _minus(life._runtime_left(), running)),
            (_Cause.MAX_WAIT, life._wait_left()),
        ):
            if left is not None and left <= 0:
                life.job.stopping()
                self._terminate()
                return _Ending(cause)
        if life.job.spot and (taken := life._fault(SpotInterruption, running)):
            self._terminate()
            return _Ending(_Cause.INTERRUPTED, wait_seconds=taken.wait_seconds)
        if life._fault(LostInstance, running):
            self._kill()
            return _Ending(_Cause.LOST)
        if crash := life._fault(Crash, running):
            self._kill()
            return _Ending(_Cause.EXITED, crash.exit_code)
        return None

    def _terminate(self) -> None:
        """SIGTERM, grace, SIGKILL; logs and checkpoints go on meanwhile."""
        self.child.signal(signal.SIGTERM)
        deadline = time.monotonic() + self.life.platform.settings.stop_grace_seconds
        while not self.child.wait(_TICK_SECONDS):
            self._tend()
            if time.monotonic() >= deadline:
                self._kill()
                return

    def _kill(self) -> None:
        self.child.signal(signal.SIGKILL)
        while not self.child.wait(_TICK_SECONDS):
            pass

    def _tend(self) -> None:
        self.logs.pump()
        if time.monotonic() >= self._next_sync:
            self._sync()
            self._next_sync = time.monotonic() + self.life.platform.settings.checkpoint_sync_seconds

    def _sync(self) -> None:
        if self.checkpoints is None:
            return
        try:
            self.checkpoints.push()
        except UploadError as error:
            self._kill()
            reason = f"ClientError: Artifact upload failed:{error}"
            raise _failed(reason) from error


def _minus(left: float | None, running: float) -> float | None:
    return None if left is None else left - running
