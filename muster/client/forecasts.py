"""The seam `client.forecast`: how an option predicts a run's time, and the words that say it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from muster.contract.run.forecast import Forecast, Phase
from muster.options import offers
from muster.report.figures import bytes_text

if TYPE_CHECKING:
    from muster.contract.run.commit import Commit
    from muster.contract.run.time_use import TimeUse


@dataclass(frozen=True)
class ForecastOffer:
    """What an option offers that predicts.

    Attributes:
        options: what `muster plan` asks for it: a dataclass of Typer options.
        planned: the forecast of a spec, by these options, the spec as it is written, its dry run, and what gives the
            `Muster` of the stack; None if none was asked for.
        of_run: that of a run by its spec, commits of its last rounds, the newest first, and the time that its replicas
            have spent.
    """

    options: type
    planned: Callable[[Any, Mapping[str, Any], Any, Callable[[], Any]], Forecast | None]
    of_run: Callable[[Mapping[str, Any], Sequence[Commit], TimeUse | None], Forecast | None]


@dataclass(frozen=True)
class NoOptions:
    """Those of an installation that predicts nothing."""


def forecasts() -> ForecastOffer | None:
    """What predicts; None if no option does."""
    return next(offers("client.forecast", ForecastOffer), None)


def forecast_lines(forecast: Forecast) -> Iterator[str]:
    """What a plan says."""
    sent, received, crossed = (
        bytes_text(round(size)) for size in (forecast.sent_bytes, forecast.received_bytes, forecast.crossed_bytes)
    )
    yield f"Predicted for {forecast.parameters:,} parameters and {forecast.step_seconds:.3g} s a step, not measured:"
    yield f"  {_words(forecast.phase)}."
    yield f"  In an exchange a replica sends {sent} and receives {received}; {crossed} go between places."
    if forecast.usd_per_million is not None:
        yield f"  A million samples cost ${forecast.usd_per_million:,.3g}."
    if forecast.target is not None:
        found = "no settings are known" if forecast.proposal is None else _words(forecast.proposal)
        yield f"  For {forecast.target:.1%}: {found}."
    yield from (f"  Assumed: {words}." for words in forecast.assumed)


def _words(phase: Phase) -> str:
    named = phase.settings.model_dump(exclude_defaults=True) | {"codec": phase.settings.codec}
    settings = ", ".join(f"{name} {value}" for name, value in named.items())
    return (
        f"{settings}: {phase.compute_seconds:.3g} s of training, {phase.blocked_seconds:.3g} s of waiting for an "
        f"exchange of {phase.exchange_seconds:.3g} s; utilisation {phase.utilisation:.1%}"
    )


def utilisation_line(forecast: Forecast) -> str:
    """What a status says: `utilisation 93.1%, predicted 95.0% (24 s of training, exchange 1.2 s)`."""
    measured, phase = forecast.measured_utilisation, forecast.phase
    so_far = "" if measured is None else f"{measured:.1%}, "
    times = f"{phase.compute_seconds:.3g} s of training, exchange {phase.exchange_seconds:.3g} s"
    return f"utilisation {so_far}predicted {phase.utilisation:.1%} ({times})"
