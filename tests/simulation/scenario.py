"""What a schedule begins with: runs, limits, users. And the judgement at its end."""

from __future__ import annotations

import json
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from tests.simulation.cluster_lives import CLUSTER_FATES, CLUSTER_HANGS, QUEUE
from tests.simulation.functions import MACHINE_ARN, Version
from tests.simulation.lives import FATES, HANGS, Fate

if TYPE_CHECKING:
    from tests.simulation.world import World

_SPEC = {"trainer": "package.module:train", "image": "image:1", "instance_type": "ml.m5.large"}
_MINUTE, _HOUR, _DAY = 60.0, 3_600.0, 86_400.0
_LATE = (5.0, 60.0, 400.0, _HOUR, 7 * _HOUR, 3 * _DAY)
_BROKEN = (*(None,) * 30, "plan", "attempt", "settle", "admit", "stop", "stop", "react")
CROWD, _CROWDED = 500, 0.0001
"""As many runs as users start at the same time, and in what share of the schedules they do: each takes a minute."""
_MORE_STEPS = 10
_HANGS = 0.25
"""Of the attempts that do not complete."""
SWEEP_SECONDS = 6 * _HOUR
LATE_SWEEP_SECONDS = 20 * _HOUR


class Kind(StrEnum):
    """Which runs a schedule has."""

    MIXED = "mixed"
    ELASTIC = "elastic"
    PLACES = "places"


