"""The seats of an elastic run in words. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from muster.contract.run.seat_states import SeatChange, SeatState, SeatsView
from muster.contract.timestamps import parse

AWAY = {SeatState.LEAVING, SeatState.PARKED}
"""The states of seats that are not wanted."""
_SHOWN = (SeatState.LEAVING, SeatState.LOST, SeatState.ENDED, SeatState.PARKED)


def seats_text(seats: SeatsView) -> str:
    """`6 of 8 wanted, 2 waiting for ml.p5.48xlarge, 24 parked`: how many train, and where the others are."""
    counts = Counter[SeatState]()
    for group in seats.groups:
        counts[group.state] += group.count
    words = [f"{seats.present} of {seats.wanted} wanted"]
    words += [f"{counts[SeatState.STARTING]} starting"] * bool(counts[SeatState.STARTING])
    waiting = (group for group in seats.groups if group.state is SeatState.WAITING)
    words += [f"{group.count} waiting for {group.reason}" for group in waiting]
    words += [f"{counts[state]:,} {state}" for state in _SHOWN if counts[state]]
    return ", ".join(words)


def seat_lines(seats: SeatsView) -> Iterator[str]:
    """A line for all seats that wait for the same, or are parked: they have no job to show."""
    for group in seats.groups:
        whose = f"rank{'s' if group.count > 1 else ''} {group.ranks}"
        if group.state is SeatState.WAITING:
            when = "" if group.until is None else f", next look {parse(group.until):%H:%M} UTC"
            yield f"{whose}: waiting for {group.reason}{when}"
        elif group.state is SeatState.PARKED:
            yield f"{whose}: {group.state}{f', {group.reason}' if group.reason else ''}"


def limits_text(seats: SeatsView) -> str:
    """`2 to 32 are allowed`."""
    return f"{seats.least} to {seats.most:,} are allowed"


def ranks_words(opened: str, closed: str) -> str:
    """`ranks 8-15 open`, `ranks 2,5 leave`; empty for neither."""
    found = ((opened, "open"), (closed, "leave"))
    return ", ".join(f"rank{'' if ranks.isdecimal() else 's'} {ranks} {verb}" for ranks, verb in found if ranks)


def change_text(change: SeatChange) -> str:
    """`16 replicas are wanted: ranks 8-15 open`."""
    wanted = f"{change.replicas:,} replica{'s are' if change.replicas != 1 else ' is'} wanted"
    return ": ".join(filter(None, (wanted, ranks_words(change.opened, change.closed))))


def outcomes_text(outcomes: Iterable[str]) -> str:
    """`4 of 6 succeeded, 26 parked`, of the outcomes of all seats of a run that has ended."""
    counts = Counter(outcomes)
    parked = counts.pop("parked", 0)
    return f"{counts['succeeded']} of {counts.total()} succeeded{f', {parked:,} parked' if parked else ''}"
