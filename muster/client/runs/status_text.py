"""A run's status in words: rows, a headline, and a line for each change. Pure; the callers draw it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean

from muster.client.runs.run_state import RunState, elapsed
from muster.client.runs.run_status import ReplicaStatus, RunStatus
from muster.contract import timestamps
from muster.contract.aws.job_status import BEFORE_INSTANCE, WAITING_FOR_QUOTA, JobStatus
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.failure_words import counted
from muster.contract.run.job_details import JobDetails
from muster.contract.run.model import ModelResult
from muster.contract.run.round_values import UPDATE_METRICS
from muster.contract.run.run_cost import SpotSaving
from muster.contract.run.seat_states import SeatState
from muster.contract.spec.recipe_reference import RunRecipe
from muster.contract.spec.sweep_values import value_text
from muster.report.figures import bytes_text, dollars, duration, rate_number, rate_text
from muster.report.read_back import Details, KeptInstances, mlflow_lines, progress_words, rule_lines, saving_words
from muster.report.seat_words import change_text
from muster.report.words import model_text

_BEFORE_SHOWN = 3  # of the runs in the queue
_POOLS_SHOWN = 20  # in a status; each has a line of its own in a result
_PAIR = 2
_PAUSES = {"Interrupted", "Restarting"}
_AWAY = {SeatState.LEAVING, SeatState.PARKED}
_WORDS = {WAITING_FOR_QUOTA: "waiting for quota"}  # secondary statuses of Muster's own


@dataclass(frozen=True)
class ReplicaLine:
    """One replica's row; every cell holds the text that is shown."""

    rank: str
    attempt: str
    status: str
    round: str
    rate: str
    metrics: str
    note: str
    alert: bool
    values: tuple[str, ...] = ()
    """Of a sweep: the replica's own values."""
    place: str = ""
    """Where its jobs are: the cluster, or the place of a run with places; of other training jobs none."""

    @classmethod
    def of(cls, replica: ReplicaStatus, state: RunState) -> ReplicaLine:
        """The row of `replica` in a run in this state."""
        return cls(
            rank=str(replica.rank),
            attempt=str(replica.attempt or "–"),
            status=status_word(replica),
            round="–" if replica.round is None else str(replica.round),
            rate="–" if replica.samples_per_second is None else rate_number(replica.samples_per_second),
            metrics=metrics_text(replica.metrics or final_metrics(replica.details)),
            note=note(replica, state),
            alert=replica.waiting_for is not None
            or (replica.status in {JobStatus.FAILED, JobStatus.STOPPED} and replica.seat not in _AWAY)
            or replica.secondary in _PAUSES,
            values=tuple(map(value_text, replica.values.values())),
            place=_place(replica),
        )


def _place(replica: ReplicaStatus) -> str:
    if replica.cluster is not None:
        return replica.cluster.cluster or "cluster"
    return "" if replica.where is None else replica.where.shown


def status_word(replica: ReplicaStatus) -> str:
    """The replica's status; while its job is in progress, the more detailed secondary status."""
    if replica.seat in _AWAY:
        return str(replica.seat)
    if replica.waiting_for is not None:
        return f"waiting for {replica.waiting_for}"
    if replica.status is None:
        return "launching" if replica.attempt else "not launched"
    if replica.status == JobStatus.IN_PROGRESS and replica.secondary:
        return _WORDS.get(replica.secondary, replica.secondary)
    return replica.status


def metrics_text(metrics: dict[str, float]) -> str:
    """`accuracy 0.912, loss 0.31`; without the round, which has its own column, and what `updates_text` says."""
    hidden = {"round", *UPDATE_METRICS}
    shown = (f"{name} {value:.4g}" for name, value in sorted(metrics.items()) if name not in hidden)
    return ", ".join(shown) or "–"


def updates_text(status: RunStatus) -> str:
    """`updates: cosine 0.62, 0.11 at least (replica 3); norm 1 to 2; codec error 9%, residual 9% of an update`,
    of the last round's members."""
    found = {replica.rank: replica.metrics for replica in status.replicas if replica.round == status.round}
    cosine, norm, error, residual = (
        {rank: metrics[name] for rank, metrics in found.items() if name in metrics} for name in UPDATE_METRICS
    )
    words = []
    if cosine:
        least = min(cosine, key=cosine.__getitem__)
        # Of two replicas it is the same.
        which = f", {cosine[least]:.2f} at least (replica {least})" if len(cosine) > _PAIR else ""
        words.append(f"cosine {fmean(cosine.values()):.2f}{which}")
    if norm:
        low, high = (f"{one:.3g}" for one in (min(norm.values()), max(norm.values())))
        words.append(f"norm {low}" if low == high else f"norm {low} to {high}")
    if error and residual:
        shares = (fmean(one.values()) for one in (error, residual))
        words.append("codec error {:.0%}, residual {:.0%} of an update".format(*shares))
    return f"updates: {'; '.join(words)}" if words else ""


