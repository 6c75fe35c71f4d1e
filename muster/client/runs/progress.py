"""A run's progress, read from its newest commit."""

from __future__ import annotations

from datetime import datetime

from muster.client.aws.cloud import Cloud
from muster.client.runs.run_status import Progress
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.run.commit import Commit

_ROUND_DIGITS = 8  # a commit's key begins with its round


class ProgressReader:
    """Reads each commit at most once: a commit never changes, and its key sorts by its round."""

    def __init__(self, cloud: Cloud, layout: RunLayout) -> None:
        self._cloud = cloud
        self._prefix = layout.commits
        self._last = layout.commits
        self._progress = Progress()

    def read(self) -> Progress:
        """The progress up to the newest commit: one LIST, and one GET when there is a new commit.

        Raises:
            DocumentError: the newest commit cannot be read.
        """
        newest = max(self._cloud.objects.keys_after(self._prefix, self._last), default=None)
        body = None if newest is None else self._cloud.objects.read(newest)
        if newest is not None and body is not None:
            commit = Commit.from_json(body, s3_uri(self._cloud.stack.bucket, newest))
            self._progress = advance(self._progress, commit)
            self._last = newest
        return self._progress

    def rounds(self) -> list[tuple[int, datetime]]:
        """Every round whose commit still exists, and when it was made: one LIST for each 1,000."""
        # A later revision of a commit sorts behind it.
        times: dict[int, datetime] = {}
        for key, at in self._cloud.objects.items_after(self._prefix, self._prefix):
            times.setdefault(int(key.removeprefix(self._prefix)[:_ROUND_DIGITS]), at)
        return list(times.items())


def advance(progress: Progress, commit: Commit) -> Progress:
    """`progress` after `commit`. Replicas that are not in it keep their own latest round."""
    return Progress(
        round=commit.round,
        excluded=commit.excluded_total,
        rounds={**progress.rounds, **{member.rank: commit.round for member in commit.members}},
        metrics={**progress.metrics, **{member.rank: member.metrics for member in commit.members}},
    )
