"""What only DescribeTrainingJob says of jobs: asked for once, and again when a job has changed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from muster.client.aws.cloud import Cloud
from muster.client.aws.reported import Job, JobDetail

_PARALLEL = 8


class JobDetails:
    """The details of one run's jobs, as far as they were asked for."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._known: dict[str, tuple[Job, JobDetail]] = {}

    def learn(self, jobs: Iterable[Job], most: int | None = None) -> None:
        """Ask for those of `jobs` of which nothing is known as they are now; for the first `most` of these."""
        news = [job for job in jobs if not self._knows(job)][:most]
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            details = pool.map(lambda job: self._cloud.describe_job(str(job.name)), news)
            self._known.update({str(job.name): (job, detail) for job, detail in zip(news, details, strict=True)})

    def get(self, job: Job) -> JobDetail | None:
        """What was told of the job last."""
        known = self._known.get(str(job.name))
        return None if known is None else known[1]

    def items(self) -> Iterator[tuple[str, JobDetail]]:
        """Each job's name and what was told of it last."""
        return ((name, detail) for name, (_, detail) in self._known.items())

    def _knows(self, job: Job) -> bool:
        known = self._known.get(str(job.name))
        return known is not None and known[0] == job
