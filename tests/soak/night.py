"""The night itself: runs on an embedded cloud, the faults planned for them, and what is left in the morning."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from muster import DeadLetter, Muster, UnknownRunError
from muster.contract.names import JobName
from muster.contract.run.result import Result
from muster.contract.run.run_queue import QUEUE_KEY, Queue
from muster.infra.deploy.deployment import deploy
from muster.infra.settings.settings_file import parse_settings
from muster.infra.settings.stack_settings import Platform
from muster.local import LocalCloud
from tests.soak.judgement import ENDS, Morning, SeenJob, different_parameters, is_explained, violations
from tests.soak.night_plan import Blow, PlannedRun, TimedBlow, plan_night
from tests.support.cloud_processes import kill, of_function, of_job
from tests.support.deployed import Deployed, Run
from tests.support.waiting import wait_until
from tests.support.workshop import fast_settings

_ROOT = Path(__file__).resolve().parents[2]
_REARM_SECONDS = 15
_POLL_SECONDS = 0.5
_RUN_SECONDS = 300.0  # longer than any run takes, however its faults fall
_MORNING_SECONDS = 120.0  # until nothing is left after the last run's end: 15 minutes, shortened like all other times


@dataclass
class Night:
    """What happened, for the report."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0


@contextmanager
def stack_in(folder: Path, replicas_at_once: int) -> Iterator[Deployed]:
    """A stack with a run queue, on a cloud of its own. This process then calls that cloud."""
    with LocalCloud.start(folder / "cloud", fast_settings(code=(_ROOT,), stop_grace_seconds=3.0)) as cloud:
        settings = {
            "runs": {"rearm_seconds": _REARM_SECONDS, "max_concurrent_replicas": replicas_at_once},
            "replicas": {"image": "muster-local/python:latest", "instance_type": "ml.m5.large"},
        }
        outputs = deploy(
            cloud.environment(),
            target=Platform.LOCAL,
            settings=parse_settings(settings, Platform.LOCAL),
            outputs=folder / "outputs.json",
            log=folder / "cdk.log",
        )
        os.environ.update(cloud.environment())
        yield Deployed(cloud, outputs, folder / "gates")


def pass_night(stack: Deployed, night: Night, *, runs: int, replicas: int, at_once: int) -> None:
    """Let all runs happen, then look at what is left; violations and counts are added to `night`."""
    began = time.monotonic()
    planned = plan_night(night.seed, runs, replicas, stack.prefix)
    watch = _Watch(stack, night)
    with ThreadPoolExecutor(at_once) as pool:
        cancelled = dict(zip([run.name for run in planned], pool.map(watch.see, planned), strict=True))
    _count_faults(stack, night)
    stack.cloud.faults.clear()
    _nothing_left(stack, night)
    mornings = [_morning(stack, run, cancelled=cancelled[run.name]) for run in planned]
    for morning in mornings:
        night.counts[f"verdict: {morning.result.verdict if morning.result else 'none'}"] += 1
        night.counts["jobs"] += len(morning.jobs)
        night.counts["reruns"] += morning.result.reruns if morning.result else 0
        night.violations += [f"{morning.planned.name}: {found}" for found in violations(morning)]
    night.violations += different_parameters(mornings)
    _letters(stack, night)
    for morning in mornings:
        if _result(stack.run(morning.planned.name)) != morning.result:
            night.violations.append(f"{morning.planned.name}: the replay of dead letters changed its result")
    night.seconds = time.monotonic() - began


