"""Managed warm pools: the instances that a job keeps after its end, until another one takes them or their time is over.

As the developer guide describes them ("Train using SageMaker managed warm pools"): a pool is kept by a job that
completes, is stopped or fails because of its program or its request, not by one whose cluster may be damaged. It moves
to the next job with the same role, resources, network and session chaining.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from muster.local.sagemaker.job_tree import instance_type
from muster.local.sagemaker.service_errors import invalid

if TYPE_CHECKING:
    from mypy_boto3_sagemaker.type_defs import CreateTrainingJobRequestTypeDef


class PoolStatus(StrEnum):
    """WarmPoolStatus: its values."""

    IN_USE = "InUse"
    AVAILABLE = "Available"
    REUSED = "Reused"
    TERMINATED = "Terminated"


@dataclass
class WarmPool:
    """The warm pool of one job. Times are in epoch seconds; the job's lock guards it."""

    keep_seconds: int
    """KeepAlivePeriodInSeconds, which UpdateTrainingJob changes."""
    _begin: float | None = None
    _closed: float | None = None
    """When it ended, where that was not after `keep_seconds`."""
    _reused_by: str | None = None

    def retain(self, at: float, *, healthy: bool) -> None:
        """The job has ended. `healthy`: it had a cluster, and nothing suggests that the cluster is damaged."""
        self._begin, self._closed = at, None if healthy else at

    def take(self, job: str) -> None:
        """`job` continues with the cluster of this pool, which is available."""
        self._closed, self._reused_by = time.time(), job

    def update(self, keep_seconds: int) -> None:
        """Keep the cluster for another time from the job's end; 0 ends the pool now.

        Raises:
            ServiceError: the pool is gone.
        """
        if self.status not in {PoolStatus.IN_USE, PoolStatus.AVAILABLE}:
            message = f"The warm pool of this training job is {self.status} and cannot be updated."
            raise invalid(message)
        self.keep_seconds = keep_seconds
        if self._begin is not None and self._end(self._begin) <= time.time():
            self._closed = time.time()

    @property
    def status(self) -> PoolStatus:
        """The pool's status now."""
        if self._begin is None:
            return PoolStatus.IN_USE
        if self._reused_by is not None:
            return PoolStatus.REUSED
        return PoolStatus.AVAILABLE if time.time() < self._end(self._begin) else PoolStatus.TERMINATED

    def document(self) -> dict[str, object]:
        """WarmPoolStatus."""
        shown: dict[str, object] = {"Status": self.status}
        if self._begin is not None:
            shown["ResourceRetainedBillableTimeInSeconds"] = round(
                min(time.time(), self._end(self._begin)) - self._begin
            )
        if self._reused_by is not None:
            shown["ReusedByJob"] = self._reused_by
        return shown

    def _end(self, begin: float) -> float:
        return begin + self.keep_seconds if self._closed is None else self._closed


def keep_seconds(request: CreateTrainingJobRequestTypeDef) -> int:
    """How long a job keeps its cluster; 0 for one that keeps none."""
    return request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0)


def matches(kept: CreateTrainingJobRequestTypeDef, new: CreateTrainingJobRequestTypeDef) -> bool:
    """Whether a job with the request `new` can use the cluster of one with the request `kept`."""
    return _matched(kept) == _matched(new)


def _matched(request: CreateTrainingJobRequestTypeDef) -> tuple[object, ...]:
    resources = request["ResourceConfig"]
    network = request.get("VpcConfig")
    return (
        request["RoleArn"],
        instance_type(resources),
        resources.get("InstanceCount", 1),
        resources.get("VolumeKmsKeyId"),
        resources["VolumeSizeInGB"],
        (network["SecurityGroupIds"], network["Subnets"]) if network else None,
        request.get("EnableInterContainerTrafficEncryption", False),
        request.get("EnableNetworkIsolation", False),
        request.get("SessionChainingConfig"),
    )
