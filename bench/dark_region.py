"""What a region costs that goes dark: the others' time, and the time until its replicas have jobs elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import pairwise
from statistics import median
from typing import Any

from bench.placed_stack import OREGON, REPLICA, TOKYO, PlacedStack
from bench.table import Row
from muster.contract.run.commit import HOME, Commit
from muster.contract.run.result import Result
from muster.local.faults import DarkRegion

_REPLICAS = 6
_GRACE_SECONDS = 5
_SPEC: dict[str, Any] = {
    **REPLICA,
    "replicas": _REPLICAS,
    "places": {"ladder": [{"place": OREGON, "at_most": 2}, {"place": TOKYO, "at_most": 2}, {"place": HOME}]},
    "rendezvous": {"min_participants": 2, "grace_seconds": _GRACE_SECONDS},
    "trainer": "examples.digits.trainer:train",
    "kwargs": {"rounds": 8, "seconds_per_round": 2.0},
}
_DARK_AFTER = 3  # rounds
_EXCHANGES, _TRAINS = "exchanges", "trains"
_TRAINS_AFTER_SECONDS = 2.0  # once a round is committed
_POLL_SECONDS = 0.1


def dark_rows(stack: PlacedStack) -> Iterator[Row]:
    """Of two regions one goes dark in the midst of an exchange, the other one while its replicas train."""
    for place, moment in ((OREGON, _EXCHANGES), (TOKYO, _TRAINS)):
        with ThreadPoolExecutor(max_workers=1) as pool:
            training = pool.submit(stack.train, f"dark-{place}", _SPEC)
            commits, at = _darken(stack, place, moment, training)
            result = training.result()
        stack.cloud.faults.clear()
        first = next(n for n, one in enumerate(commits) if n >= _DARK_AFTER and place not in _places_of(one))
        usual = median(later - earlier for earlier, later in pairwise(at[:_DARK_AFTER]))
        lost = at[first] - at[_DARK_AFTER - 1] - (first - _DARK_AFTER + 1) * usual
        attempts = [pair for own in result.replicas for pair in pairwise(own.attempts)]
        left = [new for old, new in attempts if old.was_created and old.where and old.where.place == place]
        moved = [stack.created(new) - at[first] for new in left]
        whole = next((at[n] - at[first] for n in range(first, len(at)) if len(commits[n].members) == _REPLICAS), None)
        trained = "in no round before the run ended" if whole is None else f"in a round {whole:.1f} s later"
        name = f"region dark while it {moment}"
        note = f"aim: the grace window; a round takes {usual:.1f} s"
        yield Row(f"{name}: what the others lose", lost, "s", f"<= {_GRACE_SECONDS}", note=note)
        note = f"{len(moved)} replicas, the start of their jobs not counted; {trained}"
        yield Row(f"{name}: from a round without it to the last job elsewhere", max(moved), "s", "<= 2", note=note)


def _darken(stack: PlacedStack, place: str, moment: str, training: Future[Result]) -> tuple[list[Commit], list[float]]:
    """The commits of a run, and when each was there. `place` is dark from a round on until all train elsewhere."""
    commits: list[Commit] = []
    at: list[float] = []
    while not training.done():
        commit = stack.commit(f"dark-{place}", len(commits) + 1)
        if commit is None:
            time.sleep(_POLL_SECONDS)
            continue
        commits.append(commit)
        at.append(time.time())
        if commit.round == _DARK_AFTER:
            if moment == _TRAINS:
                time.sleep(_TRAINS_AFTER_SECONDS)
            # With what they have contributed the round will be committed: it lacks their sum.
            while moment == _EXCHANGES and not stack.has_next(commit, place):
                time.sleep(_POLL_SECONDS)
            stack.cloud.faults.add(DarkRegion(place=place))
        elif commit.round > _DARK_AFTER and len(commit.members) == _REPLICAS and place not in _places_of(commit):
            stack.cloud.faults.clear()
    return commits, at


def _places_of(commit: Commit) -> set[str]:
    return {member.place for member in commit.members}
