"""The settings that all replicas of a run must share: the first to join stores them, all others check theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace

from muster.contract.document import StoredDocument
from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.codecs import codec_named
from muster.replica.parts.link import by_first
from muster.replica.replica_errors import AlgorithmError, RendezvousError
from muster.replica.rounds.commit_store import stored_document
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.store.transport import ObjectExistsError
from muster.replica.wire import rendezvous_keys

Setting = bool | int | float | str

# A run of an older version does not name the settings that came after it: it trains with their defaults.
_DEFAULTS: dict[str, Setting] = asdict(Algorithm())


class RunOptions(StoredDocument):
    """How a run trains, and the codec of its values."""

    run: str
    codec: str
    settings: dict[str, Setting]


def agree_on_options(context: RoundContext, codec: str, settings: Mapping[str, Setting]) -> RoundContext:
    """The context of a process that uses `codec` from now on, after a check that it trains like the run.

    The first process of a run stores its settings. All processes of a replica call this.

    Raises:
        AlgorithmError: it does not; names the settings that differ.
        RendezvousError: the object does not hold the options of this run.
    """
    factor, fragments = float(settings.get("outlier_factor", 0.0)), int(settings.get("fragments", 1))
    places = context.places and context.places.coded(str(settings.get("far_codec", "")))
    agreed = replace(context, codec=codec_named(codec), outlier_factor=factor, fragments=fragments, places=places)
    by_first(context.link, lambda: _agree(agreed, settings))
    return agreed


def _agree(context: RoundContext, settings: Mapping[str, Setting]) -> None:
    own = RunOptions(run=context.run, codec=context.codec.label, settings=dict(settings))
    try:
        context.store.create(rendezvous_keys.OPTIONS, own.to_json())
    except ObjectExistsError as error:
        if (stored := stored_options(context)) is None:
            raise RendezvousError(str(error)) from None
        _compare(own, stored)
    else:
        log.info("event=options codec=%s", own.codec)


def stored_options(context: RoundContext) -> RunOptions | None:
    """The settings of the run; None if no process has joined it yet.

    Raises:
        RendezvousError: the object does not hold the options of this run.
    """
    options = stored_document(context.store, rendezvous_keys.OPTIONS, RunOptions)
    if options is not None and options.run != context.run:
        uri = context.store.uri(rendezvous_keys.OPTIONS)
        message = f"{uri} holds the options of the run {options.run}, not of {context.run}."
        raise RendezvousError(message)
    return options


def _compare(own: RunOptions, run: RunOptions) -> None:
    ours, theirs = ({"codec": options.codec, **options.settings} for options in (own, run))
    theirs |= {name: _DEFAULTS[name] for name in ours.keys() & _DEFAULTS.keys() - theirs.keys()}
    different = [
        f"{name} is {ours.get(name, 'not set')} here and {theirs.get(name, 'not set')} in the run"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    if different:
        message = f"All replicas of a run must use the same settings: {'; '.join(different)}."
        raise AlgorithmError(message)
