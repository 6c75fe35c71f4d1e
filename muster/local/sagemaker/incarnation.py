"""One start of a job's containers, watched until they end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, TypeVar

from muster.local.cloud_settings import Settings
from muster.local.faults import (
    CapacityError,
    Crash,
    LostInstance,
    RuleIssue,
    SlowStart,
    SmallVolume,
    SpotInterruption,
)
from muster.local.processes.process_pool import Child
from muster.local.sagemaker.job_storage import CheckpointSync, UploadError
from muster.local.sagemaker.job_tree import JobTree
from muster.local.sagemaker.log_shipping import LogShipper
from muster.local.sagemaker.training_job import Job
from muster.local.service.fault_book import FaultBook

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import StoppingConditionTypeDef

_TICK_SECONDS = 0.1
_F = TypeVar("_F", CapacityError, SlowStart, SmallVolume, SpotInterruption, LostInstance, Crash)


class Cause(Enum):
    """Why an incarnation ended."""

    EXITED = auto()
    STOPPED = auto()
    MAX_RUNTIME = auto()
    MAX_WAIT = auto()
    VOLUME_FULL = auto()
    INTERRUPTED = auto()
    LOST = auto()


@dataclass(frozen=True)
class Ending:
    """The end of an incarnation."""

    cause: Cause
    exit_code: int = 0
    """As a container runtime reports it; only for EXITED."""
    instance: int = 0
    """Which instance has ended so, from 0; only for EXITED."""
    wait_seconds: float | None = None
    """Only for INTERRUPTED: how long there is no new instance; None: as long as a phase."""


@dataclass(frozen=True)
class Volume:
    """The storage of an instance. What is too much for it ends the job: writes cannot be refused without root."""

    tree: JobTree
    size_bytes: int | None
    """None for an instance with disks of its own."""

    @property
    def full(self) -> bool:
        """Whether more was written than there is room for."""
        return self.size_bytes is not None and self.tree.used_bytes() > self.size_bytes


class TimeLimits:
    """How much time a job has left. Runtime is the sum over all its processes; the wait time runs from its creation."""

    def __init__(self, stopping: StoppingConditionTypeDef, created: float) -> None:
        """`stopping` is the job's StoppingCondition, `created` is in epoch seconds."""
        self._max_runtime = stopping.get("MaxRuntimeInSeconds")
        self._max_wait = stopping.get("MaxWaitTimeInSeconds")
        self._created = created
        self._ran = 0.0

    def ran(self, seconds: float) -> None:
        """Add the runtime of a process."""
        self._ran += seconds

    def runtime_left(self, running_seconds: float) -> float | None:
        """Seconds left for a process that has run `running_seconds`; None without a limit."""
        return None if self._max_runtime is None else self._max_runtime - self._ran - running_seconds

    def wait_left(self) -> float | None:
        """Seconds until the job must end, waiting included; None without a limit."""
        return None if self._max_wait is None else self._created + self._max_wait - time.time()


@dataclass(frozen=True)
class JobFaults:
    """The faults of one job."""

    job: str
    book: FaultBook

    def take(self, kind: type[_F], running_seconds: float = 0.0) -> _F | None:
        """The next fault of `kind` that is due, counted as fired."""

        def due(fault: _F) -> bool:
            return fnmatchcase(self.job, fault.job) and getattr(fault, "after_seconds", 0.0) <= running_seconds

        return self.book.take(kind, due)

    def rule_issue(self, rule: str) -> str | None:
        """What a rule of Debugger or the profiler has found, where a fault says so."""

        def found(fault: RuleIssue) -> bool:
            return fnmatchcase(self.job, fault.job) and fnmatchcase(rule, fault.rule)

        fault = self.book.take(RuleIssue, found)
        return None if fault is None else fault.details


@dataclass
class Instance:
    """One container. Its logs and checkpoints are stored while it runs."""

    volume: Volume
    child: Child
    logs: LogShipper
    checkpoints: CheckpointSync | None

    def sync(self) -> None:
        """Store its checkpoints."""
        if self.checkpoints is not None:
            self.checkpoints.push()


