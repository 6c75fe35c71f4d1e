"""Which training jobs have outlived their run. Pure: the control plane's sweep and `muster doctor` decide alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from muster.contract import names
from muster.contract.names import JobName

# ListExecutions is eventually consistent: the execution of a job this young may not be listed yet.
YOUNG_SECONDS = 300
# Step Functions: how an execution ends that did not settle its run by itself.
EARLY_ENDS: tuple[Literal["ABORTED", "FAILED", "TIMED_OUT"], ...] = ("ABORTED", "FAILED", "TIMED_OUT")
# How far back ended executions are checked for a settlement. Several sweeps fit into it, and a look costs one GET.
LOOK_BACK_SECONDS = 7 * 86_400


@dataclass(frozen=True)
class ActiveJob:
    """A training job that has not ended, as ListTrainingJobs shows it, under a name that Muster makes."""

    name: JobName
    arn: str
    created_at: datetime


def suspects(
    jobs: Iterable[ActiveJob], live_runs: Collection[str], now: datetime, young_seconds: float
) -> list[ActiveJob]:
    """The jobs whose run has no running execution; whose they are, their tags tell.

    The jobs must have been listed before the executions, or those of a run that has just begun would be suspected.
    """
    return [
        job for job in jobs if job.name.run not in live_runs and (now - job.created_at).total_seconds() >= young_seconds
    ]


def is_own(name: JobName, tags: Mapping[str, str]) -> bool:
    """Whether the tags say that Muster made the job for what its name says. Names alone prove nothing."""
    wanted = {names.TAG_RUN: name.run, names.TAG_RANK: str(name.rank), names.TAG_ATTEMPT: str(name.attempt)}
    return wanted.items() <= tags.items() and names.TAG_PLAN in tags
