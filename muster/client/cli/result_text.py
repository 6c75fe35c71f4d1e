"""A result as people read it."""

from __future__ import annotations

from collections.abc import Iterator

from muster.client.cli.view import metrics_text
from muster.contract.run.result import ReplicaResult, Result


def result_lines(result: Result) -> Iterator[str]:
    """The verdict, then one line for each replica, each with a line for every attempt that did not succeed."""
    yield f"{result.run}: {result.verdict}{f': {result.reason}' if result.reason else ''}"
    if result.parameters_identical is not None:
        yield f"parameters of the replicas: {'identical' if result.parameters_identical else 'DIFFERENT'}"
    for replica in result.replicas:
        yield _replica_line(replica)
        for attempt in replica.attempts:
            if attempt.failure_class is not None:
                why = ": ".join(part for part in (attempt.failure_class, attempt.reason) if part)
                yield f"    attempt {attempt.attempt} {attempt.status}: {why}"
        if replica.problem:
            yield f"    {replica.problem}"
        if replica.checkpoint_uri:
            yield f"    {replica.checkpoint_uri}"


def _replica_line(replica: ReplicaResult) -> str:
    attempts = f"{len(replica.attempts)} attempt{'s' if len(replica.attempts) != 1 else ''}"
    parts = [f"replica {replica.rank}: {replica.outcome}", attempts]
    if replica.round is not None:
        parts.append(f"round {replica.round}")
    if replica.metrics:
        parts.append(metrics_text(replica.metrics))
    return ", ".join(parts)
