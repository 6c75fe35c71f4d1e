"""The invariants."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from muster.contract.layout import RunLayout
from muster.contract.run.result import Result

if TYPE_CHECKING:
    from tests.simulation.lives import Life
    from tests.simulation.world import Execution, World


class Judge:
    """Watches a schedule."""

    def __init__(self, world: World) -> None:
        self._world = world

    def job_created(self, life: Life) -> None:
        pass

    def execution_ended(self, execution: Execution) -> None:
        pass

    def at_the_end(self) -> None:
        world = self._world
        for name, execution in world.executions.items():
            if execution.ended is None:
                world.violate("endless run", f"{name} is still running")
                continue
            status = world.workflow.status(name)
            result = self._result(name)
            world.reach(f"execution {status}, result {result.verdict if result else None}")

    def _result(self, run: str) -> Result | None:
        found = self.object(RunLayout(run).result)
        return None if found is None else Result.from_json(found, "result")

    def object(self, key: str) -> bytes | None:
        found: Any = self._world.cloud.s3.objects("bucket").get(key)
        return None if found is None else found.body
