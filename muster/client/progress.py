"""How far a run has come, read from its newest commit."""

from __future__ import annotations

from pydantic import BaseModel, Field, ValidationError

from muster.client.cloud import Cloud
from muster.client.status import Progress
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout, s3_uri


class _Member(BaseModel):
    rank: int
    metrics: dict[str, float] = Field(default_factory=dict)


class _Commit(BaseModel):
    """What a client reads of a commit; a newer replica may write more."""

    round: int
    members: list[_Member]


class ProgressReader:
    """Reads each commit at most once: a commit never changes, and its key sorts by its round."""

    def __init__(self, cloud: Cloud, layout: RunLayout) -> None:
        self._cloud = cloud
        self._prefix = layout.commits
        self._last = layout.commits
        self._progress = Progress()

    def read(self) -> Progress:
        """What the commits up to the newest one tell: one LIST, and one GET when there is a new commit."""
        newest = max(self._cloud.keys_after(self._prefix, self._last), default=None)
        body = None if newest is None else self._cloud.read(newest)
        if newest is not None and body is not None:
            self._progress = advance(self._progress, body, s3_uri(self._cloud.stack.bucket, newest))
            self._last = newest
        return self._progress


def advance(progress: Progress, commit: bytes, uri: str) -> Progress:
    """`progress` after the commit with this body. Replicas that are not in it keep their own latest round.

    Raises:
        DocumentError: it is not a commit.
    """
    try:
        latest = _Commit.model_validate_json(commit)
    except ValidationError as error:
        raise DocumentError(uri, str(error.errors(include_url=False)[0]["msg"])) from None
    return Progress(
        round=latest.round,
        rounds={**progress.rounds, **{member.rank: latest.round for member in latest.members}},
        metrics={**progress.metrics, **{member.rank: member.metrics for member in latest.members}},
    )
