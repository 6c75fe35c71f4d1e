"""Answers as lines of text, for `output.print_lines`: they may hold control characters that a container wrote."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from muster.client.runs.status_text import metrics_text, model_line
from muster.contract.training.ranks import parse_ranks

if TYPE_CHECKING:
    from muster.client.launch.dry_run import DryRun, RankGroup
    from muster.client.launch.estimate import Cost, Quota
    from muster.client.runs.doctor import Diagnosis
    from muster.client.runs.event_log import EventLogEntry
    from muster.contract.run.result import ReplicaResult, Result


def dry_run_text(dry: DryRun) -> str:
    """The requests, once for each group of ranks that differ only in the rank; quota; cost."""
    return "\n".join(_dry_run_lines(dry))


def _dry_run_lines(dry: DryRun) -> Iterator[str]:
    names = [str(request["TrainingJobName"]) for request in dry.requests]
    count = f"{len(names)} training job{'s' if len(names) > 1 else ''}"
    yield f"{count}: {names[0]} to {names[-1]}." if len(names) > 1 else f"{count}: {names[0]}."
    yield "Nothing was sent. Values in <brackets>, and so the plan's digest, are known only at the launch."
    yield from (f"Note: {remark}." for remark in dry.remarks)
    if dry.source is not None:
        yield f"Source: {dry.source.files} files, {dry.source.bytes:,} bytes, as {dry.source.key}; not uploaded."
    yield "Quota needed:"
    yield from (f"  {_quota(quota)}" for quota in dry.quotas)
    yield from _cost_lines(dry.cost)
    for group in dry.groups:
        ranks = [rank for part in parse_ranks(group.ranks) for rank in part]
        others = f" (ranks {group.ranks} differ in the rank only)" if len(ranks) > 1 else ""
        yield f"The request of rank {ranks[0]}{others}, {_size(group)}:"
        yield json.dumps(dry.requests[ranks[0]], indent=2)


def _size(group: RankGroup) -> str:
    """The instances and processes of a replica."""
    instances = "1 instance" if group.instances == 1 else f"{group.instances} instances"
    if group.processes is None:
        return instances
    if group.processes == "auto":
        return f"{instances} with one process per GPU"
    return f"{instances} with {group.processes} process{'' if group.processes == 1 else 'es'}"


def _quota(quota: Quota) -> str:
    fallbacks = f" ({quota.for_fallbacks} more if every fallback is used)" if quota.for_fallbacks else ""
    return f"{quota.name}: {quota.instances}{fallbacks}"


def _cost_lines(cost: Cost) -> Iterator[str]:
    prices = cost.prices
    if cost.per_hour is None or cost.attempt_ceiling is None or cost.ceiling is None:
        yield f"Cost: not known: the price table of {prices.as_of} has no {', '.join(cost.unpriced)}."
        return
    yield f"Cost: about ${cost.per_hour:,.2f} per hour while all replicas train."
    yield f"  At most ${cost.attempt_ceiling:,.2f} for one attempt of each, ${cost.ceiling:,.2f} with all its reruns."
    yield (
        f"  An estimate for instances alone, by on-demand prices of {prices.region} as of {prices.as_of} "
        f"({prices.source}); spot costs less, other regions differ."
    )


def result_lines(result: Result) -> Iterator[str]:
    """The verdict, then a line for each replica, each with a line for every attempt that did not succeed."""
    yield f"{result.run}: {result.verdict}{f': {result.reason}' if result.reason else ''}"
    if result.parameters_identical is not None:
        yield f"parameters of the replicas: {'identical' if result.parameters_identical else 'DIFFERENT'}"
    if result.model is not None:
        yield model_line(result.run, result.model)
        yield f"    {result.model.uri}"
    elif result.model_problem is not None:
        yield f"no model: {result.model_problem}"
    for replica in result.replicas:
        yield _replica_line(replica)
        for attempt in replica.attempts:
            if attempt.failure_class is not None:
                why = ": ".join(part for part in (attempt.failure_class, attempt.reason) if part)
                yield f"    attempt {attempt.attempt} {attempt.status}: {why}"
        if replica.problem:
            yield f"    {replica.problem}"
        if replica.finished_early:
            yield f"    {replica.finished_early}"
        if replica.checkpoint_uri and (result.model is None or replica.checkpoint_uri != result.model.uri):
            yield f"    {replica.checkpoint_uri}"


def _replica_line(replica: ReplicaResult) -> str:
    attempts = f"{len(replica.attempts)} attempt{'s' if len(replica.attempts) != 1 else ''}"
    parts = [f"replica {replica.rank}: {replica.outcome}", attempts]
    if replica.round is not None:
        parts.append(f"round {replica.round}")
    if replica.metrics:
        parts.append(metrics_text(replica.metrics))
    return ", ".join(parts)


def event_line(entry: EventLogEntry) -> str:
    """When, in UTC, and what happened."""
    return f"{entry.at}  {entry.text}"


def diagnosis_lines(found: Diagnosis) -> Iterator[str]:
    """A line for each training job without a run."""
    for job in found.orphans:
        yield f"{job}: its run has no running execution; the stack's next sweep stops it"
    for job in found.foreign:
        yield f"{job}: its name starts with Muster's prefix, but Muster did not create it; it will not be stopped"
    if not (found.orphans or found.foreign):
        yield "No orphaned training jobs."
