"""A run's progress, read from its newest commit."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import datetime

from muster.client.aws.cloud import Cloud
from muster.client.runs.run_status import Progress
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.run.commit import Commit
from muster.report.rounds import chosen

_PARALLEL = 8
_ROUND_DIGITS = 8  # a commit's key begins with its round


class ProgressReader:
    """Reads each commit at most once: a commit never changes, and its key sorts by its round."""

    def __init__(self, cloud: Cloud, layout: RunLayout) -> None:
        self._cloud = cloud
        self._prefix = layout.commits
        self._last = layout.commits
        self._progress = Progress()
        self._unread: list[str] = []
        self._newest: dict[str, Commit] = {}

    def read(self) -> Progress:
        """The progress up to the newest commit: one LIST, and one GET when there is a new commit.

        Raises:
            DocumentError: the newest commit cannot be read.
        """
        keys = list(self._cloud.objects.keys_after(self._prefix, self._last))
        newest = keys[-1] if keys else None
        body = None if newest is None else self._cloud.objects.read(newest)
        if newest is not None and body is not None:
            commit = Commit.from_json(body, s3_uri(self._cloud.stack.bucket, newest))
            self._progress = advance(self._progress, commit)
            self._last, self._newest = newest, {newest: commit}
            self._unread += keys
        return self._progress

    def commits(self) -> list[Commit]:
        """The commits that `read` has seen since the last call, in order: one GET for each but the newest.

        Of very many some are left out, and those that cannot be read.
        """
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            found = [commit for commit in pool.map(self._commit, chosen(self._unread)) if commit is not None]
        self._unread = []
        return found

    def _commit(self, key: str) -> Commit | None:
        if key in self._newest:
            return self._newest[key]
        try:
            return Commit.from_json(self._cloud.objects.read(key) or b"", key)
        except DocumentError:
            return None

    def rounds(self) -> list[tuple[int, datetime]]:
        """Every round whose commit still exists, and when it was made: one LIST for each 1,000."""
        # A later revision of a commit sorts behind it.
        times: dict[int, datetime] = {}
        for item in self._cloud.objects.items_after(self._prefix, self._prefix):
            times.setdefault(int(item.key.removeprefix(self._prefix)[:_ROUND_DIGITS]), item.at)
        return list(times.items())


def advance(progress: Progress, commit: Commit) -> Progress:
    """`progress` after `commit`. Replicas that are not in it keep their own latest round."""
    return Progress(
        round=commit.round,
        excluded=commit.excluded_total,
        rounds={**progress.rounds, **{member.rank: commit.round for member in commit.members}},
        metrics={**progress.metrics, **{member.rank: member.metrics for member in commit.members}},
        finished=commit.finished,
    )
