"""The attempts of a run that failed: why, what they wrote last, and the command that shows more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from pydantic import Field

from muster.client.client_errors import ClientError
from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.backend import Backend
from muster.contract.document import Document
from muster.contract.errors import DocumentError
from muster.contract.layout import RunLayout
from muster.contract.names import run_name
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_words import failure_words, logs_command
from muster.contract.run.last_lines import LINES, Unread, is_explained_by_log, kept_lines, to_read
from muster.contract.training.ranks import show_ranks

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.contract.run.plan import Plan

_SHOWN_MAX = 20  # failed attempts in a status; the result has all of them
_DELIVERED_WITHIN, _READ_AGAIN_AFTER = timedelta(minutes=2), timedelta(seconds=10)
# Around the times of an attempt: clocks differ, and the log agent's last batch arrives after the job's end.
_MARGIN = timedelta(minutes=5)


class FailedAttempt(Document):
    """An attempt that failed."""

    rank: int
    attempt: int
    failure_class: FailureClass | None = Field(description="none where it is not known")
    words: str = Field(description="why, with the file and the line of the user's code where they are known")
    last_lines: tuple[str, ...] = Field(default=(), description="what it wrote last; of some attempts only")
    logs_command: str | None = Field(description="the command that shows all that it wrote; none without a job")

    @classmethod
    def of(cls, run: str, rank: int, attempt: Attempt) -> FailedAttempt:
        """The attempt of a replica of `run`."""
        return cls(
            rank=rank,
            attempt=attempt.attempt,
            failure_class=attempt.failure_class,
            words=failure_words(attempt),
            last_lines=attempt.last_lines,
            logs_command=logs_command(run, rank, attempt.attempt) if attempt.has_proven_job else None,
        )

    @property
    def why(self) -> str:
        """`user-code: training.py:41: ValueError: no data`."""
        return ": ".join(part for part in (self.failure_class, self.words) if part) or "failed"


def failed_attempts(run: str, attempts: Mapping[int, Sequence[Attempt]]) -> tuple[FailedAttempt, ...]:
    """The latest failure of each replica that its log may explain, in the order of their ends; the first ones of many.

    What failed first is rather the cause, and what follows its victim.
    """
    latest = {rank: [one for one in attempts[rank] if is_explained_by_log(one)][-1:] for rank in attempts}
    failed = [(one.ended_at or "~", rank, one) for rank, found in latest.items() for one in found]
    return tuple(FailedAttempt.of(run, rank, one) for _, rank, one in sorted(failed, key=lambda each: each[:2]))[
        :_SHOWN_MAX
    ]


def failure_lines(failures: Iterable[FailedAttempt]) -> Iterator[str]:
    """Those with the same words once: who they are, what the first one wrote last, the command that shows more."""
    groups: dict[tuple[str, int], list[FailedAttempt]] = {}
    for failure in failures:
        groups.setdefault((failure.why, failure.attempt), []).append(failure)
    for (why, attempt), same in groups.items():
        ranks = show_ranks(sorted(one.rank for one in same))
        yield f"replica{'' if len(same) == 1 else 's'} {ranks} attempt {attempt}: {why}"
        yield from (f"    {line}" for line in next((one.last_lines for one in same if one.last_lines), ()))
        command = next((one.logs_command for one in same if one.logs_command is not None), None)
        yield "  no log: its job never started the program" if command is None else f"  more: {command}"


class _Read(NamedTuple):
    at: datetime
    lines: tuple[str, ...]


class FailedLogs:
    """Reads what failed attempts wrote last. Without the right to read logs there are no lines."""

    def __init__(self, cloud: Cloud, execution: str) -> None:
        self._cloud = cloud
        self._run = run_name(execution)
        self._plan: Plan | None = None
        self._read: dict[Unread, _Read] = {}

    def complete(self, attempts: Mapping[int, Sequence[Attempt]], most: int) -> dict[int, tuple[Attempt, ...]]:
        """The attempts with the last lines of at most so many of those that failed, and have none yet."""
        with suppress(ClientError, DocumentError):  # the lines explain a failure, and nothing depends on them
            for unread in to_read(attempts, most):
                known = next(one for one in attempts[unread.rank] if one.attempt == unread.attempt)
                if known.ended_at is not None and self._is_due(unread, timestamps.parse(known.ended_at)):
                    self._read[unread] = _Read(datetime.now(UTC), self._lines(unread, known, known.ended_at))
        lines = {(unread.rank, unread.attempt): read.lines for unread, read in self._read.items()}
        return {
            rank: tuple(
                one.model_copy(update={"last_lines": lines.get((rank, one.attempt), one.last_lines)}) for one in found
            )
            for rank, found in attempts.items()
        }

    def _is_due(self, unread: Unread, ended: datetime) -> bool:
        """Whether the log is to be read: once all of it must have arrived, only once."""
        read = self._read.get(unread)
        if read is None:
            return True
        return read.at - ended < _DELIVERED_WITHIN and datetime.now(UTC) - read.at > _READ_AGAIN_AFTER

    def _lines(self, unread: Unread, attempt: Attempt, ended_at: str) -> tuple[str, ...]:
        # Of a run without failures nothing is read, and none of the modules for it is needed.
        from muster.client.backend_offers import client_backends  # noqa: PLC0415
        from muster.client.logs.log_lines import LogQuery  # noqa: PLC0415
        from muster.client.logs.log_reader import LogReader  # noqa: PLC0415

        ended = timestamps.parse(ended_at)
        began = timestamps.parse(attempt.launched_at) if attempt.launched_at else ended - timedelta(days=1)
        query = LogQuery(
            prefix=self._cloud.stack.job_prefix,
            run=self._run,
            ranks={unread.rank},
            attempts={unread.attempt},
            since=began - _MARGIN,
        )
        place, others = attempt.cluster, None
        if place is not None and (backend := client_backends().get(Backend.HYPERPOD)) is not None:
            others = backend.attempt_logs(self._cloud, self._run, unread.rank, place.cluster)
        written = LogReader(self._cloud, query, others).last_lines(LINES, ended + _MARGIN)
        texts = (
            line.message if line.process is None else f"[{line.rank}.{line.process}] {line.message}" for line in written
        )
        return kept_lines(texts, self._environment(unread.rank))

    def _environment(self, rank: int) -> Mapping[str, str]:
        """The environment of a replica, whose values no line may show."""
        from muster.contract.run.plan import Plan  # noqa: PLC0415

        if self._plan is None:
            key = RunLayout(self._run).plan
            self._plan = Plan.from_json(self._cloud.objects.read(key) or b"", key)
        return self._plan.spec.of_rank(rank).environment
