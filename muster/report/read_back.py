"""What SageMaker has reported of the jobs of a run, in words: for the page, the status and the result. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from pydantic import Field

from muster.contract import timestamps
from muster.contract.aws.prices import PriceTable
from muster.contract.document import Document
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_words import counted
from muster.contract.run.job_details import JobDetails, JobProgress, PoolState, RuleVerdict
from muster.contract.run.run_cost import SpotSaving, saving
from muster.contract.text import some_of
from muster.contract.timestamps import Timestamp
from muster.report.figures import Fact, dollars

if TYPE_CHECKING:
    from muster.report.page_model import ReplicaView

T = TypeVar("T")

_NAMED_MAX = 3  # ranks in a line
_METRICS_SHOWN = 8
_QUIET = {"NoIssuesFound"}

Attempts = Mapping[int, Sequence[Attempt]]
"""The attempts of each replica."""
Details = Mapping[int, JobDetails]
"""What is known of one job of each replica."""


class KeptInstances(Document):
    """A warm pool that is kept now: instances without a job, which are billed."""

    rank: int
    attempt: int
    job: str
    instance_type: str | None
    instances: int
    until: Timestamp = Field(description="when it ends, unless a job takes it or it is ended")
    kept_seconds: int | None = Field(description="billed so far, per instance; none where not known")
    usd_per_hour: float | None = Field(description="of all its instances, on demand; none where it has no price")
    end_command: str = Field(description="the command that ends it")


def kept_pools(
    attempts: Attempts,
    now: datetime,
    prices: PriceTable,
    listed: Mapping[str, int | None] | None = None,
) -> tuple[KeptInstances, ...]:
    """The warm pools that are kept at `now`, as far as is known: of each replica that of its last attempt with one.

    The job of a later attempt has most likely taken the pool of the one before it.

    `listed` are the jobs that have one, as SageMaker says, with the seconds that it has billed; None: it was not asked,
    and what was known at the end of the jobs counts.
    """
    found = []
    for rank in sorted(attempts):
        attempt = next((one for one in reversed(attempts[rank]) if one.was_created), None)
        if attempt is None or attempt.details is None or (pool := attempt.details.warm_pool) is None:
            continue
        if pool.state is not PoolState.AVAILABLE or pool.until is None or timestamps.parse(pool.until) <= now:
            continue
        if listed is not None and attempt.job not in listed:
            continue
        instances, price = attempt.details.instances or 1, prices.usd_per_hour.get(attempt.instance_type or "")
        found.append(
            KeptInstances(
                rank=rank,
                attempt=attempt.attempt,
                job=attempt.job,
                instance_type=attempt.instance_type,
                instances=instances,
                until=pool.until,
                kept_seconds=None if listed is None else listed[attempt.job],
                usd_per_hour=None if price is None else price * instances,
                end_command=end_pool_command(attempt.job),
            )
        )
    return tuple(found)


def pool_words(pools: Sequence[KeptInstances]) -> str:
    """`2 ml.g5.xlarge are kept warm until 12:30 UTC and billed: $2.82 per hour`."""
    kinds: Counter[str] = Counter()
    for pool in pools:
        kinds[pool.instance_type or "instances"] += pool.instances
    what = ", ".join(f"{count} {kind}" for kind, count in kinds.items())
    are = "is" if kinds.total() == 1 else "are"
    known = [pool.usd_per_hour for pool in pools if pool.usd_per_hour is not None]
    cost = f": {dollars(sum(known))} per hour" if len(known) == len(pools) else ""
    until = max(timestamps.parse(pool.until) for pool in pools)
    return f"{what} {are} kept warm until {until:%H:%M} UTC and billed{cost}"


def end_pool_command(job: str) -> str:
    """The command that ends the warm pool of a job."""
    return f"aws sagemaker update-training-job --training-job-name {job} --resource-config KeepAlivePeriodInSeconds=0"


def saving_words(saved: SpotSaving) -> str:
    """`100 s billed of 500 s: 80% saved, about $0.12 at on-demand prices`."""
    usd = "" if saved.usd is None else f", about {dollars(saved.usd)} at on-demand prices"
    return f"{saved.billable_seconds:,} s billed of {saved.training_seconds:,} s: {saved.share:.0%} saved{usd}"


def latest_details(attempts: Attempts) -> Details:
    """The details of each replica's latest attempt that has any."""
    known = {rank: [one.details for one in found if one.details is not None] for rank, found in attempts.items()}
    return {rank: found[-1] for rank, found in sorted(known.items()) if found}


