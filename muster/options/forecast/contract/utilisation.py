"""The share of time that a run trains, and the settings of its algorithm that reach a wanted one. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import ceil

from muster.contract.run.forecast import ExchangeSettings, Phase
from muster.options.forecast.contract.round_time import Exchange, round_seconds

# While the training loop waits, a replica reads its parameters and writes them: 0.063 s for 608 MB on an H200
# (docs/performance.md), which is twice as fast as this. A CPU copies as fast as this.
_COPIED = 1e10
_COPIES, _EAGER_COPIES = 2, 10  # an eager phase starts from an estimate, which is made then
SYNC_EVERY_MAX = 500
"""DiLoCo's own (arXiv 2311.08105): longer phases are known to cost quality."""
_FRAGMENTS = 4


def of_fragment(whole: Exchange, settings: ExchangeSettings) -> Exchange:
    """What is exchanged at a time, of an exchange of the whole model."""
    parameters = whole.parameters / settings.fragments
    return replace(whole, parameters=parameters, codec=settings.codec, far_codec=settings.far_codec)


def phase(whole: Exchange, settings: ExchangeSettings, step_seconds: float) -> Phase:
    """One phase of a run whose replicas all need as long for a step."""
    part = of_fragment(whole, settings)
    compute = settings.sync_every / settings.fragments * step_seconds
    beside = compute if settings.eager else settings.delay * step_seconds
    exchange = round_seconds(part)
    copied = (_EAGER_COPIES if settings.eager else _COPIES) * part.plain / (_COPIED * part.threads)
    blocked = max(0.0, exchange - beside) + copied
    return Phase(
        settings=settings,
        compute_seconds=compute,
        exchange_seconds=exchange,
        blocked_seconds=blocked,
        utilisation=compute / (compute + blocked),
    )


def proposal(whole: Exchange, known: ExchangeSettings, step_seconds: float, target: float) -> Phase | None:
    """The first settings that reach the target: those that change the least come first. None: none does.

    Phases grow before bytes shrink, and the exchange runs beside the training last: each costs some quality.
    """
    for tried in _tried(known):
        over = ceil(round_seconds(of_fragment(whole, tried)) / step_seconds)
        for steps in range(known.sync_every, max(known.sync_every, SYNC_EVERY_MAX) + 1):
            # What is merged should not be older than half a phase.
            delay = min(over, steps // tried.fragments // 2) if tried.delay and tried != known else tried.delay
            found = phase(whole, tried.model_copy(update={"sync_every": steps, "delay": delay}), step_seconds)
            if found.utilisation >= target and steps % tried.fragments == 0:
                return found
    return None


def _tried(known: ExchangeSettings) -> Iterator[ExchangeSettings]:
    yield known
    plain = known.model_copy(update={"fragments": 1, "delay": 0, "eager": False})
    for fragments, delay in ((1, 0), (1, 1), (_FRAGMENTS, 1)):
        for codec in (known.codec, "int8", "int4"):
            yield plain.model_copy(update={"codec": codec, "fragments": fragments, "delay": delay})
