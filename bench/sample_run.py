"""An invented run of any size, for the pages in tests and measurements."""

from __future__ import annotations

import math
import random
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import NOT_CREATED, Attempt, Transition
from muster.contract.run.commit import Commit, Member
from muster.contract.run.model import ModelKind, ModelResult
from muster.contract.run.plan import Place, Plan
from muster.contract.run.time_use import Activity, RoundTimes, spent_on, time_use
from muster.contract.run.training_pace import pace_of
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.report.page_model import PageInput, ReplicaView
from muster.report.rounds import RoundTable

_START = datetime(2026, 5, 4, 3, 0, tzinfo=UTC)
_LAUNCH_SECONDS = 150.0
_PLACE = Place(bucket="muster-sample", role_arn="arn:aws:iam::123456789012:role/Replica", job_prefix="muster")
_MODEL = "s3://muster-sample/output/sample/model/"
_EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:Runs:sample"
# One replica in so many loses its instance, and one in so many waits for quota.
_LOSSES, _WAITS = 9, 23
_ROUNDS_SEEN = 16
_TRAINING_MAX = 0.93  # of a round, by the one for which the others wait
_SLOW_SHARE = 0.8  # of the rounds have the same replica as the last one
_LOAD_SECONDS = 12.0


def sample_run(replicas: int, rounds: int, *, round_seconds: float = 60.0, reason: str = "") -> PageInput:
    """A run that succeeded after reruns. The same arguments give the same run.

    `reason` is SageMaker's reason for the lost instances.
    """
    chance = random.Random(7)  # noqa: S311 - no secret
    plan = Plan.make(
        "sample",
        _EXECUTION,
        _iso(0),
        _PLACE,
        parse_spec(
            {
                "replicas": replicas,
                "trainer": "training:train",
                "image": "muster:1",
                "instance_type": "ml.g5.2xlarge",
                "environment": {"API_KEY": "swordfish"},
            }
        ),
    )
    end = _LAUNCH_SECONDS + rounds * round_seconds + 60
    lost = {
        rank: _LAUNCH_SECONDS + chance.uniform(0.2, 0.7) * rounds * round_seconds
        for rank in range(2, replicas, _LOSSES)
    }
    table, recent = RoundTable(replicas, plan.created_at), deque[Commit](maxlen=_ROUNDS_SEEN)
    times, use = _Times(replicas, round_seconds, chance), None
    for number in range(1, rounds + 1):
        at = _LAUNCH_SECONDS + number * round_seconds
        away = {rank for rank, when in lost.items() if when <= at < when + 3 * round_seconds + _LAUNCH_SECONDS}
        ranks = [rank for rank in range(replicas) if rank not in away]
        made = times.added(_commit(number, at, ranks, chance, rounds))
        before = recent[-1].waited_for if recent else None
        spent = RoundTimes([member.time for member in made.members], made.waited_for, before)
        use = time_use(use, spent)
        made = made.model_copy(update={"time_use": use})
        recent.append(made)
        pace = pace_of([commit.timed for commit in recent], replicas)
        table.add(made.model_copy(update={"pace": pace, "samples": number * made.counted}))
    views = [_replica(rank, end, lost.get(rank), reason, rounds) for rank in range(replicas)]
    count = f"{replicas} of {replicas} replicas succeeded"
    model = ModelResult(
        uri=_MODEL,
        kind=ModelKind.MODEL,
        round=rounds,
        bytes=13_476_839_424,
        files=5,
        checksum="ab" * 32,
        manifest=f"s3://muster-sample/output/sample/model-{rounds:08d}.json",
        manifest_sha256="cd" * 32,
        evaluation={"loss": 0.402},
    )
    page = PageInput(plan, "succeeded", count, _iso(end + 5), _iso(end), views, table.view())
    return replace(page, parameters_identical=True, model=model)


