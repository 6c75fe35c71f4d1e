"""Runs over three places of two accounts: an exchange over long links, shortages, and a region that goes dark.

The embedded cloud has the deployed stack with its outposts. The links between its regions have a round trip of 150 ms
and 2.5 Gb/s. All of it shares the cores of one machine: on a busy one every figure is larger.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any

from botocore.exceptions import ClientError

from bench.deployed_stack import Stack
from bench.table import Row
from muster.contract import timestamps
from muster.contract.layout import RunLayout
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit
from muster.contract.run.result import Result
from muster.contract.run.time_use import Activity, seconds_of
from muster.contract.spec.place_names import HOME
from muster.local import LocalCloud, Settings
from muster.local.faults import CapacityError, DarkRegion, QuotaError
from muster.options.places.local.link_settings import LinkSettings
from muster.options.places.local.place_settings import PlacesSettings
from muster.replica.wire.rendezvous_keys import contribution

_ROOT = Path(__file__).resolve().parents[1]
_ADDED = ["oregon=us-west-2", "tokyo=ap-northeast-1/210987654321"]
_LINK = LinkSettings(latency_seconds=0.150, bytes_per_second=2.5e9 / 8)
_REPLICA = {"source_dir": None, "instance_type": "ml.m5.large", "max_runtime_seconds": 3600}

_SYNC_EVERY, _DELAY = 100, 75
# CPU time of a step of the example with its own batches, on the machine of the figures: the pace of a core of its own.
_CORE_SECONDS = 0.0145
# GPT-2 small (124 million parameters), 16 x 1,024 tokens a step, at 40 % of the 989 TFLOP/s of an H100 (bf16), with 6
# FLOP for a parameter and a token.
_H100_SECONDS = 0.031
_SETTLED = 2  # rounds until the replicas, which do not start at the same time, are in step

_CHAINS = 2
_CYCLE = (HOME, "oregon", "tokyo", HOME)
_TYPES = ("m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge", "c5.xlarge", "c5.2xlarge", "c5.4xlarge", "c5.9xlarge")

_DARK_AFTER, _GRACE_SECONDS = 3, 5  # rounds, seconds
_DARK_SPEC: dict[str, Any] = {
    **_REPLICA,
    "replicas": 6,
    "places": {"ladder": [{"place": "oregon", "at_most": 2}, {"place": "tokyo", "at_most": 2}, {"place": HOME}]},
    "rendezvous": {"min_participants": 2, "grace_seconds": _GRACE_SECONDS},
    "trainer": "examples.digits.trainer:train",
    "kwargs": {"rounds": 10, "seconds_per_round": 2.0},
}
_TRAINS_AFTER_SECONDS = 2.0  # once a round is committed
_POLL_SECONDS = 0.1


def run() -> list[Row]:
    """All rows; three minutes on two idle cores."""
    with _open_places() as stack:
        return [*_blocked_rows(stack), *_shortage_rows(stack), *_dark_rows(stack)]


@contextmanager
def _open_places() -> Iterator[Stack]:
    """A cloud with places, to which `muster deploy` has deployed the stack and its outposts."""
    with tempfile.TemporaryDirectory() as folder:
        places = PlacesSettings(add=_ADDED, links=(_LINK,))
        settings = Settings(port=0, end_with_parent=True, services={"places": places}, code=(_ROOT,))
        began = time.monotonic()
        with LocalCloud.start(Path(folder, "cloud"), settings) as cloud:
            cloud_seconds = time.monotonic() - began
            program = str(Path(sys.executable).with_name("muster"))
            command = [program, "deploy", "--json", "--yes", "--target", "local"]
            done = subprocess.run(
                command, cwd=folder, env=cloud.environment(), stdout=subprocess.PIPE, text=True, check=True
            )
            yield Stack(cloud, json.loads(done.stdout.splitlines()[-1])["outputs"], cloud_seconds)


# --- the exchange ---------------------------------------------------------------------------------------------------


def _blocked_rows(stack: Stack) -> list[Row]:
    eager = _train_gpt(stack, "eager", _CORE_SECONDS, 8, eager=True)
    delayed = _train_gpt(stack, "delayed", _H100_SECONDS, 6, delay=_DELAY, alpha=0.5)
    alone = _train_gpt(stack, "apart", _CORE_SECONDS, 5)
    name = f"blocked / wall, GPT example in 3 places, H = {_SYNC_EVERY}"
    core = f"a step is given {_CORE_SECONDS * 1e3:.1f} ms, its time on one core alone"
    gpu = f"a step is given {_H100_SECONDS * 1e3:.0f} ms, as GPT-2 small takes on an H100 (its 496 MB are not sent)"
    rest = f"1 replica a place, 0.45 MB; from round {_SETTLED + 1} on, a round trained"
    apart = [_shares(commit) for commit in alone]
    exchange = median(sum(each) for commit in apart for each in commit)
    waits = fmean(waited for commit in apart for waited, _ in commit)
    return [
        Row(f"{name}, eager", _blocked(eager), "", "<= 0.05", _blocked(alone), f"{core}; {rest} {_trained(eager)}"),
        Row(f"{name}, delay {_DELAY}", _blocked(delayed), "", "<= 0.05", note=f"{gpu}; {rest} {_trained(delayed)}"),
        Row(
            "exchange of the GPT example between 3 places, not overlapped",
            exchange,
            "s",
            note=f"{exchange / _LINK.latency_seconds:.1f} round trips; {waits:.2f} s of it wait for the others",
        ),
    ]


def _train_gpt(stack: Stack, name: str, step_seconds: float, rounds: int, **algorithm: float) -> list[Commit]:
    """The commits of a run with a replica in each place."""
    pace = {"sync_every": _SYNC_EVERY, "steps": rounds * _SYNC_EVERY, "step_seconds": step_seconds}
    places = {HOME: 1, **{added.partition("=")[0]: 1 for added in _ADDED}}
    trainer = {"trainer": "bench.paced_char_gpt:train", "kwargs": {**pace, **algorithm}}
    stack.train(name, {**_REPLICA, **trainer, "replicas": len(places), "places": places})
    commits = [_commit(stack, name, number) for number in range(1, rounds + 1)]
    return [commit for commit in commits if commit is not None][_SETTLED:]


def _blocked(commits: list[Commit]) -> float:
    return 1 - fmean(member.metrics["utilisation"] for commit in commits for member in commit.members)


def _trained(commits: list[Commit]) -> str:
    seconds = [seconds_of(member.time)[Activity.TRAINING] for commit in commits for member in commit.members]
    return f"{min(seconds):.1f} to {max(seconds):.1f} s"


def _shares(commit: Commit) -> list[tuple[float, float]]:
    """For each member, how long it has waited for others since its contribution before, and exchanged."""
    spent = [seconds_of(member.time) for member in commit.members]
    return [(one.get(Activity.WAITING, 0.0), one.get(Activity.EXCHANGING, 0.0)) for one in spent]


def _commit(stack: Stack, name: str, number: int) -> Commit | None:
    """The commit of a round, if there is one."""
    key = f"{RunLayout(name).commits}{number:08d}.json"
    try:
        body = stack.cloud.client("s3").get_object(Bucket=stack.outputs["BucketName"], Key=key)["Body"].read()
    except ClientError:
        return None
    return Commit.from_json(body, key)


# --- shortages ------------------------------------------------------------------------------------------------------


def _shortage_rows(stack: Stack) -> list[Row]:
    """Replicas that climb a ladder: every rung but the last one has no quota (Oregon) or no capacity."""
    elsewhere: list[float] = []
    same: list[float] = []
    for number in range(_CHAINS):
        for before, after in pairwise(_climbed(stack, f"chain-{number}").replicas[0].attempts):
            assert before.where is not None
            assert after.where is not None
            moved = before.where.place != after.where.place
            (elsewhere if moved else same).append(_created(stack, after) - _ended(stack, before))
    name = "shortage to CreateTrainingJob of the next rung, in another place"
    note = f"{len(elsewhere)} in a row, functions warm; peer: {len(same)} from home to another type at home"
    return [
        Row(f"{name}, median", median(elsewhere), "s", None, median(same), note),
        Row(f"{name}, p95", quantiles(elsewhere, n=20)[-1], "s", "<= 1", quantiles(same, n=20)[-1], note),
    ]


def _climbed(stack: Stack, name: str) -> Result:
    rungs = [{"place": _CYCLE[number % 4], "instance_type": f"ml.{_TYPES[number // 2]}"} for number in range(16)]
    home = sum(rung["place"] == HOME for rung in rungs)
    job = f"*-{name}-*"
    for fault in (
        QuotaError(job=job, place="oregon", count=None),
        CapacityError(job=job, place="tokyo", count=None),
        CapacityError(job=job, place=HOME, count=home - 1),
    ):
        stack.cloud.faults.add(fault)
    trainer = {"trainer": "examples.digits.trainer:train", "kwargs": {"rounds": 1}}
    return stack.train(name, {**_REPLICA, **trainer, "replicas": 1, "places": {"ladder": rungs}})


def _created(stack: Stack, attempt: Attempt) -> float:
    """When its job was created; of a request that was refused, when the answer had come."""
    return _at(stack, attempt, "CreationTime")


def _ended(stack: Stack, attempt: Attempt) -> float:
    """When its job ended; of a request that was refused, when the answer had come."""
    return _at(stack, attempt, "LastModifiedTime")


def _at(stack: Stack, attempt: Attempt, time_: str) -> float:
    assert attempt.where is not None
    assert attempt.ended_at is not None
    if not attempt.was_created:
        return timestamps.parse(attempt.ended_at).timestamp()
    at = stack.cloud if attempt.where.is_home else stack.cloud.at(attempt.where.place)
    return float(at.client("sagemaker").describe_training_job(TrainingJobName=attempt.job)[time_].timestamp())


# --- a dark region --------------------------------------------------------------------------------------------------


def _dark_rows(stack: Stack) -> Iterator[Row]:
    """Of two regions one goes dark in the midst of an exchange, the other one while its replicas train."""
    for place, moment in (("oregon", "exchanges"), ("tokyo", "trains")):
        with ThreadPoolExecutor(max_workers=1) as pool:
            training = pool.submit(stack.train, f"dark-{place}", _DARK_SPEC)
            commits, at = _darkened(stack, place, moment, training)
            replicas = training.result().replicas
        stack.cloud.faults.clear()
        without = next(n for n, one in enumerate(commits) if n >= _DARK_AFTER and not _has(one, place))
        usual = median(later - earlier for earlier, later in pairwise(at[:_DARK_AFTER]))
        lost = at[without] - at[_DARK_AFTER - 1] - (without - _DARK_AFTER + 1) * usual
        attempts = [pair for own in replicas for pair in pairwise(own.attempts)]
        moved = [_created(stack, new) - at[without] for old, new in attempts if old.where and old.where.place == place]
        whole = next((at[n] - at[without] for n in range(without, len(at)) if _is_whole(commits[n])), None)
        trained = "in no round before the run ended" if whole is None else f"in a round {whole:.1f} s later"
        name = f"region dark while it {moment}"
        note = f"aim: the grace window; a round takes {usual:.1f} s"
        yield Row(f"{name}: what the others lose", lost, "s", f"<= {_GRACE_SECONDS}", note=note)
        note = f"{len(moved)} replicas, the start of their jobs not counted; {trained}"
        yield Row(
            f"{name}: from the first round without it to the last job elsewhere", max(moved), "s", "<= 2", note=note
        )


def _darkened(stack: Stack, place: str, moment: str, training: Future[Result]) -> tuple[list[Commit], list[float]]:
    """The commits of a run, and when each was there; `place` is dark from a round on until all train elsewhere."""
    commits: list[Commit] = []
    at: list[float] = []
    while not training.done():
        commit = _commit(stack, f"dark-{place}", len(commits) + 1)
        if commit is None:
            time.sleep(_POLL_SECONDS)
            continue
        commits.append(commit)
        at.append(time.time())
        if commit.round == _DARK_AFTER:
            if moment == "trains":
                time.sleep(_TRAINS_AFTER_SECONDS)
            else:
                _await_contributions(stack, commit, place)
            stack.cloud.faults.add(DarkRegion(place=place))
        elif commit.round > _DARK_AFTER and _is_whole(commit) and not _has(commit, place):
            stack.cloud.faults.clear()
    return commits, at


def _await_contributions(stack: Stack, commit: Commit, place: str) -> None:
    """Wait until the replicas of `place` have contributed to the round after `commit`; their sum is not stored yet."""
    s3, bucket, prefix = stack.cloud.client("s3"), stack.outputs["BucketName"], RunLayout(commit.run).rendezvous
    keys = [contribution(commit.round + 1, one.rank, one.epoch) for one in commit.members if one.place == place]
    while any(not s3.list_objects_v2(Bucket=bucket, Prefix=prefix + key)["KeyCount"] for key in keys):
        time.sleep(_POLL_SECONDS)


def _has(commit: Commit, place: str) -> bool:
    return place in {member.place for member in commit.members}


def _is_whole(commit: Commit) -> bool:
    return len(commit.members) == _DARK_SPEC["replicas"]