class _Watch:
    """Starts runs, and does to them what is planned."""

    def __init__(self, stack: Deployed, night: Night) -> None:
        self._stack = stack
        self._night = night
        self._lock = threading.Lock()
        # Each thread makes its own: only clients are safe to share.
        self._muster = threading.local()

    def see(self, planned: PlannedRun) -> bool:
        """See one run from its start to its end; whether a cancellation stopped it."""
        stack, cancelled = self._stack, False
        for fault in planned.faults:
            stack.cloud.faults.add(fault)
        self.muster.launch(planned.spec)
        run = stack.run(planned.name)
        began = self._first_training(run)
        for blow in sorted(planned.blows, key=lambda one: one.after_seconds):
            time.sleep(max(0.0, began + blow.after_seconds - time.monotonic()))
            cancelled |= self._strike(planned, blow)
        try:
            run.wait(_RUN_SECONDS)
        except AssertionError as error:
            self._add(f"{planned.name}: {error}")
        return cancelled

    @property
    def muster(self) -> Muster:
        """The stack as a user sees it."""
        if not hasattr(self._muster, "stack"):
            self._muster.stack = Muster()
        found: Muster = self._muster.stack
        return found

    def _first_training(self, run: Run) -> float:
        """When a job of the run trains; at the latest when the run has ended."""

        def look() -> bool:
            return "InProgress" in run.statuses().values() or run.describe()["status"] != "RUNNING"

        try:
            wait_until(f"a job of {run.name}", look, seconds=_RUN_SECONDS)
        except AssertionError as error:
            self._add(f"{run.name}: {error}")
        return time.monotonic()

    def _strike(self, planned: PlannedRun, blow: TimedBlow) -> bool:
        if blow.blow is Blow.CANCEL:
            stopped = bool(self.muster.run(planned.name).cancel().stopped)
            self._count(str(blow.blow), int(stopped))
            return stopped
        cloud = self._stack.cloud
        if blow.blow is Blow.KILL_REPLICA:
            name = JobName(self._stack.prefix, planned.name, int(blow.target), 1)
            self._count(str(blow.blow), min(kill(of_job(cloud, str(name))), 1))
        else:
            function = self._stack.function_name(blow.target.capitalize())
            self._count(str(blow.blow), min(kill(of_function(cloud, function)), 1))
        return False

    def _count(self, name: str, number: int) -> None:
        with self._lock:
            self._night.counts[f"fault: {name}"] += number

    def _add(self, violation: str) -> None:
        with self._lock:
            self._night.violations.append(violation)


def _count_faults(stack: Deployed, night: Night) -> None:
    for report in stack.cloud.faults.list():
        night.counts[f"fault: {report.fault.kind}"] += report.fired


def _nothing_left(stack: Deployed, night: Night) -> None:
    """No job, no place in the run queue, no schedule."""
    scheduler = stack.cloud.client("scheduler")

    def jobs() -> list[str]:
        return stack.cloud.running_jobs()

    def places() -> list[str]:
        body = stack.s3.get_object(Bucket=stack.bucket, Key=QUEUE_KEY)["Body"].read()
        return [queued.run for queued in Queue.from_json(body, QUEUE_KEY).runs]

    def schedules() -> list[str]:
        pages = scheduler.get_paginator("list_schedules").paginate(NamePrefix=stack.prefix)
        return [item["Name"] for page in pages for item in page["Schedules"]]

    looks: dict[str, Callable[[], list[str]]] = {"jobs": jobs, "places in the queue": places, "schedules": schedules}
    deadline = time.monotonic() + _MORNING_SECONDS
    for what, look in looks.items():
        while (left := look()) and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        if left:
            night.violations.append(f"left in the morning: {what}: {', '.join(left)}")


def _morning(stack: Deployed, planned: PlannedRun, *, cancelled: bool) -> Morning:
    run = stack.run(planned.name)
    try:
        shown = str(Muster().run(planned.name).status().state)
    except UnknownRunError:
        shown = "unknown"
    status = run.describe()["status"]
    return Morning(planned, status, _result(run), shown, cancelled=cancelled, jobs=_jobs(stack, planned.name))


def _result(run: Run) -> Result | None:
    body = run.document(run.layout.result)
    return None if body is None else Result.from_json(body, run.layout.result)


def _jobs(stack: Deployed, run: str) -> list[SeenJob]:
    pages = stack.sagemaker.get_paginator("list_training_jobs").paginate(NameContains=f"{stack.prefix}-{run}-r")
    items = [item for page in pages for item in page["TrainingJobSummaries"]]
    return [_job(stack.prefix, item) for item in items]


def _job(prefix: str, item: dict[str, Any]) -> SeenJob:
    name = JobName.parse(item["TrainingJobName"], prefix)
    assert name is not None
    status = item["TrainingJobStatus"]
    # A job that never trained has no end of its training.
    ended = item.get("TrainingEndTime", item["LastModifiedTime"]) if status in ENDS else None
    return SeenJob(name.rank, name.attempt, status, item["CreationTime"], ended)


def _letters(stack: Deployed, night: Night) -> None:
    """Every dead letter is explained by a fault, and is handled when it is replayed."""
    muster = Muster()
    found = muster.dead_letters(1_000).letters
    night.counts["dead letters"] += len(found)
    for letter in found:
        if letter.obstacle is not None or not is_explained(letter.error):
            night.violations.append(f"a dead letter that no fault explains: {_text(letter)}")
    if not found:
        return
    muster.replay_dead_letters()
    # Lambda tries an event three times, within a few seconds here.
    deadline, returned = time.monotonic() + 10, muster.dead_letters(1_000).letters
    while not returned and time.monotonic() < deadline:
        returned = muster.dead_letters(1_000).letters
    night.violations += [f"a replayed letter came back: {_text(letter)}" for letter in returned]


def _text(letter: DeadLetter) -> str:
    return f"{letter.function}: {letter.event}: {letter.error[:200]}"
