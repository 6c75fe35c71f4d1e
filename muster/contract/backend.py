"""Where a replica's job runs."""

from __future__ import annotations

from enum import StrEnum


class Backend(StrEnum):
    """The service that runs the jobs of a replica."""

    TRAINING_JOB = "training-job"
    HYPERPOD = "hyperpod"
