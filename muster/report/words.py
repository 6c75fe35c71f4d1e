"""What the page says in words: the verdict, and the summary below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from muster.report.cost import seconds_between
from muster.report.page_model import Fact, ReplicaView, RoundsView

_BEGINNINGS = {
    "running": "The run is going on",
    "stopping": "The run is being stopped; its jobs may still save their work",
    "succeeded": "The run succeeded",
    "failed": "The run failed",
    "stopped": "The run was stopped",
}


def verdict(
    state: str, reason: str, replicas: Sequence[ReplicaView], rounds: RoundsView, identical: bool | None
) -> str:
    """The run in one to three sentences."""
    beginning = _BEGINNINGS.get(state, f"The run is {state}")
    if not reason and state == "running":
        reason = ", ".join(
            [f"{_at_work(replicas)} of {len(replicas)} replicas have a job", *_waits(replicas), _rounds(rounds)]
        )
    sentences = [f"{beginning}: {reason.rstrip('.')}." if reason else f"{beginning}."]
    reruns = rerun_causes(replicas)
    if reruns:
        causes = ", ".join(f"{cause} ×{count}" if count > 1 else cause for cause, count in reruns.most_common())
        total = reruns.total()
        sentences.append(f"{total} attempt{'s were' if total > 1 else ' was'} rerun ({causes}).")
    if identical is not None:
        sentences.append(
            "All replicas hold the same parameters." if identical else "The replicas do not hold the same parameters."
        )
    return " ".join(sentences)


def _at_work(replicas: Sequence[ReplicaView]) -> int:
    newest = (replica.attempts[-1] for replica in replicas if replica.attempts)
    return sum(attempt.was_created and attempt.ended_at is None for attempt in newest)


def _waits(replicas: Sequence[ReplicaView]) -> Iterator[str]:
    """Of what there is not enough for how many replicas."""
    newest = (replica.attempts[-1] for replica in replicas if replica.attempts)
    waits = Counter(str(one.failure_class) for one in newest if not one.was_created and one.failure_class is not None)
    for cause, count in waits.most_common():
        yield f"{count} wait{'s' if count == 1 else ''} for {cause}"


def rerun_causes(replicas: Sequence[ReplicaView]) -> Counter[str]:
    """Why attempts were followed by another one, and how often."""
    ended = (attempt for replica in replicas for attempt in replica.attempts[:-1])
    return Counter(str(attempt.failure_class or "unknown") for attempt in ended)


def facts(
    replicas: Sequence[ReplicaView],
    rounds: RoundsView,
    *,
    started_at: str,
    until: str,
    prices: str,
    deadline_seconds: int | None,
    ceiling_usd: float | None,
    parent: str | None,
    continued_by: str | None,
) -> Iterator[Fact]:
    """The summary, in the order in which it is read."""
    states = Counter(replica.state for replica in replicas)
    yield Fact(label="Replicas", value=str(len(replicas)), note=", ".join(f"{n} {s}" for s, n in states.most_common()))
    yield Fact(label="Rounds", value=str(rounds.total), note="committed")
    limit = "" if deadline_seconds is None else f"of at most {duration(deadline_seconds)}"
    yield Fact(label="Time", value=duration(seconds_between(started_at, until)), note=limit)
    yield Fact(label="Reruns", value=str(rerun_causes(replicas).total()))
    costs = [(attempt, usd) for one in replicas for attempt, usd in zip(one.attempts, one.usd, strict=True)]
    unpriced = sorted({attempt.instance_type or "an unknown type" for attempt, usd in costs if usd is None})
    without = f"; without {', '.join(unpriced)}, which the table does not have" if unpriced else ""
    ceiling = "" if ceiling_usd is None else f"; no reruns after {_dollars(ceiling_usd)}"
    yield Fact(
        label="Cost so far",
        value=f"≤ {_dollars(sum(usd for _, usd in costs if usd is not None))}",
        note=f"instances, {prices}{without}{ceiling}",
    )
    shares = [
        1 - blocked / seconds
        for blocked, seconds in zip(rounds.blocked, rounds.seconds, strict=True)
        if blocked is not None and seconds
    ]
    if shares:
        yield Fact(label="Utilisation", value=f"{sum(shares) / len(shares):.0%}", note="of a round's time is training")
    excluded = sum(rounds.excluded)
    if excluded:
        yield Fact(label="Excluded", value=str(excluded), note="contributions were unusable")
    if parent:
        yield Fact(label="Continues", value=parent)
    if continued_by:
        yield Fact(label="Continued by", value=continued_by)


def duration(seconds: float) -> str:
    """`3 d 4 h`, `2 h 5 min`, `1 min 7 s` or `7.5 s`."""
    if seconds < 60:
        return f"{max(seconds, 0):.3g} s"
    units = [("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)]
    rest = int(seconds)
    parts: list[tuple[int, str]] = []
    for name, size in units:
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append((count, name))
    return " ".join(f"{count} {name}" for count, name in parts[:2] if count)


def _rounds(rounds: RoundsView) -> str:
    return f"{rounds.total} rounds" if rounds.total != 1 else "1 round"


def _dollars(usd: float) -> str:
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"
