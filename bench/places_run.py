"""Runs over three places of two accounts: an exchange over long links, shortages, and regions that go dark.

The embedded cloud has the deployed stack with its outposts. The links between its regions have a round trip of 150 ms
and 2.5 Gb/s. All of it shares the cores of one machine: on a busy one every figure is larger.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean, median, quantiles

from bench.dark_region import dark_rows
from bench.placed_stack import LINK, OREGON, REPLICA, TOKYO, PlacedStack, open_placed_stack
from bench.table import Row
from muster.contract.run.commit import HOME, Commit
from muster.contract.run.result import Result
from muster.contract.run.time_use import Activity, seconds_of
from muster.local.faults import CapacityError, QuotaError

_SYNC_EVERY, _DELAY = 100, 75
# CPU time of a step of the example with its own batches, on the machine of the figures: its pace on a core of its own.
_CORE_SECONDS = 0.0145
# GPT-2 small (124 million parameters), 16 x 1,024 tokens a step, at 40 % of the 989 TFLOP/s of an H100 (bf16), with 6
# FLOP for a parameter and a token.
_H100_SECONDS = 0.031
_SETTLED = 2  # rounds until the replicas, which do not start at the same time, are in step

_CHAINS = 2
_CYCLE = (HOME, OREGON, TOKYO, HOME)
_TYPES = ("m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "c5.xlarge", "c5.2xlarge", "c5.4xlarge", "c5.9xlarge")


def run() -> list[Row]:
    """All rows; some minutes."""
    with open_placed_stack() as stack:
        return [*_blocked_rows(stack), *_shortage_rows(stack), *dark_rows(stack)]


def _blocked_rows(stack: PlacedStack) -> list[Row]:
    """The GPT example with a replica in each place, whose exchange runs beside its steps or not."""
    eager = _trained_gpt(stack, "eager", _CORE_SECONDS, 7, eager=True)
    delayed = _trained_gpt(stack, "delayed", _H100_SECONDS, 5, delay=_DELAY, alpha=0.5)
    alone = _trained_gpt(stack, "alone", _CORE_SECONDS, 4)
    name = f"blocked / wall, GPT example in 3 places, H = {_SYNC_EVERY}"
    core = f"paced at {_CORE_SECONDS * 1e3:.1f} ms a step, as on a core of its own"
    gpu = f"paced at {_H100_SECONDS * 1e3:.0f} ms a step, as GPT-2 small on an H100 (its 496 MB are not sent)"
    waits = fmean(each[Activity.WAITING] for each in _spent(alone))
    exchanges = median(each[Activity.WAITING] + each[Activity.EXCHANGING] for each in _spent(alone))
    note = f"{exchanges / LINK.latency_seconds:.1f} round trips; {waits:.2f} s are waits for others; on a busy machine"
    return [
        Row(f"{name}, eager", _blocked(eager), "", "<= 0.05", _blocked(alone), f"{core}; peer: not overlapped"),
        Row(f"{name}, delay {_DELAY}", _blocked(delayed), "", "<= 0.05", note=gpu),
        Row("exchange of the GPT example, 0.45 MB, 3 places, not overlapped", exchanges, "s", note=note),
    ]


def _trained_gpt(stack: PlacedStack, name: str, step_seconds: float, rounds: int, **algorithm: float) -> list[Commit]:
    """The commits of a run, once its replicas are in step."""
    pace = {"sync_every": _SYNC_EVERY, "steps": rounds * _SYNC_EVERY, "step_seconds": step_seconds}
    trainer = {"trainer": "bench.paced_char_gpt:train", "kwargs": {**pace, **algorithm}}
    stack.train(name, {**REPLICA, **trainer, "replicas": 3, "places": {HOME: 1, OREGON: 1, TOKYO: 1}})
    commits = [stack.commit(name, number) for number in range(_SETTLED + 1, rounds + 1)]
    return [commit for commit in commits if commit is not None]


def _blocked(commits: list[Commit]) -> float:
    return 1 - fmean(member.metrics["utilisation"] for commit in commits for member in commit.members)


def _spent(commits: list[Commit]) -> list[dict[Activity, float]]:
    """Seconds of each replica from one contribution to the next."""
    nothing = dict.fromkeys(Activity, 0.0)
    return [{**nothing, **seconds_of(member.time)} for commit in commits for member in commit.members]


def _shortage_rows(stack: PlacedStack) -> list[Row]:
    """A replica climbs a ladder whose rungs have no quota (Oregon) or no capacity, but for the last one."""
    results = [_climbed(stack, f"chain-{number}") for number in range(_CHAINS)]
    elsewhere: list[float] = []
    at_home: list[float] = []
    for before, after in (pair for result in results for pair in pairwise(result.replicas[0].attempts)):
        stays = before.where is not None and after.where is not None and before.where.place == after.where.place
        (at_home if stays else elsewhere).append(stack.created(after) - stack.ended(before))
    name = "shortage to CreateTrainingJob of the next rung, in another place"
    note = f"{len(elsewhere)} in a row, functions warm; peer: {len(at_home)} from home to another type at home"
    return [
        Row(f"{name}, median", median(elsewhere), "s", None, median(at_home), note),
        Row(f"{name}, p95", quantiles(elsewhere, n=20)[-1], "s", "<= 1", quantiles(at_home, n=20)[-1], note),
    ]


def _climbed(stack: PlacedStack, name: str) -> Result:
    rungs = [{"place": _CYCLE[number % 4], "instance_type": f"ml.{_TYPES[number // 2]}"} for number in range(16)]
    job, home = f"*-{name}-*", sum(rung["place"] == HOME for rung in rungs)
    stack.cloud.faults.add(QuotaError(job=job, place=OREGON, count=None))
    stack.cloud.faults.add(CapacityError(job=job, place=TOKYO, count=None))
    stack.cloud.faults.add(CapacityError(job=job, place=HOME, count=home - 1))
    trainer = {"trainer": "examples.digits.trainer:train", "kwargs": {"rounds": 1}}
    return stack.train(name, {**REPLICA, **trainer, "replicas": 1, "places": {"ladder": rungs}})
