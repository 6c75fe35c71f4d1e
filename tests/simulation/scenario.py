"""What a schedule begins with: runs, limits, users. And the judgement at its end."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.simulation.functions import MACHINE_ARN
from tests.simulation.judge import Judge
from tests.simulation.lives import FATES, Fate, Life

if TYPE_CHECKING:
    from tests.simulation.world import Execution, World

_SPEC = {"trainer": "package.module:train", "image": "image:1", "instance_type": "ml.m5.large"}
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
_LATE = (5.0, 60.0, 400.0, _HOUR, 7 * _HOUR, 3 * _DAY)
SWEEP_SECONDS = 6 * _HOUR


class Scenario:
    """The beginning of a schedule, and what its users do."""

    def __init__(self, world: World) -> None:
        self._world = world
        draws = self._draws = world.draws
        self.invoke_faults = draws.pick("lambda/faults", (0.0, 0.0, 0.0, 0.02, 0.1))
        self.fewer_retries = 0
        self._event_faults = draws.pick("events/faults", (0.0, 0.0, 0.0, 0.03, 0.15))
        self._bad_fates = draws.pick("fates", (0.0, 0.1, 0.3, 0.6))
        self.cap: int | None = draws.pick("cap", (None, None, None, 2, 4))
        self.largest_cap = self.cap or 0
        self.sweeps = draws.chance("sweeps", 0.4)
        self.judge_ = Judge(world)
        cloud = world.cloud
        cloud.training.list_lag_seconds = draws.pick("list lag", (0.0, 0.0, 0.0, 5.0, 40.0, 100.0))
        cloud.training.stop_seconds = draws.pick("stop seconds", (120.0, 120.0, 4.0, 400.0))

    # --- beginning -----------------------------------------------------------------------------

    def begin(self) -> None:
        """Set everything going."""
        world, draws = self._world, self._draws
        if self.cap is not None:
            world.fleet.deploy(MUSTER_MAX_CONCURRENT_REPLICAS=str(self.cap))
        runs = draws.pick("runs", (1, 1, 2, 3)) if self.cap is not None else 1
        for number in range(runs):
            name = ("one", "two", "three")[number]
            self._launch(name, draws.pick(f"{name}/start", (0.0, 0.0, 5.0, 100.0)))
        if self.sweeps:
            self._sweep_at(draws.pick("sweep", (100.0, 300.0, 400.0, 700.0, 1500.0)))

    def spec(self, name: str) -> dict[str, Any]:
        """What a user has written."""
        draws = self._draws
        most = 4 if self.cap is None else self.cap
        spec: dict[str, Any] = {**_SPEC, "replicas": min(most, draws.pick(f"{name}/replicas", (2, 1, 2, 3, 4)))}
        if draws.chance(f"{name}/continue", 0.35) and spec["replicas"] > 1:
            spec |= {"on_replica_failure": "continue", "min_replicas": max(1, spec["replicas"] - 1)}
        if draws.chance(f"{name}/rerun", 0.25):
            spec["rerun"] = {"on": ["failed"], "max": 2}
        if draws.chance(f"{name}/deadline", 0.15):
            spec["deadline_seconds"] = draws.pick(f"{name}/deadline seconds", (400, 200, 350, 355, 3600))
        if draws.chance(f"{name}/gate", 0.15):
            within = draws.pick(f"{name}/gate seconds", (60, 40, 70, 120))
            spec["launch_gate"] = {"replicas": spec["replicas"], "within_seconds": within}
        if draws.chance(f"{name}/ceiling", 0.15):
            spec["cost_ceiling_usd"] = draws.pick(f"{name}/ceiling usd", (100.0, 0.01, 0.03))
        budget = draws.pick(f"{name}/reruns", (1, 2, 3))
        spec["reruns"] = {
            "infrastructure": {"max_reruns": budget, "delay_seconds": draws.pick(f"{name}/delay", (0, 5, 700))},
            "capacity": {"max_reruns": budget, "delay_seconds": 60},
            "spot": {"max_reruns": budget, "delay_seconds": 10},
            "user-code": {"max_reruns": draws.pick(f"{name}/code reruns", (0, 0, 1))},
        }
        return spec

    def _launch(self, name: str, delay: float) -> None:
        world, draws = self._world, self._draws
        document = json.dumps(self.spec(name))
        from tests.simulation.world import User  # noqa: PLC0415

        def launch() -> None:
            world.cloud.client("stepfunctions").start_execution(stateMachineArn=MACHINE_ARN, name=name, input=document)

        world.kernel.spawn(f"user of {name}", launch, delay, owner=User(f"user of {name}"))
        if draws.chance(f"{name}/cancel", 0.25):
            at = draws.between(f"{name}/cancel at", 0.0, 600.0)
            world.kernel.spawn(f"canceller of {name}", lambda: self._cancel(name), delay + at, owner=User("canceller"))

    def _cancel(self, name: str) -> None:
        world = self._world
        execution = world.executions[name]
        if execution.ended is None:
            world.reach("a run is cancelled")
            world.cloud.client("stepfunctions").stop_execution(executionArn=world.workflow.execution_arn(name))

    def _sweep_at(self, seconds: float) -> None:
        world = self._world

        def sweep() -> None:
            world.call_later("sweep", {}, "sweep")
            if any(execution.ended is None for execution in world.executions.values()):
                self._sweep_at(world.kernel.seconds + SWEEP_SECONDS)

        world.kernel.at(seconds, sweep)

    # --- what befalls events and jobs ------------------------------------------------------------

    def deliveries(self, label: str) -> list[float]:
        """When an event is delivered: once after a moment, or late, twice, never."""
        world, draws = self._world, self._draws
        choice = draws.number(f"event {label}")
        share = draws.share(choice)
        if world.faults.quiet or share >= self._event_faults or not draws.is_free(choice):
            return [0.5]
        kind, size = draws.share(f"{choice}/kind"), draws.share(f"{choice}/size")
        late = _LATE[int(size * len(_LATE))]
        if kind < 0.3:
            draws.note(choice, "the event is lost")
            world.lost_events.append(label)
            return []
        if kind < 0.6:
            draws.note(choice, f"the event comes twice, again after {late:.0f} s")
            return [0.5, late]
        draws.note(choice, f"the event comes after {late:.0f} s")
        world.lost_events.append(label)
        return [late]

    def fate(self, name: str) -> Fate:
        """How a job ends if it is left alone."""
        draws, choice = self._draws, f"{name}/fate"
        share = draws.share(choice)
        if share >= self._bad_fates or not draws.is_free(choice):
            return FATES["completes"]
        bad = [key for key in FATES if key != "completes"]
        found = bad[int(draws.share(f"{choice}/kind") * len(bad))]
        draws.note(choice, found)
        return FATES[found]

    # --- the judge -------------------------------------------------------------------------------

    def job_created(self, life: Life) -> None:
        """A job was created."""
        self.judge_.job_created(life)

    def job_ended(self, life: Life) -> None:
        """A job has ended."""

    def execution_ended(self, execution: Execution) -> None:
        """An execution has ended."""
        self.judge_.execution_ended(execution)
        # A stack's sweep finds what every other net has missed.
        for hours in (20, 26, 32):
            self._world.kernel.after(hours * _HOUR, lambda: self._world.call_later("sweep", {}, "sweep"))

    def judge(self) -> None:
        """Nothing is due any more."""
        self.judge_.at_the_end()
