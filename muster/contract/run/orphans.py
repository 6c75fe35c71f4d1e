"""Orphans: training jobs whose run has ended. Pure, so the sweep and `muster verify` decide in the same way."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal

from muster.contract import names
from muster.contract.aws.job_status import JobStatus
from muster.contract.names import JobName

# ListExecutions is eventually consistent: the execution of such a young job may not be listed yet.
YOUNG_SECONDS = 300
# Step Functions: the statuses of an execution that ended before it settled its run.
EARLY_ENDS: tuple[Literal["ABORTED", "FAILED", "TIMED_OUT"], ...] = ("ABORTED", "FAILED", "TIMED_OUT")
# How far back ended executions are checked for a settlement: many sweeps long, and a check costs one GET.
LOOK_BACK_SECONDS = 7 * 86_400
# 28 days of waiting for capacity (MaxPendingTimeInSeconds), 28 of running (MaxRuntimeInSeconds), and a day to end.
_LONGEST_LIFE = timedelta(days=28 + 28 + 1)


@dataclass(frozen=True)
class ActiveJob:
    """A training job that has not ended, as ListTrainingJobs shows it, under a name that Muster makes."""

    name: JobName
    arn: str
    created_at: datetime
    is_stopping: bool = False

    @classmethod
    def of(cls, summary: Mapping[str, Any], prefix: str) -> ActiveJob | None:
        """The job of a row of ListTrainingJobs, unless it has ended, or no stack with `prefix` names one so."""
        name, status = JobName.parse(summary["TrainingJobName"], prefix), summary["TrainingJobStatus"]
        if name is None or status not in {JobStatus.IN_PROGRESS, JobStatus.STOPPING}:
            return None
        return cls(name, summary["TrainingJobArn"], summary["CreationTime"], status == JobStatus.STOPPING)


def listing(contained: str, now: datetime) -> dict[str, Any]:
    """The request of ListTrainingJobs for jobs with a text in their names that may not have ended, the newest first.

    Not by status: SageMaker fills a page with jobs in any status, and then shows those in the one that is asked for. So
    a listing by status takes as many calls, for each status. A job that is older than any can live is left out.
    """
    return {"NameContains": contained, "CreationTimeAfter": now - _LONGEST_LIFE, "SortOrder": "Descending"}


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
