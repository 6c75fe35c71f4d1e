"""The continuation of a run: the run that continues it, in the same rendezvous, from its last committed round."""

from __future__ import annotations

from pydantic import Field

from muster.contract import names
from muster.contract.document import StoredDocument
from muster.contract.run.attempt import rule_of_end
from muster.contract.run.plan import Lineage, Plan
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.spec.spec import Spec


class Continuation(StoredDocument):
    """The one run that continues another: written once, beside the result of the run that it continues."""

    run: str
    execution_arn: str = Field(description="of the continuation")


def lineage_after(parent: Plan, result: Result) -> Lineage:
    """The lineage of the continuation of `parent`, which ended with `result`."""
    before = parent.lineage
    made = [attempt.attempt for replica in result.replicas for attempt in replica.attempts]
    if any(replica.outcome is ReplicaOutcome.UNKNOWN for replica in result.replicas):
        # The number of attempts is unknown where a record cannot be read, so the highest possible number counts.
        made.append(names.ATTEMPT_MAX)
    return Lineage(
        parent=parent.run,
        root=parent.shared_layout.run,
        generation=1 + (before.generation if before else 0),
        attempts_before=max(made, default=0) + (before.attempts_before if before else 0),
        rounds_before=result.committed_rounds or 0,
        rounds_by_rank=tuple(one.committed_rounds or 0 for one in result.replicas if parent.spec.trains_apart),
    )


def next_run(plan: Plan, result: Result) -> tuple[str, Spec] | None:
    """Name and spec of the continuation that the policy requires after this result; None for none."""
    policy, generation = plan.spec.continuation_policy, plan.lineage.generation if plan.lineage else 0
    if policy is None or result.verdict is not Verdict.FAILED or generation >= policy.max:
        return None
    causes = {
        str(replica.attempts[-1].failure_class)
        for replica in result.replicas
        if replica.outcome is ReplicaOutcome.FAILED and replica.attempts
    }
    if not {"failed", *causes} & set(policy.on) or any(_stopped_the_run(plan.spec, one) for one in result.replicas):
        return None
    name = names.numbered_run_name(plan.shared_layout.run, generation + 2)
    return name, plan.spec.model_copy(update={"name": None, "resume_from": plan.run})


def _stopped_the_run(spec: Spec, replica: ReplicaResult) -> bool:
    """Whether the run ended with this replica because a rule of `watch` says stop: a continuation must not evade it."""
    rule = rule_of_end(replica.attempts[-1]) if replica.attempts else None
    return rule is not None and spec.watch.then(rule) == "stop"
