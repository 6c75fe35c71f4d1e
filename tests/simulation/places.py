"""Places beside home in a schedule: what they are, when they are silent, and when they have no instances."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from muster.contract.run.where import Where
from tests.memory.places import PLACES, MemoryPlaceClients
from tests.simulation.faults import NO_QUOTA, Storm, throttled

if TYPE_CHECKING:
    from tests.memory.calls import Operation
    from tests.memory.places import MemoryPlace
    from tests.memory.training import Training
    from tests.simulation.lives import Life
    from tests.simulation.simulated_aws import SimulatedCloud
    from tests.simulation.world import World

CALLED_BACK_SECONDS = 30 * 60.0
_SILENT_AT = (100.0, 0.0, 30.0, 60.0, 200.0, 340.0, 400.0)
_SILENT_SECONDS = (300.0, 20.0, 700.0, 2_000.0, 10_000.0)


class Places:
    """The places of a schedule whose runs have `places`."""

    def __init__(self, world: World) -> None:
        self._world = world
        world.cloud.add_places()
        world.fleet.variables["MUSTER_PLACES"] = PLACES.to_json().decode()
        for name, place in world.cloud.places.items():
            place.notifications.on_event = partial(self._changed, name)
            place.training.stop_seconds = world.cloud.training.stop_seconds
            self._befall(name, place)

    def _changed(self, name: str, event: dict[str, Any]) -> None:
        self._world.lives.changed(event["detail"], name)

    def _befall(self, name: str, place: MemoryPlace) -> None:
        draws, world = self._world.draws, self._world
        if draws.chance(f"{name} is silent", 0.4):
            begin = draws.pick(f"{name} is silent/at", _SILENT_AT)
            end = begin + draws.pick(f"{name} is silent/seconds", _SILENT_SECONDS)
            place.answers_nothing = draws.chance(f"{name} is silent/answers nothing", 0.4)
            world.kernel.at(begin, place.go_silent)
            world.kernel.at(end, place.answer_again)
            world.kernel.at(end + CALLED_BACK_SECONDS, lambda: self._check_called_back(name, end))
            world.faults.storms.append(Storm(name, "*", None, begin, end))
        if draws.chance(f"{name} has no room", 0.3):
            begin = draws.pick(f"{name} has no room/at", (0.0, 200.0, 350.0))
            end = begin + draws.pick(f"{name} has no room/seconds", (100.0, 20.0, 1_000.0, 8_000.0))
            error = draws.pick(f"{name} has no room/how", (NO_QUOTA, throttled("sagemaker")))
            operation = "CreateTrainingJob" if error is NO_QUOTA else "*"
            world.faults.storms.append(Storm(f"sagemaker@{name}", operation, error, begin, end))

    def _check_called_back(self, name: str, end: float) -> None:
        """Half an hour after a place has answered again, jobs there whose replicas have gone elsewhere are stopped."""
        world = self._world
        if any(storm.end > end for storm in world.faults.storms) or world.were_dead_letters or world.judge.is_injured:
            return
        for life in world.lives.jobs.values():
            execution = world.executions[life.run]
            newer = any(other.attempt > life.attempt for other in world.lives.living(life.run, life.rank))
            if life.ended is not None or life.place != name or self.training(life).status(life.name)[0] == "Stopping":
                continue
            if newer and execution.ended is None and not life.came_late:
                world.violate("left behind", f"{life.name} still runs in {name}")

    def spec(self, run: str, replicas: int) -> dict[str, Any]:
        """`places` of a run with so many replicas."""
        draws = self._world.draws
        if draws.chance(f"{run}/shares", 0.3):
            far = draws.pick(f"{run}/far", ("tokyo", "oregon"))
            near = draws.pick(f"{run}/near", ("home", "oregon" if far == "tokyo" else "tokyo"))
            return {far: 1, near: replicas - 1} if replicas > 1 else {far: 1}
        rungs: list[dict[str, Any]] = [{"place": "oregon"}, {"place": "tokyo"}, {"place": "home"}]
        turn = draws.pick(f"{run}/first rung", (0, 1, 2))
        ladder = [*rungs[turn:], *rungs[:turn]][: draws.pick(f"{run}/rungs", (3, 2, 1))]
        if len(ladder) > 1 and draws.chance(f"{run}/at most", 0.3):
            ladder[0]["at_most"] = 1
        return {"ladder": ladder, "return_after_seconds": draws.pick(f"{run}/return after", (3_600, 0, 60))}

    def training(self, life: Life) -> Training:
        """The training jobs beside which one lives."""
        return self._world.cloud.places[life.place].training

    def is_left(self, life: Life) -> Where | None:
        """Where a job was left behind: its place was silent, and its attempt over."""
        where = self._world.judge.recorded_where(life)
        return where if where is not None and where.silent_since is not None else None

    def silent_until(self, begin: float) -> float:
        """When the last place answers again that was silent after `begin`."""
        ends = [storm.end for storm in self._world.faults.storms if storm.service in self._world.cloud.places]
        return max((end for end in ends if end > begin), default=0.0)


def place_clients(cloud: SimulatedCloud) -> MemoryPlaceClients:
    """With what a function calls the places."""
    return _Clients(cloud, lambda _service, _operations: None)


class _Clients(MemoryPlaceClients):
    """Clients whose calls take time, and meet the faults of a schedule."""

    def _client(self, service: str, region: str, credentials: Any) -> Any:
        from tests.simulation.simulated_aws import SimulatedClient  # noqa: PLC0415

        cloud: Any = self._cloud
        [(name, place)] = [one for one in cloud.places.items() if one[1].at.region == region]
        operations: Mapping[str, Operation] = place.operations(service, credentials["AccessKeyId"])
        return SimulatedClient(cloud, service, dict(operations), name)