def final_metrics(details: JobDetails | None) -> dict[str, float]:
    """The metrics that SageMaker read from a log, by name."""
    return {} if details is None else {metric.name: metric.value for metric in details.metrics}


def note(replica: ReplicaStatus, state: RunState) -> str:
    """Why a replica has its status, where that needs a word: no instance yet, a rerun, an interruption, an end."""
    if replica.waiting_for is not None or replica.seat in _AWAY:
        return ""
    if replica.secondary in _PAUSES and replica.cluster is None:
        return "spot: restarting"
    if replica.status in {JobStatus.FAILED, JobStatus.STOPPED}:
        reason = replica.ends[-1] if replica.ends and replica.ends[-1] else "reason not known yet"
        if replica.rerun_follows is None or state is not RunState.RUNNING:
            return str(reason)
        return f"{reason}: {'to be rerun' if replica.rerun_follows else 'no rerun'}"
    early = [] if replica.finished_early is None else [replica.finished_early]
    early += cluster_notes(replica.cluster, replica)
    if replica.status == JobStatus.IN_PROGRESS and replica.secondary in BEFORE_INSTANCE and replica.message:
        early.append(replica.message)
    if replica.status == JobStatus.IN_PROGRESS and replica.details and replica.details.progress:
        early.append(progress_words(replica.details.progress))
    if replica.attempt > 1:
        classes = counted(str(end or "unknown") for end in replica.ends)
        early.append(f"rerun: {classes}" if classes else "rerun")
    return "; ".join(early)


def cluster_notes(job: ClusterJob | None, replica: ReplicaStatus) -> Iterator[str]:
    """What is to be said of a job on a cluster: what it waits for, its instances, its restarts by the operator."""
    if job is None:
        return
    if replica.secondary == WAITING_FOR_QUOTA and job.queue:
        yield f"in queue {job.queue}"
    if job.is_elastic and job.instances is not None:
        yield f"{instances_text(job.instances)} of {job.least} to {job.most}"
    if replica.secondary in _PAUSES:
        yield "the operator restarts it"
    if job.restarts:
        yield f"restarted {'once' if job.restarts == 1 else f'{job.restarts} times'} by the operator"


def instances_text(count: int) -> str:
    """`1 instance`, `3 instances`."""
    return f"{count} instance{'' if count == 1 else 's'}"


def headline(status: RunStatus) -> str:
    """One line on the whole run."""
    where = _rounds(status) if status.behind is None else queue_text(status)
    words = [f"{status.run}: {status.state}", elapsed(status.started_at, status.ended_at), where, *_speed(status)]
    if status.reruns:
        words.append(f"{status.reruns} rerun{'s' if status.reruns > 1 else ''}")
    if status.parent:
        words.append(f"continues {status.parent}")
    if status.continued_by:
        words.append(f"continued by {status.continued_by}")
    if status.excluded:
        words.append(f"{status.excluded} contribution{'s' if status.excluded > 1 else ''} excluded")
    return ", ".join(words)


def recipe_line(recipe: RunRecipe) -> str:
    """The recipe of a run."""
    return f"Recipe: {recipe.name} (family {recipe.family}), digest {recipe.digest}."


def model_line(run: str, model: ModelResult) -> str:
    """The model that a run leaves, and how to get it."""
    return f"model: {bytes_text(model.bytes)} {model_text(model)}; `muster model {run}` fetches it"


def read_back_lines(details: Details, saved: SpotSaving | None, pools: Sequence[KeptInstances]) -> Iterator[str]:
    """What SageMaker has reported beside statuses: savings, verdicts of rules, MLflow, instances that are kept."""
    if saved is not None:
        yield f"spot: {saving_words(saved)}"
    yield from rule_lines(details)
    yield from (f"MLflow: {line}" for line in mlflow_lines(details))
    yield from _pool_lines(pools)


def _pool_lines(pools: Sequence[KeptInstances]) -> list[str]:
    """A line for each pool, the first ones of many, with what it costs and how to end it."""
    lines = []
    for pool in pools[:_POOLS_SHOWN]:
        cost = "" if pool.usd_per_hour is None else f" at {dollars(pool.usd_per_hour)} per hour"
        so_far = "" if pool.kept_seconds is None else f", {pool.kept_seconds:,} s so far"
        until = f"{timestamps.parse(pool.until):%H:%M:%S} UTC"
        kind = f"{pool.instances} {pool.instance_type or 'instances'}"
        lines += [
            f"replica {pool.rank} keeps {kind} warm until {until}, billed{cost}{so_far}; end it now with:",
            f"  {pool.end_command}",
        ]
    if len(pools) > _POOLS_SHOWN:
        lines.append(f"and {len(pools) - _POOLS_SHOWN} more warm pools: see `muster status --json`")
    return lines