@dataclass
class Incarnation:
    """The containers of a job, one on each instance. If one fails, all end, and the job fails."""

    job: Job
    instances: list[Instance]
    limits: TimeLimits
    faults: JobFaults
    settings: Settings
    _next_sync: float = 0.0
    _filled: bool = False
    _full: bool = False

    def watch(self) -> Ending:
        """Wait for the end. Logs and checkpoints are complete when this returns.

        Raises:
            UploadError: the checkpoints could not be stored; the process has ended.
        """
        started = time.monotonic()
        ending = self._until(lambda: self._brought_down(time.monotonic() - started))
        self.limits.ran(time.monotonic() - started)
        for instance in self.instances:
            instance.logs.pump(final=True)
        if ending.cause is not Cause.LOST:
            self._sync()
        if ending.cause is Cause.EXITED and self.job.stop_requested.is_set():
            return Ending(Cause.STOPPED)
        return ending

    def _until(self, brought_down: Callable[[], Ending | None]) -> Ending:
        while not self._wait():
            self._tend()
            if ending := brought_down():
                return ending
        for number, instance in enumerate(self.instances):
            if instance.child.has_ended and instance.child.exit_code != 0:
                # The documentation does not say how long the others may go on: not at all.
                self._kill()
                return Ending(Cause.EXITED, instance.child.exit_code, number)
        return Ending(Cause.EXITED, 0)

    def _wait(self) -> bool:
        """After a short wait: whether one has failed, or all have ended."""
        pause = _TICK_SECONDS / len(self.instances)
        ended = [instance.child.wait(pause) for instance in self.instances]
        return all(ended) or any(item.child.has_ended and item.child.exit_code != 0 for item in self.instances)

    def _brought_down(self, running: float) -> Ending | None:
        """End the process if it is stopped, out of time or room, or hit by a fault; None: it runs on."""
        if self.job.stop_requested.is_set():
            self._terminate()
            return Ending(Cause.STOPPED)
        lefts = {Cause.MAX_RUNTIME: self.limits.runtime_left(running), Cause.MAX_WAIT: self.limits.wait_left()}
        over = {cause: left for cause, left in lefts.items() if left is not None and left <= 0}
        if over:
            self.job.stopping()
            self._terminate()
            return Ending(min(over, key=over.__getitem__))  # the limit that was reached first
        if self._full:
            self._kill()
            # A program whose last act filled the volume has ended by itself, though its end is learned of only now.
            ended = all(instance.child.exit_code == 0 for instance in self.instances)
            return Ending(Cause.EXITED, 0) if ended else Ending(Cause.VOLUME_FULL)
        return self._hit(running)

    def _hit(self, running: float) -> Ending | None:
        """End the process if a fault is due."""
        if self.job.spot and (interruption := self.faults.take(SpotInterruption, running)):
            self._terminate()
            return Ending(Cause.INTERRUPTED, wait_seconds=interruption.wait_seconds)
        if self.faults.take(LostInstance, running):
            self._kill()
            return Ending(Cause.LOST)
        if crash := self.faults.take(Crash, running):
            self._kill()
            return Ending(Cause.EXITED, crash.exit_code)
        return None

    def _terminate(self) -> None:
        """SIGTERM, grace, SIGKILL; logs and checkpoints are stored meanwhile."""
        self._signal(signal.SIGTERM)
        deadline = time.monotonic() + self.settings.stop_grace_seconds
        for instance in self.instances:
            while not instance.child.wait(_TICK_SECONDS):
                self._tend()
                if time.monotonic() >= deadline:
                    self._kill()
                    return

    def _kill(self) -> None:
        self._signal(signal.SIGKILL)
        for instance in self.instances:
            while not instance.child.wait(_TICK_SECONDS):
                pass

    def _signal(self, number: signal.Signals) -> None:
        for instance in self.instances:
            if not instance.child.has_ended:
                instance.child.signal(number)

    def _tend(self) -> None:
        for instance in self.instances:
            instance.logs.pump()
        is_due = time.monotonic() >= self._next_sync
        if is_due or self._filled:
            # Once more at the next tick: a program whose last act filled the volume ends by itself in between.
            was_filled, self._filled = self._filled, any(instance.volume.full for instance in self.instances)
            self._full = was_filled and self._filled
        if is_due:
            self._sync()
            self._next_sync = time.monotonic() + self.settings.checkpoint_sync_seconds

    def _sync(self) -> None:
        try:
            for instance in self.instances:
                instance.sync()
        except UploadError:
            self._kill()
            raise
