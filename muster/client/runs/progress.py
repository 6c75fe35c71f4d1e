"""A run's progress, read from its newest commit. Replicas write the commits, so one that cannot be read is left out."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from itertools import islice, takewhile

from muster.client.aws.cloud import Cloud
from muster.client.runs.run_status import Progress
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.run.commit import COMMITS_LISTED_MAX, Commit, commit_bytes_max, commit_round, parse_commit
from muster.contract.run.finding import (
    FINDING_BYTES_MAX,
    FINDINGS_READ_MAX,
    FindingDocument,
    is_finding,
)
from muster.report.time_split import measured

_PARALLEL = 8
# How many commits one look asks for while none can be read: so many of the newest, and so many of the newest that
# follow the last known one without a gap.
_TRIES = 4


class ProgressReader:
    """Reads each commit at most once: a commit never changes, and its key sorts by its round."""

    def __init__(self, cloud: Cloud, layout: RunLayout, replicas: int) -> None:
        self._cloud = cloud
        self._prefix = layout.commits
        self._of_findings = layout.findings
        self._replicas = replicas
        self._most = commit_bytes_max(replicas)
        self._last = layout.commits
        self._progress = Progress()
        self._unread: list[str] = []
        self._newest: dict[str, Commit] = {}
        self._unreadable: dict[str, str] = {}
        self._findings: dict[str, FindingDocument | None] = {}

    def read(self) -> Progress:
        """The progress up to the newest commit that can be read: one LIST, and one GET when there is a new commit.

        The LIST shows findings, too: one GET for each new one. Where new commits cannot be read, a few more are asked
        for; the others are left for the next look.
        """
        listed = list(self._keys_after(self._last))
        keys = [key for key in listed if self._round_of(key) is not None and key not in self._unreadable]
        self._read_findings(listed)
        for key in _candidates(keys, self._round_of(self._last)):
            commit = self._commit(key)
            if commit is not None:
                self._progress = advance(self._progress, commit, self._replicas)
                self._last, self._newest = key, {key: commit}
                self._unread += keys[: keys.index(key) + 1]
                break
        findings = tuple(found for found in self._findings.values() if found is not None)
        return replace(self._progress, unreadable=tuple(self._unreadable.values()), findings=findings)

    def commits(self) -> Iterator[Commit]:
        """The commits that `read` has seen since the last call, in order: one GET for each but the newest.

        Of very many some are left out, and those that cannot be read.
        """
        # A status needs the newest commit alone, and not the modules of the page.
        from muster.report.rounds import chosen, rounds_max  # noqa: PLC0415

        keys = [key for key in chosen(self._unread, rounds_max(self._replicas)) if key not in self._unreadable]
        self._unread = []
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            # A few at a time: all of them could fill the memory.
            for begin in range(0, len(keys), _PARALLEL):
                found = pool.map(self._commit, keys[begin : begin + _PARALLEL])
                yield from (commit for commit in found if commit is not None)

    @property
    def unreadable(self) -> int:
        """How many commits were left out because they cannot be read."""
        return len(self._unreadable)

    def rounds(self) -> list[tuple[int, datetime]]:
        """Every round whose commit still exists, and when it was made: one LIST for each 1,000."""
        items = self._cloud.objects.items_after(self._prefix, self._prefix)
        found = ((self._round_of(item.key), item.at) for item in islice(items, COMMITS_LISTED_MAX))
        return [(round_, at) for round_, at in found if round_ is not None]

    def findings(self) -> list[tuple[FindingDocument, datetime]]:
        """The findings, and when each was stored: one LIST, and one GET for each new one."""
        items = list(islice(self._cloud.objects.items_after(self._of_findings, self._of_findings), FINDINGS_READ_MAX))
        self._read_findings([item.key for item in items])
        found = ((self._findings.get(item.key), item.at) for item in items)
        return [(finding, at) for finding, at in found if finding is not None]

    def _read_findings(self, keys: list[str]) -> None:
        """Read those of `keys` that name findings. One that cannot be read is left out: its replica's log has it."""
        new = [key for key in keys if is_finding(key.removeprefix(self._prefix)) and key not in self._findings]
        for key in new[: FINDINGS_READ_MAX - len(self._findings)]:
            uri = s3_uri(self._cloud.stack.bucket, key)
            try:
                body = self._cloud.objects.read_bounded(key, FINDING_BYTES_MAX) or b""
                self._findings[key] = FindingDocument.from_json(body, uri)
            except DocumentError:
                self._findings[key] = None

    def _keys_after(self, last: str) -> Iterator[str]:
        return islice(self._cloud.objects.keys_after(self._prefix, last), COMMITS_LISTED_MAX)

    def _round_of(self, key: str) -> int | None:
        return commit_round(key.removeprefix(self._prefix))

    def _commit(self, key: str) -> Commit | None:
        if key in self._newest:
            return self._newest[key]
        uri = s3_uri(self._cloud.stack.bucket, key)
        try:
            return parse_commit(self._cloud.objects.read_bounded(key, self._most) or b"", uri)
        except DocumentError as error:
            self._unreadable[key] = f"{uri}: {error.detail}"
            return None


def _candidates(keys: list[str], last: int | None) -> list[str]:
    """The commits to try, one after the other, until one can be read. `last` is the last known round.

    Commits have no gaps, so a key after a gap was not written by the protocol.
    """
    first = commit_round(keys[0].rpartition("/")[2]) if keys else None
    expected = (first or 1) if last is None else last + 1
    numbered = ((commit_round(key.rpartition("/")[2]), key) for key in keys)
    gapless = takewhile(lambda item: item[1][0] == item[0], enumerate(numbered, start=expected))
    connected = [key for _, (_, key) in gapless]
    return list(dict.fromkeys([*reversed(keys[-_TRIES:]), *reversed(connected[-_TRIES:])]))


def advance(progress: Progress, commit: Commit, replicas: int) -> Progress:
    """`progress` of a run of so many replicas after `commit`. Those that are not in it keep their own latest round."""
    return Progress(
        round=commit.round,
        excluded=commit.excluded_total,
        rounds={**progress.rounds, **{member.rank: commit.round for member in commit.members}},
        metrics={**progress.metrics, **{member.rank: member.metrics for member in commit.members}},
        finished=commit.finished,
        committed_at=commit.committed_at,
        unit=commit.unit,
        expected_rounds=commit.expected_rounds,
        samples=commit.samples,
        pace=commit.pace,
        time_use=measured(commit, replicas),
    )
