"""Answers as lines of text, for `output.print_lines`: they may hold control characters that a container wrote."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from muster.client.runs.failed_attempt import FailedAttempt
from muster.client.runs.status_text import final_metrics, metrics_text, model_line, read_back_lines
from muster.contract.run.last_lines import is_explained_by_log
from muster.contract.run.result import ReplicaOutcome
from muster.contract.run.run_cost import saving
from muster.contract.spec.sweep_values import in_order, short_names, value_text
from muster.contract.training.ranks import show_ranks
from muster.report.read_back import Attempts, kept_pools, latest_details, metric_words
from muster.report.seat_words import outcomes_text

if TYPE_CHECKING:
    from muster.contract.aws.prices import PriceTable
    from muster.contract.run.result import ReplicaResult, Result


def result_lines(result: Result, prices: PriceTable) -> Iterator[str]:
    """The verdict, then a line for each replica, each with a line for every attempt that did not succeed.

    `prices` are those of the run.
    """
    yield f"{result.run}: {result.verdict}{f': {result.reason}' if result.reason else ''}"
    if result.parameters_identical is not None:
        yield f"parameters of the replicas: {'identical' if result.parameters_identical else 'DIFFERENT'}"
    if result.model is not None:
        yield model_line(result.run, result.model)
        yield f"    {result.model.uri}"
    elif result.model_problem is not None:
        yield f"no model: {result.model_problem}"
    parked = [replica.rank for replica in result.replicas if replica.outcome is ReplicaOutcome.PARKED]
    if parked:
        yield f"replicas: {outcomes_text(replica.outcome for replica in result.replicas)}"
    shown: set[str] = set()
    for replica in result.replicas:
        if replica.outcome is ReplicaOutcome.PARKED:
            continue
        yield _replica_line(replica)
        yield from _failed_attempts(result.run, replica, shown)
        if replica.problem:
            yield f"    {replica.problem}"
        if replica.finished_early:
            yield f"    {replica.finished_early}"
        if replica.checkpoint_uri and (result.model is None or replica.checkpoint_uri != result.model.uri):
            yield f"    {replica.checkpoint_uri}"
    if parked:
        yield f"rank{'s' if len(parked) > 1 else ''} {show_ranks(parked)}: parked"
    yield from _read_back_lines({replica.rank: replica.attempts for replica in result.replicas}, prices)


def _failed_attempts(run: str, replica: ReplicaResult, shown: set[str]) -> Iterator[str]:
    """A line for each attempt that failed, the last lines of those whose reason is new, and the command for the rest.

    `shown` are the reasons of which the last lines were shown before.
    """
    more = None
    for attempt in replica.attempts:
        if attempt.failure_class is None:
            continue
        failed = FailedAttempt.of(run, replica.rank, attempt)
        why = ": ".join(part for part in (attempt.failure_class, failed.words) if part)
        yield f"    attempt {attempt.attempt} {attempt.status}: {why}"
        if failed.words not in shown:
            yield from (f"        {line}" for line in failed.last_lines)
            shown.add(failed.words)
        more = failed.logs_command if is_explained_by_log(attempt) else more
    if more is not None:
        yield f"    more: {more}"


def _read_back_lines(attempts: Attempts, prices: PriceTable) -> Iterator[str]:
    """What SageMaker has reported beside the statuses of the jobs."""
    details = latest_details(attempts)
    if metrics := metric_words(details):
        yield f"final metrics that SageMaker read: {metrics}"
    saved = saving((one for found in attempts.values() for one in found), prices.usd_per_hour)
    yield from read_back_lines(details, saved, kept_pools(attempts, datetime.now(UTC), prices))


def _replica_line(replica: ReplicaResult) -> str:
    attempts = f"{len(replica.attempts)} attempt{'s' if len(replica.attempts) != 1 else ''}"
    names = short_names(replica.values)
    values = [f"{names[name]} {value_text(replica.values[name])}" for name in in_order(replica.values)]
    parts = [f"replica {replica.rank}: {replica.outcome}", *values, attempts]
    place = next((one.cluster.cluster for one in reversed(replica.attempts) if one.cluster is not None), None)
    if place is not None:
        held = "" if replica.instance_seconds is None else f" for {replica.instance_seconds / 3_600:.3g} instance hours"
        parts.append(f"on {place}{held}")
    if replica.round is not None:
        parts.append(f"round {replica.round}")
    details = latest_details({replica.rank: replica.attempts}).get(replica.rank)
    if metrics := replica.metrics or final_metrics(details):
        parts.append(metrics_text(metrics))
    return ", ".join(parts)
