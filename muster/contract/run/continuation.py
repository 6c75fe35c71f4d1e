"""Runs that go on where another one has ended: who comes after whom, and what they share."""

from __future__ import annotations

from muster.contract import names
from muster.contract.run.lineage import Lineage
from muster.contract.run.plan import Plan
from muster.contract.run.result import ReplicaOutcome, Result, Verdict
from muster.contract.spec.spec import Spec


def descend(parent: Plan, result: Result) -> Lineage:
    """The lineage of a run that goes on where `parent` has ended."""
    before = parent.lineage
    made = [attempt.attempt for replica in result.replicas for attempt in replica.attempts]
    if any(replica.outcome is ReplicaOutcome.UNKNOWN for replica in result.replicas):
        # A record that cannot be read tells no number: beyond the last that there can be.
        made.append(names.ATTEMPT_MAX)
    return Lineage(
        parent=parent.run,
        root=parent.meeting.run,
        generation=1 + (before.generation if before else 0),
        attempts_before=max(made, default=0) + (before.attempts_before if before else 0),
    )


def next_run(plan: Plan, result: Result) -> tuple[str, Spec] | None:
    """The name and the spec of the run that the rerun policy asks for after this end; None when it asks for none."""
    policy, generation = plan.spec.rerun, plan.lineage.generation if plan.lineage else 0
    if policy is None or result.verdict is not Verdict.FAILED or generation >= policy.max:
        return None
    causes = {
        str(replica.attempts[-1].failure_class)
        for replica in result.replicas
        if replica.outcome is ReplicaOutcome.FAILED and replica.attempts
    }
    if not {"failed", *causes} & set(policy.on):
        return None
    name = names.numbered_run_name(plan.meeting.run, generation + 2)
    return name, plan.spec.model_copy(update={"name": None, "resume_from": plan.run})
