"""An invented sweep of any size, for the page in tests."""

import random
from datetime import UTC, datetime, timedelta

from muster.contract import timestamps
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.contract.run.commit import Commit, Member
from muster.contract.run.plan import Place, Plan
from muster.contract.spec.spec_reader import parse_spec
from muster.report.page_model import PageInput, ReplicaView
from muster.report.sweep import SweepRounds

_START = datetime(2026, 5, 4, 3, 0, tzinfo=UTC)
_PLACE = Place(bucket="muster-sample", role_arn="arn:aws:iam::123456789012:role/Replica", job_prefix="muster")
_EXECUTION = "arn:aws:states:us-east-1:123456789012:execution:Runs:sweep"
_RERUN = 1  # loses its instance once
LOST = 3  # fails


def _at(seconds: float) -> str:
    return timestamps.text(_START + timedelta(seconds=seconds))


def sample_sweep(replicas: int, rounds: int, *, text: str = "cosine") -> PageInput:
    """A sweep of learning rates, seeds and schedules; `text` is the name of a schedule."""
    chance = random.Random(11)  # noqa: S311 - no secret
    rates = [round(1e-4 * 2 ** (rank % 6), 6) for rank in range(replicas)]
    sweep = {
        "kwargs.optimizer.lr": rates,
        "kwargs.seed": list(range(replicas)),
        "kwargs.schedule": [text if rank % 2 else "linear" for rank in range(replicas)],
    }
    spec = parse_spec({"replicas": replicas, "trainer": "training:train", "image": "muster:1", "sweep": sweep})
    plan = Plan.make("sweep", _EXECUTION, _at(0), _PLACE, spec)
    table, views = SweepRounds(replicas, plan.created_at), []
    for rank in range(replicas):
        done = rounds // 3 if rank == LOST else rounds - rank % 3
        floor, loss = 0.2 + abs(rates[rank] - 4e-4) * 400, 0.0
        for round_ in range(1, done + 1):
            loss = round(floor + 2.2 / (1 + 0.4 * round_) + chance.uniform(-0.02, 0.02), 4)
            metrics = {"loss": loss, "accuracy": round(1 - loss / 3, 4), "utilisation": 0.97}
            table.add(_commit(rank, round_, metrics))
        metrics = {} if rank == LOST else {"loss": loss, "accuracy": round(1 - loss / 3, 4), "utilisation": 0.97}
        views.append(_view(rank, done, metrics))
    count = f"{sum(view.state == 'succeeded' for view in views)} of {replicas} replicas succeeded"
    return PageInput(plan, "succeeded", count, _at(4_000), _at(3_900), views, table.view())


def _commit(rank: int, round_: int, metrics: dict[str, float]) -> Commit:
    member = Member(rank=rank, attempt=1, incarnation=1, epoch=1, weight=64.0, checksum="0" * 8, metrics=metrics)
    return Commit(
        run="sweep", round=round_, committed_at=_at(200 + 60 * round_), count=1, members=(member,), epochs=(1,),
        expected_rounds=60, samples=64.0 * round_,
    )  # fmt: skip


def _view(rank: int, round_: int, metrics: dict[str, float]) -> ReplicaView:
    attempts = [_attempt(rank, 1, 10, 3_600 + 60 * rank, None)]
    state = "succeeded"
    if rank == _RERUN:
        attempts = [
            _attempt(rank, 1, 10, 900, FailureClass.INFRASTRUCTURE),
            _attempt(rank, 2, 960, 3_700, None),
        ]
    if rank == LOST:
        attempts, state = [_attempt(rank, 1, 10, 1_300, FailureClass.USER_CODE)], "failed"
    return ReplicaView(rank=rank, state=state, attempts=tuple(attempts), round=round_, metrics=metrics)


def _attempt(rank: int, number: int, begin: float, end: float, failure: FailureClass | None) -> Attempt:
    return Attempt(
        attempt=number,
        job=f"muster-sweep-r{rank}-a{number}",
        launched_at=_at(begin),
        ended_at=_at(end),
        status="Completed" if failure is None else "Failed",
        failure_class=failure,
        reason="" if failure is None else "training.py:41: ValueError: the loss is not a number",
        instance_type="ml.g5.2xlarge",
    )
