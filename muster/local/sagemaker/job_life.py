"""The life of one job: instance, downloads, process, uploads, end, and the faults in between."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from muster.contract.aws.instance_types import has_own_disks
from muster.contract.aws.job_status import JobStatus
from muster.local.cloud_settings import Settings
from muster.local.faults import CapacityError, SlowStart, SmallVolume
from muster.local.processes.process_pool import ProcessPool
from muster.local.sagemaker import local_image
from muster.local.sagemaker.incarnation import Cause, Ending, Incarnation, Instance, JobFaults, TimeLimits, Volume
from muster.local.sagemaker.job_hosts import Host, hosts_of, several_possible
from muster.local.sagemaker.job_storage import (
    CheckpointSync,
    DownloadError,
    JobStorage,
    UploadError,
    check_names_differ,
)
from muster.local.sagemaker.job_tree import JobTree, instance_type
from muster.local.sagemaker.log_shipping import LogShipper, LogSink, MetricScraper
from muster.local.sagemaker.training_job import NO_CAPACITY, Job, Secondary
from muster.local.service.fault_book import FaultBook

_log = logging.getLogger(__name__)

_DEFAULT_CHECKPOINT_PATH = "/opt/ml/checkpoints"
_GIGABYTE = 1024**3
# What SageMaker says after `Data download failed:` (aws/sagemaker-python-sdk#128) and after `Artifact upload failed:`
# (huggingface/blog#114).
_NO_ROOM = "Insufficient disk space"
# What a program says whose write fails.
_FULL = "AlgorithmError: OSError: [Errno 28] No space left on device, exit code: 1"
_INTERNAL_ERROR = "InternalServerError: We encountered an internal error. Please try again."


@dataclass(frozen=True)
class Machine:
    """What all jobs share."""

    settings: Settings
    faults: FaultBook
    processes: ProcessPool
    place: Path
    """Directory for the trees of all jobs."""
    endpoint: Mapping[str, str]
    """Environment variables with which a container reaches the service."""


@dataclass(frozen=True)
class Platform:
    """What the service provides for one job."""

    machine: Machine
    storage: JobStorage
    open_log: Callable[[str], LogSink]
    """Opens a log for the container on a host."""
    variables: Callable[[JobTree], dict[str, str]]
    """The platform's part of the environment of the container in a tree, with what gives it the role's credentials."""


class _EndError(Exception):
    """The job ends now."""

    def __init__(self, status: JobStatus, secondary: Secondary, reason: str | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.secondary = secondary
        self.reason = reason


def _failed(reason: str) -> _EndError:
    return _EndError(JobStatus.FAILED, Secondary.FAILED, reason)


def _stopped(secondary: Secondary = Secondary.STOPPED) -> _EndError:
    return _EndError(JobStatus.STOPPED, secondary)


_STOPS = {
    Cause.STOPPED: Secondary.STOPPED,
    Cause.MAX_RUNTIME: Secondary.MAX_RUNTIME_EXCEEDED,
    Cause.MAX_WAIT: Secondary.MAX_WAIT_TIME_EXCEEDED,
}


class Lifecycle:
    """Runs in a thread of its own from the job's creation to its end."""

    def __init__(self, job: Job, platform: Platform) -> None:
        self._job = job
        self._platform = platform
        self._limits = TimeLimits(job.request["StoppingCondition"], job.created)
        self._faults = JobFaults(job.name, platform.machine.faults)
        retries = job.request.get("RetryStrategy")
        self._retries_left = retries["MaximumRetryAttempts"] if retries else 0
        self._incarnations = 0
        self._place = platform.machine.place / job.name
        self._volume_bytes = self._size_volume()

    def run(self) -> None:
        """Run the job to its end, which every error leads to."""
        try:
            self._live()
        except _EndError as end:
            self._end(end.status, end.secondary, end.reason)
        except DownloadError as error:
            self._fail(f"ClientError: Data download failed:{error}")
        except UploadError as error:
            self._fail(f"ClientError: Artifact upload failed:{error}")
        except Exception:
            _log.exception("The job %s failed inside the service", self._job.name)
            self._fail(_INTERNAL_ERROR)
        finally:
            shutil.rmtree(self._place, ignore_errors=True)

    def _fail(self, reason: str) -> None:
        self._end(JobStatus.FAILED, Secondary.FAILED, reason)

    def _end(self, status: JobStatus, secondary: Secondary, reason: str | None = None) -> None:
        self._job.rules.conclude(self._faults.rule_issue)
        self._job.end(status, secondary, reason)

    def _live(self) -> None:
        self._wait_for_instance()
        incarnation = self._start()
        ending = incarnation.watch()
        while ending.cause in {Cause.INTERRUPTED, Cause.LOST}:
            self._wait_for_another_instance(ending)
            incarnation = self._start()
            ending = incarnation.watch()
        self._finish(incarnation, ending)

    def _wait_for_instance(self) -> None:
        slow = self._faults.take(SlowStart)
        if slow:
            self._job.say(NO_CAPACITY)
        # A warm cluster is there already.
        launch = 0.0 if self._job.is_warm else self._platform.machine.settings.phase_seconds
        self._pause(launch + (slow.seconds if slow else 0))
        if self._faults.take(CapacityError):
            kind = instance_type(self._job.request["ResourceConfig"])
            reason = (
                "CapacityError: Unable to provision requested ML compute capacity. "
                f"Please retry using a different ML instance type or after some time. ({kind})"
            )
            raise _failed(reason)

    def _wait_for_another_instance(self, ending: Ending) -> None:
        phase = self._platform.machine.settings.phase_seconds
        if ending.cause is Cause.INTERRUPTED:
            self._job.advance(Secondary.INTERRUPTED)
            self._pause(phase if ending.wait_seconds is None else ending.wait_seconds)
        elif self._retries_left > 0:
            self._retries_left -= 1
        else:
            raise _failed(_INTERNAL_ERROR)
        self._job.advance(Secondary.RESTARTING)
        self._pause(phase)

    def _pause(self, seconds: float) -> None:
        """Wait, unless the job is stopped or has waited too long."""
        left = self._limits.wait_left()
        too_long = left is not None and left < seconds
        if self._job.stop_requested.wait(max(0.0, left) if left is not None and too_long else seconds):
            raise _stopped()
        if too_long:
            raise _stopped(Secondary.MAX_WAIT_TIME_EXCEEDED)

    def _start(self) -> Incarnation:
        """Fill new trees and start the containers: a new instance has no file of the old one."""
        job = self._job
        job.advance(Secondary.DOWNLOADING)
        image = job.request["AlgorithmSpecification"].get("TrainingImage", "")
        if not local_image.is_local(image):
            reason = (
                f"ClientError: Cannot find image {image}. Please ensure that it exists in its repository and that "
                "the role may pull it. The embedded cloud has one image: muster-local/python."
            )
            raise _failed(reason)
        hosts = hosts_of(job.request["ResourceConfig"])
        if len(hosts) > 1 and not several_possible():
            reason = "ClientError: The embedded cloud runs jobs of several instances on Linux only."
            raise _failed(reason)
        self._incarnations += 1
        prepared = [self._prepare(host, hosts) for host in hosts]
        if job.stop_requested.is_set():
            raise _stopped()
        instances = [
            self._start_container(host, hosts, volume, checkpoints)
            for host, (volume, checkpoints) in zip(hosts, prepared, strict=True)
        ]
        job.advance(Secondary.TRAINING)
        return Incarnation(job, instances, self._limits, self._faults, self._platform.machine.settings)

    def _prepare(self, host: Host, hosts: list[Host]) -> tuple[Volume, CheckpointSync | None]:
        """Fill the tree of one instance with its files and data."""
        request, storage = self._job.request, self._platform.storage
        tree = JobTree(self._place / str(self._incarnations) / host.name)
        tree.make(request, [item.name for item in hosts], host.name)
        for channel in request.get("InputDataConfig", []):
            source = channel["DataSource"].get("S3DataSource")
            if len(hosts) > 1 and source and source.get("S3DataDistributionType") == "ShardedByS3Key":
                message = f"channel {channel['ChannelName']}: the embedded cloud gives all data to every instance"
                raise DownloadError(message)
            storage.download_channel(channel, tree.channel(channel["ChannelName"]))
        checkpoints = self._checkpoints(tree)
        if checkpoints is not None:
            checkpoints.restore()
        volume = Volume(tree, self._volume_bytes)
        if volume.full:
            raise DownloadError(_NO_ROOM)
        return volume, checkpoints

    def _start_container(
        self, host: Host, hosts: list[Host], volume: Volume, checkpoints: CheckpointSync | None
    ) -> Instance:
        platform, request, tree = self._platform, self._job.request, volume.tree
        algorithm, code = request["AlgorithmSpecification"], platform.machine.settings.code
        metrics = MetricScraper(algorithm.get("MetricDefinitions", []), self._job.metrics)
        child = platform.machine.processes.spawn(
            local_image.command(algorithm),
            env=local_image.environment(tree, code, request, platform.variables(tree), hosts),
            cwd=local_image.working_directory(code, tree),
            log=tree.log,
        )
        return Instance(volume, child, LogShipper(tree.log, platform.open_log(host.name), metrics), checkpoints)

    def _size_volume(self) -> int | None:
        """The bytes of the job's volume; None if its instance has disks of its own."""
        resources = self._job.request["ResourceConfig"]
        if has_own_disks(instance_type(resources)):
            return None
        small = self._faults.take(SmallVolume)
        return resources["VolumeSizeInGB"] * (small.gigabyte_bytes if small else _GIGABYTE)

    def _checkpoints(self, tree: JobTree) -> CheckpointSync | None:
        config = self._job.request.get("CheckpointConfig")
        if config is None:
            return None
        path = config.get("LocalPath", _DEFAULT_CHECKPOINT_PATH)
        directory = tree.local(path)
        if directory is None:
            reason = f"ClientError: The checkpoint path {path} is not below /opt/ml, as the embedded cloud requires."
            raise _failed(reason)
        return CheckpointSync(self._platform.storage, directory, config["S3Uri"])

    def _finish(self, last: Incarnation, ending: Ending) -> None:
        self._job.advance(Secondary.UPLOADING)
        if ending.cause is Cause.VOLUME_FULL:
            raise _failed(_FULL)
        if any(instance.volume.full for instance in last.instances):
            raise UploadError(_NO_ROOM)
        self._upload([instance.volume.tree for instance in last.instances])
        if ending.cause in _STOPS:
            raise _stopped(_STOPS[ending.cause])
        if ending.exit_code != 0:
            failed = last.instances[ending.instance]
            detail = failed.volume.tree.failure()
            if not detail and failed.child.missing is not None:
                program = local_image.command(self._job.request["AlgorithmSpecification"])[0]
                detail = f'exec: "{program}": {failed.child.missing}'
            reason = f"AlgorithmError: {detail}, exit code: {ending.exit_code}"
            raise _failed(reason)
        raise _EndError(JobStatus.COMPLETED, Secondary.COMPLETED)

    def _upload(self, trees: list[JobTree]) -> None:
        """Store what the containers have left, as one model and one output."""
        job, storage = self._job, self._platform.storage
        models, outputs = [tree.model for tree in trees], [tree.output for tree in trees]
        check_names_differ(models)
        check_names_differ(outputs)
        if job.artifacts.endswith("/"):
            for model, output in zip(models, outputs, strict=True):
                storage.upload_directory(model, job.artifacts.rstrip("/"))
                storage.upload_directory(output, f"{job.output}/output")
        else:
            storage.upload_archive(models, job.artifacts)
            if any(any(output.iterdir()) for output in outputs):
                storage.upload_archive(outputs, f"{job.output}/output.tar.gz")
        job.stored()