class _Times:
    """What the replicas of the run spend their time on. One of them is slow, and often the last one."""

    def __init__(self, replicas: int, round_seconds: float, chance: random.Random) -> None:
        self._seconds, self._chance = round_seconds, chance
        self._slow = 3 if replicas > 3 else replicas - 1
        self._waited: dict[int, float] = {}

    def added(self, commit: Commit) -> Commit:
        """The commit of the next round with the times of its members."""
        ranks, chance, seconds = [member.rank for member in commit.members], self._chance, self._seconds
        last = self._slow if self._slow in ranks and chance.random() < _SLOW_SHARE else chance.choice(ranks)
        members, waited = [], {}
        for member in commit.members:
            share = _TRAINING_MAX if member.rank == last else chance.uniform(0.7, 0.9) * _TRAINING_MAX
            stayed = member.rank in self._waited
            spent = {
                Activity.TRAINING: seconds * share,
                Activity.WAITING: self._waited.get(member.rank, 0.0),
                Activity.EXCHANGING: 0.05 * seconds * stayed,
                Activity.SAVING: 0.02 * seconds,
                Activity.LOADING: _LOAD_SECONDS * (not stayed),
            }
            waited[member.rank] = (_TRAINING_MAX - share) * seconds
            members.append(member.model_copy(update={"time": spent_on(spent)}))
        self._waited = waited
        arrivals = sorted(seconds * _TRAINING_MAX - one for one in waited.values())
        return commit.model_copy(
            update={
                "members": tuple(members),
                "last": last,
                "arrivals": tuple(round(one - arrivals[0], 3) for one in arrivals),
            }
        )


def _commit(number: int, at: float, ranks: list[int], chance: random.Random, rounds: int) -> Commit:
    loss = 0.4 + 2.2 * math.exp(-4 * number / rounds)
    # Without validation, which would take most of the time of a large run.
    members = tuple(
        Member.model_construct(
            rank=rank,
            attempt=1,
            incarnation=1,
            epoch=1,
            weight=65_536.0 * (2 if rank % 4 else 1),
            checksum="00000000",
            metrics={
                "loss": loss + chance.gauss(0, 0.05) + (rank % 7) * 0.01,
                "accuracy": 1 - loss / 3 + chance.gauss(0, 0.01),
                "utilisation": min(1.0, 0.93 + chance.gauss(0, 0.02)),
            },
        )
        for rank in ranks
    )
    return Commit.model_construct(
        run="sample",
        round=number,
        committed_at=_iso(at),
        count=1,
        members=members,
        epochs=(1,),
        unit="tokens",
        expected_rounds=rounds,
    )


def _replica(rank: int, end: float, lost: float | None, reason: str, rounds: int) -> ReplicaView:
    attempts = []
    launch = rank * 0.05
    if rank % _WAITS == 1:
        attempts.append(
            Attempt(
                attempt=1,
                job=f"muster-sample-r{rank}-a1",
                secondary=NOT_CREATED,
                launched_at=_iso(launch),
                ended_at=_iso(launch + 1),
                failure_class=FailureClass.QUOTA,
                reason="ResourceLimitExceeded: the account-level service limit is 0 instances",
            )
        )
        launch += 60
    if lost is not None:
        attempts.append(_attempt(rank, len(attempts) + 1, launch, lost, why=FailureClass.INFRASTRUCTURE, reason=reason))
        launch = lost + 30
    attempts.append(_attempt(rank, len(attempts) + 1, launch, end))
    return ReplicaView(
        rank=rank,
        state="succeeded",
        attempts=tuple(attempts),
        round=rounds,
        metrics={"loss": 0.41, "accuracy": 0.86},
        checkpoint_uri=_MODEL,
        artifacts=f"s3://muster-sample/output/sample/muster-sample-r{rank}-a{len(attempts)}/output/model.tar.gz",
    )


def _attempt(
    rank: int, number: int, launch: float, end: float, *, why: FailureClass | None = None, reason: str = ""
) -> Attempt:
    steps = [(2, "Starting"), (40, "Downloading"), (90, "Training"), (end - launch - 20, "Uploading")]
    return Attempt(
        attempt=number,
        job=f"muster-sample-r{rank}-a{number}",
        instance_type="ml.g5.2xlarge",
        launched_at=_iso(launch),
        ended_at=_iso(end),
        status="Completed" if why is None else "Failed",
        secondary="Completed" if why is None else "Failed",
        failure_class=why,
        reason=reason,
        history=tuple(Transition(at=_iso(launch + after), secondary=name) for after, name in steps if after > 0),
    )


def _iso(seconds: float) -> Timestamp:
    return timestamps.text(_START + timedelta(seconds=seconds))
