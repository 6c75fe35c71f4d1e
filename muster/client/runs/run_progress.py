"""A run's progress, read from its newest commit. Replicas write the commits, so one that cannot be read is left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from itertools import islice, takewhile

from muster.client.aws.cloud import Cloud
from muster.client.runs.run_status import Progress
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout, s3_uri
from muster.contract.names import APART_MAX
from muster.contract.run.commit import COMMITS_LISTED_MAX, Commit, commit_bytes_max, commit_round, parse_commit
from muster.contract.run.finding import (
    FINDING_BYTES_MAX,
    FINDINGS_READ_MAX,
    FindingDocument,
    findings_of,
    is_finding,
)
from muster.contract.run.round_values import DEFAULT_UNIT
from muster.report.time_split import measured, summed

_PARALLEL = 8
# How many commits one look asks for while none can be read: so many of the newest, and so many of the newest that
# follow the last known one without a gap.
_TRIES = 4


class ProgressReader:
    """Reads each commit at most once: a commit never changes, and its key sorts by its round."""

    def __init__(self, cloud: Cloud, run: str, layout: RunLayout, replicas: int) -> None:
        """Of `run`, at `layout`, which it shares with its lineage."""
        self._cloud = cloud
        self._prefix = layout.commits
        self._of_findings = f"{layout.commits}{findings_of(run)}"
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

        The first look reads the commit before it, too. The LIST shows findings: one GET for each new one. Where new
        commits cannot be read, a few more are asked for; the others are left for the next look.
        """
        listed = list(self._keys_after(self._last))
        keys = [key for key in listed if self._round_of(key) is not None and key not in self._unreadable]
        self._read_findings(listed)
        for key in _candidates(keys, self._round_of(self._last)):
            commit = self._commit(key)
            if commit is not None:
                place, known = keys.index(key), self._progress.newest
                before = self._commit(keys[place - 1]) if place and known is None else None
                self._progress = replace(advance(self._progress, commit, self._replicas), earlier=before or known)
                self._last, self._newest = key, {key: commit}
                if before is not None:
                    self._newest[keys[place - 1]] = before
                self._unread += keys[: place + 1]
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
        """Read those of `keys` that name findings of the run. One that cannot be read is in its replica's log alone."""
        own = (key for key in keys if key.startswith(self._of_findings) and is_finding(key.removeprefix(self._prefix)))
        new = [key for key in own if key not in self._findings]
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


class SweepReader:
    """Reads the rounds of each replica of a sweep, as `ProgressReader` does those of a run."""

    def __init__(self, cloud: Cloud, run: str, layout: RunLayout, replicas: int) -> None:
        ranks = range(min(replicas, APART_MAX))
        self._readers = {rank: ProgressReader(cloud, run, layout.of_rank(rank), 1) for rank in ranks}

    def read(self) -> Progress:
        """The progress of all replicas: one LIST for each, and one GET for each that has a new commit."""
        with ThreadPoolExecutor(max_workers=_PARALLEL) as pool:
            found = list(pool.map(lambda item: _of_rank(item[1].read(), item[0]), self._readers.items()))
        return together(found)

    def commits(self) -> Iterator[Commit]:
        """The commits that `read` has seen since the last call, rank by rank."""
        for rank, reader in self._readers.items():
            yield from (commit.of_rank(rank) for commit in reader.commits())

    @property
    def unreadable(self) -> int:
        """How many commits were left out because they cannot be read."""
        return sum(reader.unreadable for reader in self._readers.values())

    def rounds(self) -> list[tuple[int, datetime]]:
        """No round is one of the run."""
        return []

    def findings(self) -> list[tuple[FindingDocument, datetime]]:
        """The findings of all replicas, and when each was stored."""
        found = [(_with_rank(item, rank), at) for rank, one in self._readers.items() for item, at in one.findings()]
        return sorted(found, key=lambda item: item[1])


def _of_rank(progress: Progress, rank: int) -> Progress:
    """The progress of a replica that trains by itself, in which it is rank 0, with its rank in the run."""
    return replace(
        progress,
        rounds=dict.fromkeys([rank][: len(progress.rounds)], progress.rounds.get(0, 0)),
        metrics=dict.fromkeys([rank][: len(progress.metrics)], progress.metrics.get(0, {})),
        findings=tuple(_with_rank(item, rank) for item in progress.findings),
    )


def _with_rank(document: FindingDocument, rank: int) -> FindingDocument:
    return document.model_copy(update={"finding": document.finding.model_copy(update={"rank": rank})})


def together(found: Sequence[Progress]) -> Progress:
    """The progress of a run whose replicas train apart: there is no round of the run, and no pace."""
    counted = [one.samples for one in found if one.samples is not None]
    units = [one.unit for one in found if one.round is not None]
    return Progress(
        rounds={rank: round_ for one in found for rank, round_ in one.rounds.items()},
        metrics={rank: metrics for one in found for rank, metrics in one.metrics.items()},
        findings=tuple(item for one in found for item in one.findings),
        unreadable=tuple(item for one in found for item in one.unreadable),
        committed_at=max((one.committed_at for one in found if one.committed_at is not None), default=None),
        unit=next(iter(units), DEFAULT_UNIT),
        expected_rounds=max((one.expected_rounds for one in found if one.expected_rounds is not None), default=None),
        samples=sum(counted) if counted else None,
        time_use=summed(one.time_use for one in found),
    )


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


def _identical(commit: Commit) -> tuple[int, ...]:
    """The ranks whose values are also another's: they have trained on the same data with the same seed."""
    values = Counter((member.checksum, member.parts) for member in commit.members)
    return tuple(sorted(one.rank for one in commit.members if values[one.checksum, one.parts] > 1))


def advance(progress: Progress, commit: Commit, replicas: int) -> Progress:
    """`progress` of a run of so many replicas after `commit`. Those that are not in it keep their own latest round."""
    return Progress(
        round=commit.round,
        excluded=commit.excluded_total,
        rounds={**progress.rounds, **{member.rank: commit.round for member in commit.members}},
        metrics={**progress.metrics, **{member.rank: member.metrics for member in commit.members}},
        identical=_identical(commit),
        finished=commit.finished,
        committed_at=commit.committed_at,
        unit=commit.unit,
        expected_rounds=commit.expected_rounds,
        samples=commit.samples,
        data=commit.data_shown,
        pace=commit.pace,
        time_use=measured(commit, replicas),
        newest=commit,
    )
