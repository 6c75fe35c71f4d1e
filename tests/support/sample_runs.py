"""A list of runs for tests and pictures: the same for the same number."""

import random
from datetime import UTC, datetime, timedelta

from muster.client.aws.deployed_stack import Stack
from muster.client.runs.run_list import RunSummary
from muster.client.runs.run_state import RunState
from muster.contract import timestamps
from muster.contract.run.ended_run import FailureCount

STACK = Stack("Muster", "arn:aws:states:us-west-2:123456789012:stateMachine:Muster", "muster-bucket", "muster")
NEWEST = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)
_REASONS = {
    RunState.SUCCEEDED: "8 of 8 replicas succeeded",
    RunState.FAILED: "5 of 8 replicas succeeded; 6 were needed; replica 3: the trainer raised ValueError: no rows",
    RunState.STOPPED: "the execution was stopped",
}


def sample_runs(count: int) -> list[RunSummary]:
    """`count` runs, the newest first, six hours apart; the newest one is in progress."""
    chance = random.Random(4)  # noqa: S311 - a sample
    running = RunSummary(run="gpt-0000", state=RunState.RUNNING, started_at=timestamps.text(NEWEST), replicas=8)
    return [running, *(_ended(number, chance) for number in range(1, count))]


def _ended(number: int, chance: random.Random) -> RunSummary:
    state = chance.choices(list(_REASONS), [8, 2, 1])[0]
    started = NEWEST - timedelta(hours=6 * number)
    lost = {"spot": chance.randint(0, 4), "infrastructure": chance.randint(0, 2)}
    failures = [FailureCount(failure_class=name, attempts=n, reruns=n) for name, n in lost.items() if n]
    if state is RunState.FAILED:
        failures.append(FailureCount(failure_class="user-code", attempts=1))
    return RunSummary(
        run=f"gpt-{number:04}" if number % 3 else f"lora-{number:04}",
        state=state,
        started_at=timestamps.text(started),
        ended_at=timestamps.text(started + timedelta(seconds=round(chance.lognormvariate(8.5, 1)))),
        reason=_REASONS[state],
        replicas=8,
        rounds=chance.randint(10, 400),
        reruns=sum(lost.values()),
        failures=tuple(failures),
        usd=round(chance.lognormvariate(3, 1), 2),
    )
