"""Runs that go on where another one has ended: becoming its heir, and asking for one after a failed run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.contract.errors import Problem, RunNameTakenError, SpecError
from muster.contract.events import RunRerun
from muster.contract.lineage import Heir, Lineage
from muster.contract.result import Result
from muster.contract.spec import Spec
from muster.contract.start import execution_input
from muster.contract.succession import descend, next_run
from muster.control import clock
from muster.control.active_run import ActiveRun
from muster.control.alarm import was_raised_by_an_alarm
from muster.control.bus import Bus
from muster.control.documents import RunDocuments
from muster.control.executions import Executions, state_machine_of
from muster.control.spending import spent_ceiling
from muster.control.store import Store
from muster.control.tell import refusal

if TYPE_CHECKING:
    from mypy_boto3_stepfunctions import SFNClient


def succeed(store: Store, spec: Spec, heir: Heir) -> Lineage:
    """Make `heir` the one run that goes on where `spec.resume_from` has ended; asked again, it still is.

    Raises:
        SpecError: there is no such run, it goes on, it has another heir, or the two do not fit together.
    """
    parent = spec.resume_from or ""
    documents = RunDocuments(store, parent)
    plan, result = documents.plan(), documents.result()
    if plan is None or parent == heir.run:
        raise _refused(parent, "which is no other run of this stack", "check the name")
    if result is None:
        raise _refused(parent, "which has no result yet", "wait for its end, or cancel it first")
    if plan.spec.replicas != spec.replicas:
        found = f"which has {plan.spec.replicas} replicas"
        raise _refused(parent, found, f"write replicas: {plan.spec.replicas}, or begin anew without resume_from")
    named = documents.name_heir(heir)
    if named != heir:
        raise _refused(parent, f"which {named.run} has resumed already", f"resume {named.run} once it has ended")
    return descend(plan, result)


def _has_met_a_limit(run: ActiveRun) -> bool:
    """Whether the launch gate, the deadline or the cost ceiling has ended the run: another one would pass it by."""
    fence = run.documents.fence()
    return (fence is not None and was_raised_by_an_alarm(fence)) or spent_ceiling(run) is not None


def _refused(parent: str, found: str, remedy: str) -> SpecError:
    return SpecError([Problem("resume_from", f"{parent!r}, {found}", remedy)])


class Succession:
    """The rerun policy: starts the next run of a lineage."""

    def __init__(self, stepfunctions: SFNClient, bus: Bus) -> None:
        self._stepfunctions = stepfunctions
        self._bus = bus

    def follow(self, run: ActiveRun, result: Result) -> str | None:
        """See the next run started if the policy asks for one; its name. Whoever settles a run again asks again."""
        wanted = next_run(run.plan, result)
        if wanted is None or run.plan.spec.rerun is None or _has_met_a_limit(run):
            return None
        name, spec = wanted
        executions = Executions(self._stepfunctions, state_machine_of(run.plan.execution_arn))
        try:
            began = executions.start(name, execution_input(spec))
        except (RunNameTakenError, SpecError) as error:
            self._bus.emit(refusal(run.plan.execution_arn, error))
            return None
        if began:
            generation = 1 + (run.plan.lineage.generation if run.plan.lineage else 0)
            self._bus.emit(
                RunRerun(
                    at=clock.now(), run=run.plan.run, heir=name, generation=generation, max=run.plan.spec.rerun.max
                )
            )
        return name
