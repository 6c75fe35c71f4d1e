"""Training jobs without a run, as a client sees them. It stops nothing."""

from __future__ import annotations

from datetime import UTC, datetime

from pydantic import Field

from muster.client.aws.cloud import Cloud
from muster.contract.document import Document
from muster.contract.run.orphans import YOUNG_SECONDS, is_own, suspects


class Diagnosis(Document):
    """Running training jobs under the stack's names whose run has no running execution."""

    orphans: tuple[str, ...] = Field(description="Muster created them; the stack's next sweep stops them")
    foreign: tuple[str, ...] = Field(description="Muster did not create them, and will not stop them")


def examine(cloud: Cloud, young_seconds: float = YOUNG_SECONDS) -> Diagnosis:
    """Look at every running job, except those younger than `young_seconds`."""
    # Jobs before executions: a run that starts in between has no job in the list.
    active = cloud.jobs.active()
    found = suspects(active, cloud.executions.live_runs(), datetime.now(UTC), young_seconds)
    own = [job for job in found if is_own(job.name, cloud.jobs.tags(job.arn))]
    foreign = [job for job in found if job not in own]
    return Diagnosis(orphans=tuple(str(job.name) for job in own), foreign=tuple(str(job.name) for job in foreign))
