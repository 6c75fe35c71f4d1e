"""What follows a fault: restarted processes, a restarted job, or its failure. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum


class Remedy(Enum):
    """What the operator does about a fault."""

    PROCESSES = "PLR"
    """The workers of all pods start again; pods that are lost are replaced."""
    JOB = "JLR"
    """All pods are replaced."""
    FAIL = ""
    """The job has failed."""


@dataclass(frozen=True)
class RestartPolicy:
    """jobMaxRetryCount and restartPolicy. None: no limit."""

    max_retries: int | None = None
    period_seconds: int | None = None
    before_full: int | None = None
    max_full: int | None = None
    avoid: int = 0
    snooze_seconds: int = 0


@dataclass(frozen=True)
class RestartCounts:
    """restartCount and restartStatus."""

    total: int = 0
    period: int = 0
    full: int = 0
    """Full restarts in the period."""
    since_full: int = 0
    """Restarts of processes in the period, since the last full restart."""


@dataclass(frozen=True)
class Verdict:
    """What follows, the counts after it, and which limit was reached."""

    remedy: Remedy
    counts: RestartCounts
    limit: str = ""


def judge(policy: RestartPolicy, counts: RestartCounts, running_seconds: float) -> Verdict:
    """What follows a fault of a job that was started `running_seconds` ago."""
    period = int(running_seconds // policy.period_seconds) if policy.period_seconds else 0
    if period > counts.period:
        counts = replace(counts, period=period, full=0, since_full=0)
    if policy.max_retries is not None and counts.total >= policy.max_retries:
        return Verdict(Remedy.FAIL, counts, f"jobMaxRetryCount {policy.max_retries}")
    if policy.before_full is not None and counts.since_full >= policy.before_full:
        if policy.max_full is not None and counts.full >= policy.max_full:
            return Verdict(Remedy.FAIL, counts, f"maxFullJobRestarts {policy.max_full}")
        return Verdict(Remedy.JOB, replace(counts, total=counts.total + 1, full=counts.full + 1, since_full=0))
    return Verdict(Remedy.PROCESSES, replace(counts, total=counts.total + 1, since_full=counts.since_full + 1))


def to_avoid(policy: RestartPolicy, offenders: Sequence[str]) -> list[str]:
    """The instances that a restarted job keeps away from: those of several faults, the worst first."""
    several = [(count, name) for name, count in Counter(offenders).items() if count > 1]
    return [name for _, name in sorted(several, key=lambda item: (-item[0], item[1]))][: policy.avoid]
