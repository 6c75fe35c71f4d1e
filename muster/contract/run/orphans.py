"""Orphans: training jobs whose run has ended. Pure, so the sweep and `muster verify` decide in the same way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from muster.contract import names
from muster.contract.names import JobName

# ListExecutions is eventually consistent: the execution of such a young job may not be listed yet.
YOUNG_SECONDS = 300
# Step Functions: the statuses of an execution that ended before it settled its run.
EARLY_ENDS: tuple[Literal["ABORTED", "FAILED", "TIMED_OUT"], ...] = ("ABORTED", "FAILED", "TIMED_OUT")
# How far back ended executions are checked for a settlement: many sweeps long, and a check costs one GET.
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
    """The jobs whose run has no running execution. Their tags must still show that they are Muster's (`is_own`).

    List the jobs before the executions. Otherwise the jobs of a run that has just started look like orphans.
    """
    return [
        job for job in jobs if job.name.run not in live_runs and (now - job.created_at).total_seconds() >= young_seconds
    ]


def is_own(name: JobName, tags: Mapping[str, str]) -> bool:
    """Whether the tags show that Muster created the job for the run in its name. A name alone proves nothing."""
    wanted = {names.TAG_RUN: name.run, names.TAG_RANK: str(name.rank), names.TAG_ATTEMPT: str(name.attempt)}
    return wanted.items() <= tags.items() and names.TAG_PLAN in tags
