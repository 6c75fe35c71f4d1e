"""Forecasts of specs and of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from math import inf
from statistics import fmean
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from muster.client.launch.changes import read_changes
from muster.contract.aws.instance_types import GPU_TYPES, NETWORK_GBPS
from muster.contract.errors import Problem, SpecError, StatedProblem
from muster.contract.run.forecast import ExchangeSettings, Forecast
from muster.contract.run.time_use import Activity, TimeUse, seconds_of
from muster.contract.spec.places import HOME
from muster.contract.training.ranks import ranks_in
from muster.options.forecast.client.forecast_options import PARAMETERS_MAX, ForecastOptions
from muster.options.forecast.contract.round_time import Exchange, Way, stages
from muster.options.forecast.contract.utilisation import of_fragment, phase, proposal

if TYPE_CHECKING:
    from muster.client.launch.dry_run import DryRun
    from muster.client.sdk import Muster
    from muster.contract.run.commit import Commit

_GIGABIT = 1e9 / 8
# EC2: to other regions, "bandwidth for instances with less than 32 vCPUs is limited to 5 Gbps".
_FAR_GBPS, _FAR_SECONDS = 5.0, 0.150
_BLOCKED = (Activity.WAITING, Activity.EXCHANGING, Activity.SAVING)


class ForecastError(SpecError):
    """What a forecast was asked for cannot be used, or is not enough."""

    subject = "The forecast"


def planned(
    asked: ForecastOptions, spec: Mapping[str, Any], dry: DryRun, muster: Callable[[], Muster]
) -> Forecast | None:
    """The forecast of a spec, as it is written; None if no option asks for one.

    Raises:
        ForecastError: has a problem for each option and setting that cannot be used, or says that of a sweep none can.
    """
    if all(value is None for value in asdict(asked).values()):
        return None
    if spec.get("sweep"):
        statement = "its replicas exchange nothing that could be predicted"
        raise ForecastError([StatedProblem("sweep", statement, "leave the options that predict out")])
    like = None if asked.like is None else muster().run(asked.like).status().forecast
    problems: list[Problem] = []
    if asked.like is not None and like is None:
        problems.append(StatedProblem("--like", f"{asked.like} does not say how it trains", "set the other options"))
    set_ = {"parameters": asked.parameters, "step_seconds": asked.step_seconds, "step_samples": asked.step_samples}
    known = {name: getattr(like, name, None) if value is None else value for name, value in set_.items()}
    problems += _problems(ForecastOptions, {**asdict(asked), **known}, lambda name: f"--{name.replace('_', '-')}")
    own = read_changes(asked.algorithm or ())
    usual = {} if like is None else like.phase.settings.model_dump()
    settings = {**usual, **_settings_in(spec), **own}
    problems += _problems(
        ExchangeSettings, settings, lambda name: f"{'--algorithm' if name in own else 'kwargs'} {name}"
    )
    missing = [name for name in ("parameters", "step_seconds") if known[name] is None]
    problems += [StatedProblem(f"--{one.replace('_', '-')}", "not set", "set it, or add --like RUN") for one in missing]
    if problems:
        raise ForecastError(problems)
    group, shares = dry.groups[0], _shares(dry)
    kind = group.instance_types[0]
    each = group.processes if isinstance(group.processes, int) else GPU_TYPES[kind].count if kind in GPU_TYPES else 1
    whole = Exchange(
        parameters=round(known["parameters"] or 0),
        replicas=sum(shares),
        processes=group.instances * each,
        places=shares,
        way=_way(kind, group.instances),
        far=_far(asked.link_seconds, asked.link_gbps),
    )
    assumed = ["S3 answers in 10 to 30 ms, and a connection of 16 carries 87 MB/s"]
    assumed += [] if kind in NETWORK_GBPS else [f"the network of {kind} is no limit"]
    assumed += [] if "sync_every" in settings else ["an exchange after each step: kwargs have no sync_every"]
    if len(shares) > 1:
        far = f"{whole.far.rate / _GIGABIT:g} Gb/s and {whole.far.wait(1):g} s from a place to home"
        assumed.append(f"{far}; a ladder's replicas are spread evenly")
    target, exchanged = asked.target_utilisation, ExchangeSettings(**settings)
    found = _forecast(whole, exchanged, known)
    a_second = found.replicas * (found.step_samples or 0.0) / found.step_seconds * found.phase.utilisation
    usd_per_hour = dry.cost.per_hour
    return found.model_copy(
        update={
            "usd_per_million": None if not a_second or usd_per_hour is None else usd_per_hour / 3600 / a_second * 1e6,
            "target": target,
            "proposal": None if target is None else proposal(whole, exchanged, found.step_seconds, target),
            "assumed": tuple(assumed),
        }
    )


def of_run(spec: Mapping[str, Any], commits: Sequence[Commit], use: TimeUse | None) -> Forecast | None:
    """The forecast of a run that trains: a whole phase says how long a step takes. None if it cannot be made.

    Args:
        commits: the last ones, the newest first.
    """
    settings = _settings_in(spec)
    # The last phase of a training may have fewer steps.
    commit = max(commits, key=_samples)
    worked = [member.seconds for member in commit.members if member.seconds]
    if "sync_every" not in settings or [*_problems(ExchangeSettings, settings, str)] or not worked:
        return None
    if commit.round < commit.fragments:
        # No fragment has had a whole phase.
        return None
    steps, where = settings["sync_every"], [member.place for member in commit.members]
    kind, instances = spec.get("instance_type"), spec.get("instance_count")
    whole = Exchange(
        parameters=min(commit.count * commit.fragments, PARAMETERS_MAX),  # replicas write commits
        replicas=len(where),
        processes=max(member.parts or 1 for member in commit.members),
        places=tuple(where.count(place) for place in (HOME, *sorted({*where} - {HOME}))),
        way=_way(str(kind), instances if isinstance(instances, int) else 1),
        far=_far(None, None),
    )
    known = {"step_seconds": max(worked) / steps, "step_samples": _samples(commit) / steps}
    spent = {} if use is None else seconds_of(use.spent)
    trained, blocked = spent.get(Activity.TRAINING, 0.0), sum(spent.get(kind, 0.0) for kind in _BLOCKED)
    measured = trained / (trained + blocked) if trained else None
    return _forecast(whole, ExchangeSettings(**settings), known).model_copy(update={"measured_utilisation": measured})


def _samples(commit: Commit) -> float:
    """Those of a replica in the round."""
    return fmean(member.weight for member in commit.members)


def _forecast(whole: Exchange, settings: ExchangeSettings, known: Mapping[str, float | None]) -> Forecast:
    step = known["step_seconds"] or 1.0
    now, round_ = phase(whole, settings, step), stages(of_fragment(whole, settings))
    return Forecast(
        parameters=round(whole.parameters),
        replicas=whole.replicas,
        step_seconds=step,
        step_samples=known.get("step_samples"),
        phase=now,
        sent_bytes=sum(stage.sent for stage in round_ if not stage.far),
        received_bytes=sum(stage.received for stage in round_ if not stage.far),
        crossed_bytes=sum(one.sent + one.received for one in round_ if one.far) * sum(map(bool, whole.places[1:])),
    )


def _way(instance_type: str, instances: int) -> Way:
    return Way(rate=NETWORK_GBPS.get(instance_type, inf) * instances * _GIGABIT)


def _far(seconds: float | None, gbps: float | None) -> Way:
    latency = _FAR_SECONDS if seconds is None else seconds
    return Way((latency, latency), rate=(gbps or _FAR_GBPS) * _GIGABIT)


def _settings_in(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the trainer's arguments; with `hook` they may name a codec for each way."""
    kwargs = spec.get("kwargs")
    found = {name: kwargs[name] for name in ExchangeSettings.model_fields if name in kwargs} if kwargs else {}
    both = found.get("codec")
    return {**found, "codec": both.get("near"), "far_codec": both.get("far")} if isinstance(both, Mapping) else found


def _problems(kind: type, values: Mapping[str, Any], named: Callable[[str], str]) -> Iterator[Problem]:
    try:
        TypeAdapter(kind).validate_python(values)
    except ValidationError as error:
        for one in error.errors():
            yield Problem(
                named(str(one["loc"][0])), repr(one["input"]), "correct it", one["msg"].removeprefix("Value error, ")
            )


def _shares(dry: DryRun) -> tuple[int, ...]:
    """How many of the first replicas each place has, home first; of the others those that have any."""
    replicas = len(dry.requests) if dry.seats is None else dry.seats.start.replicas
    if dry.places is None:
        return (replicas,)
    each, rest = divmod(replicas, len(dry.places.places))
    counts = {
        one.place: each + (number < rest) if one.rungs else sum(rank < replicas for rank in ranks_in(one.ranks or ""))
        for number, one in enumerate(dry.places.places)
    }
    return (counts.pop(HOME, 0), *filter(None, counts.values()))
