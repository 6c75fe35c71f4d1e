"""What has outlived its run, seen with the eyes of a client: it looks, and stops nothing."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from muster.client.aws.cloud import Cloud
from muster.contract.run.orphans import YOUNG_SECONDS, is_own, suspects


@dataclass(frozen=True)
class Diagnosis:
    """Training jobs under the stack's names whose run has no running execution."""

    orphans: tuple[str, ...]
    """Muster made them: the stack's next sweep stops them."""
    foreign: tuple[str, ...]
    """Somebody else made them: nobody touches them."""


def examine(cloud: Cloud, young_seconds: float = YOUNG_SECONDS) -> Diagnosis:
    """Look at every running job; one that is younger than `young_seconds` is not judged."""
    # Jobs before executions: a run that begins in between has no job in the list.
    active = cloud.active_jobs()
    found = suspects(active, cloud.live_runs(), datetime.now(UTC), young_seconds)
    own = [job for job in found if is_own(job.name, cloud.tags(job.arn))]
    foreign = [job for job in found if job not in own]
    return Diagnosis(tuple(str(job.name) for job in own), tuple(str(job.name) for job in foreign))
