"""What all replicas of a run must have set alike: stored by the first that joins, checked by all others."""

from __future__ import annotations

from collections.abc import Mapping

from muster.contract.document import Document
from muster.contract.errors import DocumentError
from muster.replica.errors import AlgorithmError, RendezvousError
from muster.replica.rounds.round_context import Meeting, log
from muster.replica.store.transport import ObjectExistsError, ObjectMissingError
from muster.replica.wire import keys

Setting = bool | int | float | str


class RunOptions(Document):
    """How a run trains, and what it exchanges its values in."""

    run: str
    codec: str
    settings: dict[str, Setting]


def agree_on_options(meeting: Meeting, settings: Mapping[str, Setting]) -> None:
    """See that this process trains as the run does; whoever comes first says how that is.

    Raises:
        AlgorithmError: it does not; names what differs.
        RendezvousError: what lies there are no options of this run.
    """
    own = RunOptions(run=meeting.run, codec=meeting.codec.label, settings=dict(settings))
    try:
        meeting.store.create(keys.OPTIONS, own.to_json())
    except ObjectExistsError:
        _compare(own, _read(meeting))
    else:
        log.info("event=options codec=%s", own.codec)


def _read(meeting: Meeting) -> RunOptions:
    uri = meeting.store.uri(keys.OPTIONS)
    try:
        options = RunOptions.from_json(bytes(meeting.store.read(keys.OPTIONS).body), uri)
    except (DocumentError, ObjectMissingError) as error:
        raise RendezvousError(str(error)) from None
    if options.run != meeting.run:
        message = f"{uri} holds the options of the run {options.run}, not of {meeting.run}."
        raise RendezvousError(message)
    return options


def _compare(own: RunOptions, run: RunOptions) -> None:
    ours, theirs = ({"codec": options.codec, **options.settings} for options in (own, run))
    different = [
        f"{name} is {ours.get(name, 'not set')} here and {theirs.get(name, 'not set')} in the run"
        for name in sorted(ours.keys() | theirs.keys())
        if ours.get(name) != theirs.get(name)
    ]
    if different:
        message = f"All replicas of a run must train alike: {'; '.join(different)}."
        raise AlgorithmError(message)
