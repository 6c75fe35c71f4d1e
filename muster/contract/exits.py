"""The exit codes with which a replica tells the control plane how it ended (sysexits.h where one fits)."""

from __future__ import annotations

from enum import IntEnum


class ReplicaExit(IntEnum):
    """How a replica's process ended. SageMaker shows the code in the job's failure reason."""

    DONE = 0
    USER_CODE = 1
    BAD_INPUT = 64  # EX_USAGE: the run document or the environment cannot be used
    RENDEZVOUS = 69  # EX_UNAVAILABLE: the bucket, or a quorum, could not be reached in time
    FENCED = 75  # a newer attempt or incarnation carries this rank
    STOPPED = 143  # SIGTERM: saved what there was to save