class Scenario:
    """The beginning of a schedule, and what its users do."""

    def __init__(self, world: World, kind: Kind) -> None:
        self._world, self._kind = world, kind
        draws = self._draws = world.draws
        self.invoke_faults = draws.pick("lambda/faults", (0.0, 0.0, 0.0, 0.02, 0.1))
        self._event_faults = draws.pick("events/faults", (0.0, 0.0, 0.0, 0.03, 0.3))
        self._bad_fates = draws.pick("fates", (0.0, 0.1, 0.3, 0.6))
        self._broken = draws.pick("broken function", _BROKEN)
        self._broken_since = draws.pick("broken function/since", (0.0, 100.0, 300.0))
        self._broken_hours = draws.pick("broken function/hours", (1.0, 0.2, 12.0))
        self.is_crowded = draws.chance("many runs", _CROWDED)
        world.most_steps *= _MORE_STEPS if self.is_crowded else 1
        caps = (CROWD // 5, CROWD // 25) if self.is_crowded else (None, None, None, 2, 4)
        self.cap: int | None = draws.pick("cap", caps)
        self.largest_cap = self.cap or 0
        self.sweeps = draws.chance("sweeps", 0.6)
        is_placed = kind is Kind.PLACES
        self.uses_clusters = not is_placed and draws.chance("clusters", 0.2)
        self.uses_places = not self.uses_clusters and draws.chance("places", 1.0 if is_placed else 0.25)
        self._last_sweep = 0.0
        cloud = world.cloud
        cloud.training.list_lag_seconds = draws.pick("list lag", (0.0, 0.0, 0.0, 5.0, 40.0, 100.0))
        cloud.workflow.list_lag_seconds = draws.pick("executions' lag", (0.0, 0.0, 0.0, 5.0, 60.0))
        cloud.workflow.describe_lag_seconds = draws.pick("DescribeExecution's lag", (0.0, 0.0, 0.0, 2.0, 30.0))
        cloud.training.stop_seconds = draws.pick("stop seconds", (120.0, 120.0, 4.0, 400.0))

    # --- beginning -----------------------------------------------------------------------------

    def begin(self) -> None:
        world, draws = self._world, self._draws
        if self.cap is not None:
            world.fleet.variables["MUSTER_MAX_CONCURRENT_REPLICAS"] = str(self.cap)
        runs = draws.pick("runs", (1, 1, 2, 3)) if self.cap is not None else 1
        names = [f"run{number}" for number in range(CROWD)] if self.is_crowded else ("one", "two", "three")[:runs]
        for name in names:
            self.launch(name, draws.pick(f"{name}/start", (0.0, 0.0, 5.0, 100.0)))
        if draws.chance("deploy", 0.15):
            self._deploy_at(draws.pick("deploy/at", (0.3, 1.0, 3.0, 20.0, 60.0, 200.0, 350.0, 353.0, 360.0, 500.0)))
        if draws.chance("replay", 0.2):
            for number in range(2):
                after = draws.pick(f"replay {number}", (600.0, _HOUR, 21 * _HOUR, 2 * _DAY))
                world.kernel.at(after, world.replay_dead_letters)
        if self.sweeps:
            self._sweep_at(draws.pick("sweep", (130.0, 700.0, 1500.0, 4000.0, 10_000.0)))

    def _deploy_at(self, seconds: float) -> None:
        world, draws = self._world, self._draws
        variables: dict[str, str] = {}
        if self.cap is not None:
            cap = draws.pick("deploy/cap", (self.cap, 1, 3, 5))
            self.largest_cap = max(cap, self.largest_cap)
            variables["MUSTER_MAX_CONCURRENT_REPLICAS"] = str(cap)

        def deploy() -> None:
            if not world.is_over:
                world.reach("a deployment")
                world.fleet.deploy(Version.NEXT, **variables)

        def roll_back() -> None:
            if not world.is_over:
                world.reach("a rollback")
                world.fleet.deploy(Version.THIS, MUSTER_MAX_CONCURRENT_REPLICAS=str(self.cap) if self.cap else "")

        world.kernel.at(seconds, deploy)
        if draws.chance("rollback", 0.5):
            world.kernel.at(seconds + draws.pick("rollback/after", (60.0, 2.0, 10.0, 150.0, 300.0)), roll_back)

    def spec(self, name: str) -> dict[str, Any]:
        draws = self._draws
        most = 4 if self.cap is None else self.cap
        if draws.chance(f"{name}/too large", 0.03):
            most = 4
        spec: dict[str, Any] = {**_SPEC, "replicas": min(most, draws.pick(f"{name}/replicas", (2, 1, 2, 3, 4)))}
        if self.cap is None and draws.chance(f"{name}/many replicas", 0.01):
            spec["replicas"] = 70
        if draws.chance(f"{name}/continue", 0.35) and spec["replicas"] > 1:
            spec |= {"on_replica_failure": "continue", "min_replicas": max(1, spec["replicas"] - 1)}
        if draws.chance(f"{name}/continue", 0.25):
            spec["continue"] = {"on": ["failed"], "max": 2}
        if draws.chance(f"{name}/deadline", 0.15):
            spec["deadline_seconds"] = draws.pick(f"{name}/deadline seconds", (400, 200, 350, 355, 3600))
        if draws.chance(f"{name}/gate", 0.15):
            within = draws.pick(f"{name}/gate seconds", (60, 40, 70, 120))
            spec["launch_gate"] = {"replicas": spec["replicas"], "within_seconds": within}
        if draws.chance(f"{name}/ceiling", 0.15):
            spec["cost_ceiling_usd"] = draws.pick(f"{name}/ceiling usd", (100.0, 0.01, 0.03))
        if draws.chance(f"{name}/watch", 0.5):
            then = draws.pick(f"{name}/hang then", ("restart", "stop"))
            restarts = draws.pick(f"{name}/restarts", (1, 0, 2))
            spec["watch"] = {"hang": {"then": then}, "max_restarts": restarts}
        all_elastic = self._kind is Kind.ELASTIC
        if not all_elastic and draws.chance(f"{name}/sweep", 0.15):
            spec["sweep"] = {"kwargs.seed": list(range(spec["replicas"]))}
        if self.uses_clusters:
            place = {"backend": "hyperpod", "hyperpod": {"queue": QUEUE} if draws.chance("queue", 0.5) else {}}
            some = spec["replicas"] > 1 and draws.chance(f"{name}/mixed", 0.4)
            spec |= {"overrides": {"1": place}} if some else place
        budget = draws.pick(f"{name}/reruns", (1, 2, 3))
        spec["reruns"] = {
            "infrastructure": {"max_reruns": budget, "delay_seconds": draws.pick(f"{name}/delay", (0, 5, 700))},
            "capacity": {"max_reruns": budget, "delay_seconds": 60},
            "spot": {"max_reruns": budget, "delay_seconds": 10},
            "quota": {"max_reruns": budget, "delay_seconds": draws.pick(f"{name}/quota delay", (120, 5, 5, 60))},
            "user-code": {"max_reruns": draws.pick(f"{name}/code reruns", (0, 0, 1))},
        }
        if "sweep" not in spec and draws.chance(f"{name}/elastic", 1.0 if all_elastic else 0.35):
            spec |= self._elastic(name, spec)
        if self._world.places is not None and "sweep" not in spec:
            most = spec["replicas"] if isinstance(spec["replicas"], int) else spec["replicas"]["max"]
            spec["places"] = self._world.places.spec(name, most)
        return spec

    def _elastic(self, name: str, spec: dict[str, Any]) -> dict[str, Any]:
        """Seats that come and go. Users ask for other numbers, some of which are refused."""
        draws, most = self._draws, spec["replicas"]
        least = draws.pick(f"{name}/least", (1, 1, min(2, most)))
        section = {
            "park_after_seconds": draws.pick(f"{name}/park after", (900, 0, 100)),
            "retry_parked_seconds": draws.pick(f"{name}/retry parked", (1800, 60, 300)),
            "below_min": draws.pick(f"{name}/below min", ("wait", "wait", "stop")),
        }
        if draws.chance(f"{name}/scheduled", 0.2):
            section["scale"] = [{"after_seconds": 150, "replicas": most}, {"after_seconds": 250, "replicas": least}]
        start = draws.pick(f"{name}/begin with", (most, least, least))
        gate = {"launch_gate": {**spec["launch_gate"], "replicas": start}} if "launch_gate" in spec else {}
        more = {"replicas": {"min": least, "start": start, "max": most}, "elastic": section, **gate}
        return {**more, "on_replica_failure": "continue", "min_replicas": least}

    def _scale_later(self, name: str, most: int, delay: float) -> None:
        world, draws = self._world, self._draws
        for number in range(draws.pick(f"{name}/scalings", (0, 1, 2, 4, 4))):
            label = f"{name} scaling {number}"
            at = delay + draws.pick(f"{label}/at", (60.0, 1.0, 30.0, 100.0, 200.0, 300.0, 345.0, 400.0, 600.0))
            wanted = draws.pick(f"{label}/wanted", (*range(1, most + 1), most + 1))
            event = {**_REQUESTED, "id": label, "detail-type": "Scale Requested"}
            event["detail"] = {"run": name, "replicas": wanted}
            world.kernel.at(at, lambda event=event, label=label: world.deliver("scale", event, label))

    def launch(self, name: str, delay: float) -> None:
        world, draws = self._world, self._draws
        spec = self.spec(name)
        document = json.dumps(spec)
        from tests.simulation.world import User  # noqa: PLC0415

        def launch() -> None:
            world.cloud.client("stepfunctions").start_execution(stateMachineArn=MACHINE_ARN, name=name, input=document)

        if "elastic" in spec:
            self._scale_later(name, spec["replicas"]["max"], delay)
        if draws.chance(f"{name}/by event", 0.15):
            event = {**_REQUESTED, "id": f"request-{name}", "detail": {"spec": {**spec, "name": name}}}
            for later in self.deliveries(f"{name} requested"):
                world.kernel.at(delay + later, lambda: world.call_later("start", event, name))
        else:
            world.kernel.spawn(f"user of {name}", launch, delay, owner=User(f"user of {name}"))
        if draws.chance(f"{name}/cancel", 0.25):
            at = draws.between(f"{name}/cancel at", 0.0, 600.0)
            world.kernel.spawn(f"canceller of {name}", lambda: self._cancel(name), delay + at, owner=User("canceller"))

    def failed(self, name: str) -> None:
        """An execution has failed: perhaps a user redrives it."""
        if self._draws.chance(self._draws.number(f"{name}/redrive failed"), 0.1):
            after = self._draws.pick(f"{name}/redrive failed after", (100.0, 0.2, 10.0, _HOUR))
            self._world.kernel.after(after, lambda: self._world.redrive(name))

    def _cancel(self, name: str) -> None:
        world = self._world
        execution = world.executions.get(name)
        if execution is not None and execution.ended is None:
            world.reach("a run is cancelled")
            if self._draws.chance(f"{name}/redrive", 0.2):
                after = self._draws.pick(f"{name}/redrive after", (100.0, 0.2, 2.0, 10.0, 400.0, _HOUR))
                world.kernel.after(after, lambda: world.redrive(name))
            with suppress(ClientError):  # it has ended meanwhile
                world.cloud.client("stepfunctions").stop_execution(executionArn=world.workflow.execution_arn(name))

    def _sweep_at(self, seconds: float) -> None:
        world = self._world

        def sweep() -> None:
            world.call_later("sweep", {}, "sweep")
            if any(execution.ended is None for execution in world.executions.values()):
                self._sweep_at(world.kernel.seconds + SWEEP_SECONDS)

        world.kernel.at(seconds, sweep)

    def is_broken(self, function: str) -> bool:
        """Whether a function only fails now, for whatever reason."""
        since, now = self._broken_since, self._world.kernel.seconds
        return function == self._broken and since <= now < since + self._broken_hours * _HOUR

    # --- what befalls events and jobs ------------------------------------------------------------

    def deliveries(self, label: str) -> list[float]:
        """When an event is delivered: once after a moment, or late, twice, never."""
        world, draws = self._world, self._draws
        choice = draws.number(f"event {label}")
        share = draws.share(choice)
        if share >= self._event_faults or not draws.is_free(choice):
            return [0.5]
        kind, late = draws.share(f"{choice}/kind"), draws.choose(f"{choice}/size", _LATE)
        if kind < 0.3:
            draws.note(choice, "the event is lost")
            world.reach("an event is lost")
            world.lost_events.append(label)
            return []
        if kind < 0.6:
            draws.note(choice, f"the event comes twice, again after {late:.0f} s")
            world.reach("an event comes twice")
            return [0.5, late]
        draws.note(choice, f"the event comes after {late:.0f} s")
        world.reach("an event comes late")
        world.lost_events.append(label)
        return [late]

    def fate(self, name: str) -> Fate:
        """How a job ends if it is left alone."""
        draws, choice = self._draws, f"{name}/fate"
        on_cluster = self._world.is_on_cluster(name)
        fates, hangs = (CLUSTER_FATES, CLUSTER_HANGS) if on_cluster else (FATES, HANGS)
        share = draws.share(choice)
        if share >= self._bad_fates or not draws.is_free(choice):
            return fates["completes"]
        bad = [key for key in fates if key != "completes"]
        if draws.share(f"{choice}/hangs") < _HANGS:
            draws.note(choice, "hangs")
            return hangs
        found = draws.choose(f"{choice}/kind", bad)
        draws.note(choice, found)
        return fates[found]

    def sweep_late(self) -> None:
        """Once executions have ended, a stack's sweep finds what every other net has missed."""
        kernel = self._world.kernel
        if self._last_sweep < kernel.seconds + 10 * _HOUR:
            kernel.after(LATE_SWEEP_SECONDS, lambda: self._world.call_later("sweep", {}, "late sweep"))
            self._last_sweep = kernel.seconds + LATE_SWEEP_SECONDS


# An event Run Requested on the stack's bus, but for the run.
_REQUESTED = dict.fromkeys(("version", "source", "account", "region"), "any") | {
    "detail-type": "Run Requested",
    "time": "2026-01-01T00:00:00Z",
    "resources": [],
}