def rule_lines(details: Details) -> Iterator[str]:
    """A line for each rule and verdict, with the replicas: those that found something first."""
    found: dict[tuple[str, str, str], list[tuple[int, RuleVerdict]]] = {}
    for rank, verdict in _of_all(details, lambda one: one.rules):
        found.setdefault((verdict.tool, verdict.rule, verdict.status), []).append((rank, verdict))
    for (tool, rule, status), items in sorted(found.items(), key=lambda item: (item[0][2] in _QUIET, item[0])):
        words = next((f": {verdict.words}" for _, verdict in items if verdict.words), "")
        yield f"{tool} rule {rule}: {status} in {ranks_text([rank for rank, _ in items])}{words}"


def metric_words(details: Details) -> str:
    """`loss 0.25, accuracy 0.9`: the last values that SageMaker read from the logs, as means over the replicas."""
    values: dict[str, list[float]] = {}
    for _, metric in _of_all(details, lambda one: one.metrics):
        values.setdefault(metric.name, []).append(metric.value)
    shown = [f"{name} {sum(found) / len(found):.4g}" for name, found in sorted(values.items())]
    return some_of(shown, _METRICS_SHOWN)


def mlflow_lines(details: Details) -> Iterator[str]:
    """The experiments in which the jobs log, each with a run, and the command that opens their server."""
    found: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for rank, run in _of_all(details, lambda one: [one.mlflow] if one.mlflow else []):
        found.setdefault((run.resource, run.experiment_id), []).append((rank, run.run_id))
    for (resource, experiment), runs in found.items():
        shown = some_of([f"{run} of replica {rank}" for rank, run in runs], _NAMED_MAX)
        yield f"experiment {experiment}: run {shown}; open it with: {_open_mlflow(resource)}"


def _of_all(details: Details, pick: Callable[[JobDetails], Iterable[T]]) -> Iterator[tuple[int, T]]:
    for rank, one in details.items():
        yield from ((rank, item) for item in pick(one))


def _open_mlflow(resource: str) -> str:
    kind, _, name = resource.rpartition(":")[2].partition("/")
    if kind == "mlflow-tracking-server":
        return f"aws sagemaker create-presigned-mlflow-tracking-server-url --tracking-server-name {name}"
    return f"aws sagemaker create-presigned-mlflow-app-url --arn {resource}"


def progress_words(progress: JobProgress) -> str:
    """`step 3 of 10, epoch 1 of 2`."""
    parts = (("step", progress.step, progress.steps), ("epoch", progress.epoch, progress.epochs))
    shown = (f"{word} {at}{'' if of is None else f' of {of}'}" for word, at, of in parts if at is not None)
    return ", ".join(shown)


def ranks_text(ranks: Sequence[int]) -> str:
    """`replica 3`, `replicas 0, 1, 2 and 5 more`."""
    return f"replica{'' if len(ranks) == 1 else 's'} {some_of([*map(str, ranks)], _NAMED_MAX)}"


def read_back_facts(replicas: Sequence[ReplicaView], prices: PriceTable, now: datetime) -> Iterator[Fact]:
    """The lines of a page's summary about what SageMaker has reported."""
    attempts = {replica.rank: replica.attempts for replica in replicas}
    details = latest_details(attempts)
    if metrics := metric_words(details):
        yield Fact(label="Final metrics", value=metrics, note="as SageMaker read them from the logs")
    saved = saving((one for replica in replicas for one in replica.attempts), prices.usd_per_hour)
    if saved is not None:
        yield Fact(label="Spot", value=f"{saved.share:.0%} saved", note=saving_words(saved))
    if pools := kept_pools(attempts, now, prices):
        note = f"{pool_words(pools)}. To end one now: {pools[0].end_command}"
        yield Fact(label="Warm pools", value=str(len(pools)), note=note)
    if lines := list(rule_lines(details)):
        found = counted(rule.status for one in details.values() for rule in one.rules)
        more = f"; and {len(lines) - _NAMED_MAX} more" if len(lines) > _NAMED_MAX else ""
        yield Fact(label="Rules", value=found, note="; ".join(lines[:_NAMED_MAX]) + more)
    for line in mlflow_lines(details):
        yield Fact(label="MLflow", value=line.partition(":")[0], note=line)
