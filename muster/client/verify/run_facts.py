"""What was seen of the run of a verification."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from muster.client.runs.run_state import RunState
from muster.contract.run.result import ReplicaResult, Result
from muster.contract.run.roll_up import ReplicaEntry


@dataclass(frozen=True)
class Look:
    """The status of a job as Muster showed it, and as SageMaker described it just after."""

    seconds: float
    """Since the launch."""
    job: str
    shown: str
    described: str


@dataclass(frozen=True)
class JobFacts:
    """A job as SageMaker described it after the end of the run."""

    name: str
    status: str
    reason: str
    created_at: datetime
    ended_at: datetime | None
    encrypted: bool
    """Whether its volume has a KMS key."""


@dataclass(frozen=True)
class ContainerReport:
    """What an attempt said about its container."""

    rank: int
    attempt: int
    python: str
    variables: tuple[str, ...]
    """Which of AWS_REGION and AWS_DEFAULT_REGION are set."""
    restored: tuple[str, ...]
    """Which of the two checkpoint files were there at its start."""
    round: int
    steps: int
    """How many inner steps its restored state had made."""

    @classmethod
    def read(cls, text: str) -> ContainerReport:
        """The report in a line of the log."""
        fields = json.loads(text)
        return cls(**{**fields, "variables": tuple(fields["variables"]), "restored": tuple(fields["restored"])})


@dataclass(frozen=True)
class LogFacts:
    """What the logs of the run held, and how late they came."""

    reports: tuple[ContainerReport, ...] = ()
    delays: tuple[float, ...] = ()
    """Seconds from the writing of each line to its arrival in CloudWatch Logs."""
    problem: str = ""


@dataclass(frozen=True)
class OutputFacts:
    """What the run left for its user."""

    page: str | None = None
    page_bytes: int = 0
    artifacts: Mapping[str, bool] = field(default_factory=dict)
    """The URIs in the result, and whether there is an object."""
    archive: tuple[str, ...] = ()
    """The members of rank 0's output.tar.gz."""
    problem: str = ""
    """Why the archive could not be read."""
    no_archive: str = ""
    """Why what was read is no archive."""


def without_end(result: Result, entries: Mapping[int, ReplicaEntry]) -> tuple[int, ...]:
    """The ranks of `result` whose entry in the roll-up is missing, or lacks the end of the last attempt. Pure."""

    def shows_end(replica: ReplicaResult) -> bool:
        entry = entries.get(replica.rank)
        if entry is None or not replica.attempts:
            return False
        last = entry.attempts[-1]
        return last.job == replica.attempts[-1].job and last.ended_at is not None

    return tuple(replica.rank for replica in result.replicas if not shows_end(replica))


@dataclass(frozen=True)
class RunFacts:
    """Everything that was seen of the run."""

    run: str
    prefix: str
    """The stack's job prefix."""
    seconds: float = 0.0
    problem: str = ""
    """Why it could not be started, or did not end in time."""
    state: RunState | None = None
    reason: str = ""
    result: Result | None = None
    jobs: Mapping[str, JobFacts] = field(default_factory=dict)
    looks: tuple[Look, ...] = ()
    rolled_up_seconds: float | None = None
    """From the end of the last job to the last write of the roll-up; none where there is no roll-up."""
    not_rolled_up: tuple[int, ...] = ()
    """Ranks whose entry in the roll-up does not have the end of the last attempt."""
    logs: LogFacts = field(default_factory=LogFacts)
    checkpoints: tuple[str, ...] = ()
    """The names of the failing rank's checkpoints in the bucket, after the end."""
    outputs: OutputFacts = field(default_factory=OutputFacts)
    has_key: bool = False
    """Whether the stack encrypts with a KMS key."""
