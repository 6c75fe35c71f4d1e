"""The statuses of a SageMaker training job. Those of a job on a cluster are given in the same words."""

from __future__ import annotations

from enum import StrEnum

WAITING_FOR_QUOTA = "WaitingForQuota"
"""The secondary status of a job on a cluster that Kueue has not admitted, or has suspended again."""
BEFORE_INSTANCE = ("Starting", "Pending", "LaunchingMLInstances", "PreparingTrainingStack", WAITING_FOR_QUOTA)
"""Secondary statuses of a job that has no instance yet and costs nothing."""
BEFORE_TRAINING = (*BEFORE_INSTANCE, "PreparingTraining", "Downloading", "DownloadingTrainingImage")
"""Secondary statuses of a job that is not training yet."""
PASSING = (
    *("Starting", "LaunchingMLInstances", "PreparingTrainingStack", "PreparingTraining"),
    *("Downloading", "DownloadingTrainingImage", "Uploading"),
)
"""Secondary statuses of a training job that follow from its launch, or come right before its end. They are recorded
with the status after them, whose event has the times of all that came before it."""


class JobStatus(StrEnum):
    """TrainingJobStatus. `Stopping` is not terminal: the container may still save its work.

    Any other value is kept as text: SageMaker adds statuses (`Deleting`), and none of them is terminal.
    """

    IN_PROGRESS = "InProgress"
    COMPLETED = "Completed"
    FAILED = "Failed"
    STOPPING = "Stopping"
    STOPPED = "Stopped"

    @property
    def is_terminal(self) -> bool:
        """Whether the job can never change again."""
        return self in {JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.STOPPED}