def _rounds(status: RunStatus) -> str:
    own = [replica.round for replica in status.replicas if replica.round is not None and replica.values]
    if status.round is None and own:
        return f"round {min(own)}" if min(own) == max(own) else f"rounds {min(own)} to {max(own)}"
    return "no round yet" if status.round is None else _round_text(status)


def _round_text(status: RunStatus) -> str:
    expected = status.expected_rounds
    return f"round {status.round}" if expected is None else f"round {status.round} of {expected}"


def _speed(status: RunStatus, now: datetime | None = None) -> Iterator[str]:
    """How fast the run trains, and when it will have trained; or for how long it has had no round."""
    now = now or datetime.now(UTC)
    if status.stalled and status.round_at is not None:
        waited = (now - max(timestamps.parse(status.round_at), timestamps.parse(status.started_at))).total_seconds()
        yield f"no round for {duration(waited)}"
    if status.data is not None:
        yield status.data.words
    if status.samples_per_second is not None:
        yield rate_text(status.samples_per_second, status.unit)
    if status.ends_at is not None:
        yield f"{duration((timestamps.parse(status.ends_at) - now).total_seconds())} left"


def queue_text(status: RunStatus) -> str:
    """The runs ahead in the queue; of many, the nearest ones."""
    before = status.behind or ()
    more = f" and {len(before) - _BEFORE_SHOWN} more" if len(before) > _BEFORE_SHOWN else ""
    return f"queued behind {', '.join(before[-_BEFORE_SHOWN:])}{more}"


def shown_replicas(status: RunStatus) -> list[ReplicaStatus]:
    """Those that have a row of their own: of an elastic run not the parked ones, which are one line together."""
    return [replica for replica in status.replicas if replica.seat is not SeatState.PARKED]


def select(rows: Sequence[ReplicaLine], limit: int) -> tuple[list[ReplicaLine], str]:
    """At most `limit` rows, preferring those with an alert or a note, by rank; and a line on the others."""
    if len(rows) <= limit:
        return list(rows), ""
    preferred = sorted(range(len(rows)), key=lambda index: (not rows[index].alert, not rows[index].note, index))
    shown = set(preferred[:limit])
    hidden = Counter(row.status for index, row in enumerate(rows) if index not in shown)
    words = ", ".join(f"{count} {word}" for word, count in hidden.most_common())
    return [rows[index] for index in sorted(shown)], f"and {len(rows) - limit} more: {words}"


def changes(before: RunStatus | None, after: RunStatus) -> Iterator[str]:
    """One line for each change from one status to the next."""
    known = {replica.rank: replica for replica in before.replicas} if before else {}
    for replica in after.replicas:
        line = _replica_line(replica, after.state)
        previous = known.get(replica.rank)
        if line and (previous is None or before is None or line != _replica_line(previous, before.state)):
            yield line
    if after.behind is not None and (before is None or before.behind != after.behind):
        yield f"run {after.run} {queue_text(after)}"
    scaled = () if after.seats is None else after.seats.changes
    known_changes = () if before is None or before.seats is None else before.seats.changes
    yield from (change_text(change) for change in scaled if change not in known_changes)
    if after.round is not None and (before is None or before.round != after.round):
        yield _round_line(after)
    for finding in after.findings:
        if before is None or finding not in before.findings:
            yield finding.words
    for remark in after.remarks:
        if before is None or remark not in before.remarks:
            yield remark
    if before is None or before.state is not after.state:
        reason = f": {after.reason}" if after.reason else ""
        yield f"run {after.run} {after.state}{reason}"
    if after.model is not None and (before is None or before.model is None):
        yield model_line(after.run, after.model)
    if after.continued_by is not None and (before is None or before.continued_by is None):
        yield f"run {after.run} is continued by {after.continued_by}"


def _replica_line(replica: ReplicaStatus, state: RunState) -> str:
    if replica.waiting_for is not None or replica.seat is SeatState.PARKED:
        return f"replica {replica.rank} {status_word(replica)}"
    if replica.status is None:
        return ""
    remark = note(replica, state)
    return f"replica {replica.rank} attempt {replica.attempt} {status_word(replica)}{f' ({remark})' if remark else ''}"


def _round_line(status: RunStatus) -> str:
    members = [replica for replica in status.replicas if replica.round == status.round]
    wanted = len(status.replicas) if status.seats is None else status.seats.wanted
    text = ", ".join([f"{_round_text(status)}: {len(members)} of {wanted} replicas", *_speed(status)])
    shared = sorted(set.intersection(*(set(replica.metrics) for replica in members))) if members else []
    means = {name: sum(replica.metrics[name] for replica in members) / len(members) for name in shared}
    return f"{text}, mean {metrics_text(means)}" if means else text
