"""The sentences of a page: the verdict, and the summary below it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from muster.contract.aws.job_status import WAITING_FOR_QUOTA
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import Attempt
from muster.contract.run.failure_words import counted, failure_words
from muster.contract.run.model import ModelKind, ModelResult
from muster.contract.run.training_pace import end_of, has_stalled
from muster.contract.spec.sweep_values import short_names, values_of
from muster.contract.text import shortened, some_of
from muster.contract.timestamps import parse, seconds_between
from muster.contract.training.ranks import show_ranks
from muster.report.figures import Fact, bytes_text, count_text, dollars, duration, rate_text
from muster.report.read_back import ranks_text
from muster.report.seat_words import AWAY, limits_text, outcomes_text, seats_text

if TYPE_CHECKING:
    from muster.contract.run.seat_states import SeatsView
    from muster.report.page_model import PageInput, ReplicaView, RoundsView

_NAMED_MAX = 3  # replicas in a sentence
_HOUR = 3_600
_DIGEST_SHOWN = 12  # hexadecimal digits
_REASON_SHOWN = 400  # characters of a reason in a sentence
UTILISATION = "utilisation"
"""The metric that every front end logs."""

_OPENINGS = {
    "running": "The run is in progress",
    "stopping": "The run is being stopped; its jobs may still save their work",
    "succeeded": "The run succeeded",
    "failed": "The run failed",
    "stopped": "The run was stopped",
}


def verdict(run: PageInput, replicas: Sequence[ReplicaView]) -> str:
    """The run in one to three sentences; `replicas` as they are shown on the page."""
    state, reason, rounds, identical = run.state, run.reason, run.rounds, run.parameters_identical
    opening = _OPENINGS.get(state, f"The run is {state}")
    if not reason and state == "running":
        standing = [f"{_with_job(replicas)} of {len(replicas)} replicas have a job", *_waits(replicas)]
        standing = standing if run.seats is None else [seats_text(run.seats)]
        reason = ", ".join([*standing, _rounds(rounds)])
    for replica in replicas:  # why it failed is said beside this, once
        if replica.attempts:
            reason = reason.replace(f"; replica {replica.rank}: {failure_words(replica.attempts[-1])}", "")
    sentences = [f"{opening}: {reason.rstrip('.')}." if reason else f"{opening}."]
    early = [replica for replica in replicas if replica.finished_early is not None]
    if early and state == "running":
        named = some_of([f"replica {one.rank} {one.finished_early}" for one in early], _NAMED_MAX, "; ")
        sentences.append(f"Finished early: {named}.")
    reruns = rerun_causes(replicas)
    if reruns:
        causes = counted(reruns.elements())
        total = reruns.total()
        sentences.append(f"{total} attempt{'s were' if total > 1 else ' was'} rerun ({causes}).")
    if rounds.unread:
        sentences.append(f"{commits_text(rounds.unread, 'could not be read')}.")
    if identical is not None:
        whose = "replicas that trained to the last round" if early else "replicas"
        held = f"All {whose} hold" if identical else f"The {whose} do not hold"
        sentences.append(f"{held} the same parameters.")
    return " ".join(sentences)


def problems(run: str, replicas: Sequence[ReplicaView], *, ended: bool) -> Iterator[str]:
    """Why replicas did not succeed, or do not train now, and how to see more: what failed first is rather the cause."""
    causes: dict[tuple[str, str], list[ReplicaView]] = {}
    for replica in replicas:
        if replica.state in AWAY:
            continue
        newest = replica.attempts[-1] if replica.attempts else None
        if newest is not None and newest.failure_class is not None:
            causes.setdefault((str(newest.failure_class), failure_words(newest)), []).append(replica)
        elif newest is None and ended:
            causes.setdefault(("", "it was not launched"), []).append(replica)
    ordered = sorted(causes.items(), key=lambda item: min(map(_ended_at, item[1])))
    for (kind, reason), whose in ordered[:_NAMED_MAX]:
        said = ": ".join(part for part in (kind, shortened(reason, _REASON_SHOWN)) if part)
        log = f" `muster logs {run} --rank {whose[0].rank}` shows its log." if whose[0].attempts[-1:] and kind else ""
        whom = ranks_text([replica.rank for replica in whose]).capitalize()
        had_job = log and whose[0].attempts[-1].was_created
        yield f"{whom}: {said.rstrip('.')}.{log if had_job else ''}"
    if len(ordered) > _NAMED_MAX:
        others = sum(len(whose) for _, whose in ordered[_NAMED_MAX:])
        yield f"{others:,} more replicas for {len(ordered) - _NAMED_MAX} other reasons."


def _ended_at(replica: ReplicaView) -> str:
    """When its newest attempt ended, to sort by."""
    return (replica.attempts[-1].ended_at if replica.attempts else None) or "~"


def commits_text(count: int, problem: str) -> str:
    """`1 commit could not be read and is left out`."""
    return f"{count:,} commit{'s' if count > 1 else ''} {problem} and {'are' if count > 1 else 'is'} left out"


def _with_job(replicas: Sequence[ReplicaView]) -> int:
    return sum(attempt.was_created and attempt.ended_at is None for attempt in _newest(replicas))


def _waits(replicas: Sequence[ReplicaView]) -> Iterator[str]:
    """What replicas without a job wait for, and how many wait for it."""
    newest = _newest(replicas)
    waits = Counter(str(one.failure_class) for one in newest if not one.was_created and one.failure_class is not None)
    waits["quota"] += sum(one.secondary == WAITING_FOR_QUOTA and one.ended_at is None for one in _newest(replicas))
    for cause, count in (+waits).most_common():
        yield f"{count} wait{'s' if count == 1 else ''} for {cause}"


def _newest(replicas: Sequence[ReplicaView]) -> list[Attempt]:
    return [replica.attempts[-1] for replica in replicas if replica.attempts]


def rerun_causes(replicas: Sequence[ReplicaView]) -> Counter[str]:
    """The failure classes that were followed by a rerun, and how often. What follows after it was parked is none."""
    ended = (attempt for replica in replicas for attempt in replica.attempts[:-1])
    return Counter(str(one.failure_class or "unknown") for one in ended if not one.parked)


def facts(run: PageInput, replicas: Sequence[ReplicaView]) -> Iterator[Fact]:
    """The summary, in the order of the page; `replicas` as they are shown there."""
    spec, rounds, until = run.plan.spec, run.rounds, run.ended_at or run.made_at
    states = Counter(replica.state for replica in replicas)
    seats, states_text = run.seats, ", ".join(f"{n} {s}" for s, n in states.most_common())
    if seats is None:
        yield Fact(label="Replicas", value=str(len(replicas)), note=states_text)
    else:
        standing = outcomes_text(_outcomes(seats, replicas)) if run.ended_at else seats_text(seats)
        value, _, note = standing.partition(", ")
        yield Fact(label="Replicas", value=value, note="; ".join(filter(None, (note, limits_text(seats)))))
    of = "" if rounds.expected is None else f" of {rounds.expected}"
    if spec.recipe is not None:
        recipe, each = spec.recipe.shown, "" if spec.recipe.ranks is None else "; one for each rank"
        note = f"family {recipe.family}, digest {recipe.digest[:_DIGEST_SHOWN]}{each}"
        yield Fact(label="Recipe", value=recipe.name, note=note)
    if spec.sweep:
        names = list(short_names(tuple(values_of(spec.sweep, 0))).values())
        yield Fact(label="Sweep", value=some_of(names, _NAMED_MAX), note="by rank")
    if spec.trains_apart or not spec.sweep:
        note = "of the replica that is furthest" if spec.trains_apart else "committed"
        yield Fact(label="Rounds", value=f"{rounds.total}{of}", note=note)
    limit = "" if spec.deadline_seconds is None else f"of at most {duration(spec.deadline_seconds)}"
    yield Fact(label="Time", value=duration(seconds_between(run.plan.created_at, until)), note=limit)
    yield from _speed(rounds, parse(run.made_at) if run.state == "running" else None)
    yield Fact(label="Reruns", value=str(rerun_causes(replicas).total()))
    egress = run.egress_usd
    yield _cost(run, replicas, egress)
    if egress is not None:
        moved = bytes_text(round(rounds.crossed_bytes or 0))
        yield Fact(label="Between places", value=moved, note=f"about {dollars(egress)}")
    yield from _rates(rounds)
    for finding in run.findings[-_NAMED_MAX:]:
        yield Fact(label="Watch", value=str(finding.rule or "unknown"), note=finding.words)
    if run.model is not None:
        yield Fact(label="Model", value=bytes_text(run.model.bytes), note=f"{model_text(run.model)}; {run.model.uri}")
    elif run.model_problem is not None:
        yield Fact(label="Model", value="none", note=run.model_problem)
    if run.plan.lineage is not None:
        yield Fact(label="Continues", value=run.plan.lineage.parent)
    if run.continued_by:
        yield Fact(label="Continued by", value=run.continued_by)


def _outcomes(seats: SeatsView, replicas: Sequence[ReplicaView]) -> list[str]:
    """The outcomes of all seats; the replicas that a page has no row for were never launched."""
    return [*(replica.state for replica in replicas), *["parked"] * (seats.most - len(replicas))]


def _speed(rounds: RoundsView, now: datetime | None) -> Iterator[Fact]:
    """How fast the run trains, or has trained; and while it is in progress, when it will have trained."""
    pace = rounds.pace
    if pace is None or rounds.last_at is None:
        return
    so_far = "" if rounds.samples is None else f"; {count_text(rounds.samples, rounds.unit)} so far"
    so_far += "" if rounds.data is None else f"; {rounds.data.words}"
    over = "the last round" if pace.rounds == 1 else f"the last {pace.rounds} rounds"
    try:
        waited = None if now is None else (now - parse(rounds.last_at)).total_seconds()
    except ValueError:
        return
    stalls = waited is not None and has_stalled(pace, waited)
    value = "0" if stalls else rate_text(pace.samples_per_second, rounds.unit)
    yield Fact(label="Speed", value=value, note=f"in {over}{so_far}")
    if stalls and waited is not None:
        yield Fact(label="Time left", value="not known", note=f"no round for {duration(waited)}")
    elif now is not None and rounds.expected is not None:
        end = end_of(pace, rounds.last_at, rounds.expected - rounds.total, now)
        if end is not None:
            left = duration((end - now).total_seconds())
            yield Fact(label="Time left", value=left, note=f"until about {end:%Y-%m-%d %H:%M} UTC, at this pace")


def _cost(run: PageInput, replicas: Sequence[ReplicaView], egress: float | None) -> Fact:
    costs = [(attempt, usd) for one in replicas for attempt, usd in zip(one.attempts, one.usd, strict=True)]
    unpriced = sorted({attempt.instance_type or "an unknown type" for attempt, usd in costs if usd is None})
    without = f"; without {', '.join(unpriced)}, which has no price in the table" if unpriced else ""
    unknown = sum(usd not in {None, 0.0} and attempt.instance_type is None for attempt, usd in costs)
    bound = f"; {unknown} at the dearest of its types, until SageMaker names the chosen one" if unknown else ""
    prices = SHIPPED_PRICES.origin(run.plan.region)
    most = run.plan.spec.cost_ceiling_usd
    ceiling = "" if most is None else f"; no reruns after {dollars(most)}"
    return Fact(
        label="Cost so far" if run.ended_at is None else "Cost",
        value=f"≤ {dollars(sum(usd for _, usd in costs if usd is not None) + (egress or 0.0))}",
        note=f"instances{'' if egress is None else ' and what went between places'}, {prices}{bound}{without}{ceiling}",
    )


def cluster_facts(replicas: Sequence[ReplicaView], held_seconds: float) -> Iterator[Fact]:
    """The clusters of the run: which replicas are on them, and for how many hours they have held instances."""
    ranks: dict[str, list[int]] = {}
    for replica in replicas:
        place = next((one.cluster.cluster for one in reversed(replica.attempts) if one.cluster is not None), None)
        if place is not None:
            ranks.setdefault(place, []).append(replica.rank)
    if not ranks:
        return
    where = "; ".join(
        f"{name}: rank{'s' if len(found) > 1 else ''} {show_ranks(found)}" for name, found in ranks.items()
    )
    restarts = sum(one.cluster.restarts for each in replicas for one in each.attempts if one.cluster is not None)
    again = f"; the operator restarted {restarts} time{'' if restarts == 1 else 's'}" if restarts else ""
    value = next(iter(ranks)) if len(ranks) == 1 else str(len(ranks))
    yield Fact(label="Clusters" if len(ranks) > 1 else "Cluster", value=value, note=f"{where}{again}")
    note = "of clusters, which are paid for whether a job runs or not; the cost counts this share of them"
    yield Fact(label="Instance hours", value=f"{held_seconds / _HOUR:.3g}", note=note)


def _rates(rounds: RoundsView) -> Iterator[Fact]:
    shares = [one for metric in rounds.metrics if metric.name == UTILISATION for one in metric.mean if one is not None]
    if shares:
        yield Fact(label="Utilisation", value=f"{sum(shares) / len(shares):.0%}", note="of a round's time was training")
    excluded = sum(rounds.excluded)
    if excluded:
        yield Fact(label="Excluded", value=str(excluded), note="unusable contributions")


def model_text(model: ModelResult) -> str:
    """`adapter after round 80 in 3 files, loss 0.25`: what a run leaves, and what was measured on it."""
    files = "" if model.files == 1 else f" in {model.files:,} files"
    kind = "" if model.kind is ModelKind.MODEL else f"{model.kind} "
    measured = [f"{name} {value:.4g}" for name, value in sorted(model.evaluation.items())]
    return ", ".join([f"{kind}after round {model.round}{files}", *measured])


def _rounds(rounds: RoundsView) -> str:
    return f"{rounds.total} rounds" if rounds.total != 1 else "1 round"
