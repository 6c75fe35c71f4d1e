"""Each service hangs for two hours, at each step of a run: the run succeeds, and nothing healthy is stopped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from unittest.mock import patch

from muster.contract.run.result import Verdict
from tests.simulation.cluster_lives import CLUSTER_FATES
from tests.simulation.faults import Storm
from tests.simulation.functions import installed
from tests.simulation.lives import FATES
from tests.simulation.told import Told
from tests.simulation.world import World

HANG_SECONDS = 7_200.0
_SERVICES = ("s3", "sagemaker", "stepfunctions", "events", "scheduler", "sts", "lambda")
_OF_CLUSTERS = ("s3", "kubernetes", "eks", "stepfunctions", "lambda")


class Step(NamedTuple):
    """The service begins to hang when `function` is to be invoked for the `nth` time."""

    name: str
    function: str
    nth: int = 1
    chosen: Mapping[str, Any] = {}


STEPS = (
    Step("plan", "plan"),
    Step("queue", "admit", chosen={"cap": 2}),
    Step("launch", "attempt"),
    Step("training", "react"),
    Step("end of a replica", "react", 3),
    Step("rerun", "attempt", 3),
    Step("re-arm", "attempt", 4),
    Step("settle", "settle"),
)


class Case(NamedTuple):
    """What hangs, and from which step on."""

    service: str
    step: Step
    clusters: bool
    """Whether the replicas are on a cluster."""


@dataclass(frozen=True)
class Survived:
    """What became of the run."""

    ended: float
    """In seconds, after its start."""
    timeouts: int
    """Functions that Lambda ended, because they did not say in time that a service hangs."""
    problems: tuple[str, ...]


def cases() -> list[Case]:
    backends = ((False, _SERVICES), (True, _OF_CLUSTERS))
    return [Case(service, step, clusters) for clusters, services in backends for step in STEPS for service in services]


def hang(case: Case) -> Survived:
    """One run of two replicas, of which the first is rerun once, and a service that hangs from a step on."""
    trains = 25_000.0 if case.step.name == "re-arm" else 300.0
    told = {f"muster-one-r{rank}-a{attempt}/seconds": trains for rank in range(2) for attempt in (1, 2)}
    told |= {"muster-one-r0-a1/seconds": 300.0, "clusters": case.clusters, **case.step.chosen}
    world = World(0, draws=Told(told))
    fates, fate = CLUSTER_FATES if case.clusters else FATES, world.scenario.fate
    with (
        installed(world),
        patch.object(world.scenario, "fate", lambda job: fates["infrastructure"] if "-r0-a1" in job else fate(job)),
        patch.object(world, "on_invoke", _after(world, case)),
    ):
        world.run()
    ended, timeouts = world.executions["one"].ended, _timeouts(world)
    problems = [*_problems(world), *(["a function did not say what hangs"] if timeouts else [])]
    return Survived(ended or 0.0, timeouts, tuple(problems))


def _after(world: World, case: Case) -> Callable[[str], None]:
    """What begins the hang, once it was called for the function of the step often enough."""
    left = case.step.nth
    # On a cluster notices say what events say of training jobs.
    awaited = "look" if case.clusters and case.step.function == "react" else case.step.function

    def invoked(function: str) -> None:
        nonlocal left
        left -= function == awaited
        if not left and not world.faults.storms:
            now = world.kernel.seconds
            world.faults.storms.append(Storm(case.service, "*", None, now, now + HANG_SECONDS))

    return invoked


def _timeouts(world: World) -> int:
    return sum(count for what, count in world.reached.items() if what.startswith("time-out: "))


def _problems(world: World) -> list[str]:
    problems = [f"{invariant}: {what}" for invariant, what in world.violations]
    if not world.faults.storms:
        problems.append("the step was not reached")
    result = world.judge.result("one")
    if result is None or result.verdict is not Verdict.SUCCEEDED or world.workflow.status("one") != "SUCCEEDED":
        problems.append(f"the run has ended as {world.workflow.status('one')}")
    stopped = [life.name for life in world.lives.jobs.values() if life.stopped_by and not life.came_late]
    return [*problems, *(f"{job} was stopped" for job in stopped)]
