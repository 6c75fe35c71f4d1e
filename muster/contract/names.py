"""The one place where names are made and parsed: runs, training jobs, tags, metrics.

A training job's name is its only idempotency key (it is unique per account and region), so it consists of the run, the
rank and the attempt only: `{prefix}-{run}-r{rank}-a{attempt}`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

JOB_NAME_MAX = 63  # CreateTrainingJob: TrainingJobName has 1-63 characters
REPLICAS_MAX = 10_000  # Step Functions: a Distributed Map runs at most 10,000 child executions at once
APART_MAX = 100  # replicas of a sweep with a trainer: a look at the run lists the rounds of each of them
ATTEMPT_MAX = 999
CONTINUATIONS_MAX = 20  # each of the run before it
CLAIM_NUMBER_MAX = ATTEMPT_MAX * 1_000  # attempts are numbered through all runs of a lineage
PREFIX_MAX = 11
RUN_MAX = JOB_NAME_MAX - PREFIX_MAX - len(f"--r{REPLICAS_MAX - 1}-a{ATTEMPT_MAX}")

TRAINING_LOG_GROUP = "/aws/sagemaker/TrainingJobs"
"""The log group of all training jobs of an account."""
CLUSTER_LOG_GROUPS = "/aws/sagemaker/Clusters/"
"""A HyperPod cluster's log group is `{CLUSTER_LOG_GROUPS}{name}/{id}`; the id is the last part of its ARN."""
CONTAINER = "algo-"
"""SageMaker names a log stream after the job, a slash, and the container, which begins like this."""

TAG_RUN = "muster:run"
TAG_RANK = "muster:rank"
TAG_ATTEMPT = "muster:attempt"
TAG_PLAN = "muster:plan"

METRICS_NAMESPACE = "Muster"
"""Of Muster's own metrics, which the stack's alarms and its dashboard read."""
METRICS_SERVICE = "service"
"""The dimension of every metric: who counts. Powertools calls it so.

Its value is the stack's job prefix where several functions count into one series, because an alarm reads one series. No
two stacks of an account have the same job prefix.
"""

REPLICA_LAUNCHED = "ReplicaLaunched"
RERUNS_WITHIN_HOUR = "RerunsWithinHour"
"""One value for each rerun: how many reruns its replica has had within an hour."""

_NAME = re.compile(r"[a-zA-Z0-9](-?[a-zA-Z0-9])*")
_JOB = re.compile(
    r"(?P<prefix>[a-zA-Z0-9]+)-(?P<run>[a-zA-Z0-9](?:-?[a-zA-Z0-9])*)-r(?P<rank>0|[1-9]\d{0,3})-a(?P<attempt>[1-9]\d{0,2})"
)
_DIGEST_LENGTH = 8
# 29 letters and digits that are hard to confuse; without x, which numbers the continuations of a run. Five of them make
# it nearly certain that a hundred runs launched within one second get different names.
_MARK_CHARACTERS = "0123456789abcdefghjkmnpqrstvwyz"
_MARK_LENGTH = 5
# Much longer than the clocks of two services differ, and much shorter than the 90 days after which a name is free.
_CLOCKS_DIFFER = timedelta(days=1)


@dataclass(frozen=True)
class JobName:
    """The parts of a training job's name."""

    prefix: str
    run: str
    rank: int
    attempt: int

    def __str__(self) -> str:
        return f"{self.prefix}-{self.run}-r{self.rank}-a{self.attempt}"

    @classmethod
    def parse(cls, name: str, prefix: str) -> JobName | None:
        """The parts of `name`; None where Muster does not make such names under `prefix`."""
        match = _JOB.fullmatch(name)
        if match is None or match["prefix"] != prefix or not is_run_name(match["run"]):
            return None
        return cls(prefix, match["run"], int(match["rank"]), int(match["attempt"]))


def is_run_name(name: str) -> bool:
    """Whether `name` can be a run's name (letters, digits, single hyphens, at most RUN_MAX)."""
    return len(name) <= RUN_MAX and _NAME.fullmatch(name) is not None


def run_name(execution_name: str) -> str:
    """The run's name for an execution: the execution's own name where it fits into a job's name.

    Execution names can be longer (80) and contain more kinds of characters than job names. Such a name keeps its
    readable beginning and gets a digest of the whole name, so two executions never share a run.
    """
    if is_run_name(execution_name):
        return execution_name
    return identified_run_name(execution_name, execution_name)


def execution_arn(state_machine_arn: str, execution: str) -> str:
    """The ARN of an execution of a state machine."""
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{execution}"


def identified_run_name(head: str, identity: str) -> str:
    """A run's name that begins like `head`, as far as allowed, and differs for each `identity`."""
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_LENGTH]
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", head)[: RUN_MAX - _DIGEST_LENGTH - 1].strip("-")
    return f"{readable}-{digest}" if readable else digest


def numbered_run_name(root: str, number: int) -> str:
    """The name of the run with this number in the lineage of the run `root`: the same every time."""
    name = f"{root}-x{number}"
    return name if len(name) <= RUN_MAX else identified_run_name(root, f"{root}\n{number}")


def fresh_run_name(head: str, suffix: str) -> str:
    """A run's name that begins like `head` as far as it may, and leaves room for the number of a continuation.

    `suffix` makes it unique; `time_suffix` gives one.
    """
    room = RUN_MAX - len(numbered_run_name("", CONTINUATIONS_MAX + 1)) - len(suffix) - 1
    readable = re.sub(r"[^a-zA-Z0-9]+", "-", head).strip("-")[:room].strip("-")
    return f"{readable or 'run'}-{suffix}"


def time_suffix(at: datetime, choose: Callable[[str], str]) -> str:
    """The time in UTC and a few characters, each picked from a text by `choose`: `20261121-094500-3f9c0`."""
    mark = "".join(choose(_MARK_CHARACTERS) for _ in range(_MARK_LENGTH))
    return f"{at.astimezone(UTC):%Y%m%d-%H%M%S}-{mark}"


def scheduled_run_name(schedule: str, at: str) -> str:
    """The name of the run that `schedule` starts at `at` (ISO 8601): `nightly-202605040300`, the same for each copy."""
    digits = "".join(character for character in at if character.isdigit())[:12]
    return f"{schedule}-{digits}"


def run_job_prefix(prefix: str, run: str) -> str:
    """The common beginning of the names of all jobs of a run."""
    return f"{prefix}-{run}-r"


def is_of_earlier_execution(written_at: datetime, started_at: datetime) -> bool:
    """Whether what was written at `written_at` belongs to an older execution than the one of that name that began at
    `started_at`.

    Step Functions frees a name 90 days after the end of its execution. A new one has the same ARN, and is refused
    because the documents of the run are still there: until then, and afterwards, only the times tell them apart.
    """
    return written_at < started_at - _CLOCKS_DIFFER


def function_service(job_prefix: str, name: str) -> str:
    """The value of `METRICS_SERVICE` for what the function `name` alone counts."""
    return f"{job_prefix}-{name}"
