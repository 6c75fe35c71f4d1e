"""Settle: weigh what the replicas came to, and write it down once."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract.failures import FailureClass, classify_end
from muster.contract.fence import Fence
from muster.contract.layout import s3_uri
from muster.contract.plan import Plan
from muster.contract.record import Attempt, Record
from muster.contract.result import AttemptResult, ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.spec import Spec
from muster.contract.status import JobStatus
from muster.control import clock
from muster.control.aws import in_parallel
from muster.control.documents import RunDocuments
from muster.control.jobs import Jobs
from muster.control.manifest import ManifestError, resolve_manifest


def settle(documents: RunDocuments, jobs: Jobs) -> Result:
    """The run's settlement: the one that is there, else a new one. Of two at once the first stands."""
    existing = documents.result()
    if existing is not None:
        return existing
    plan = documents.require_plan()
    fence = documents.fence()
    replicas = in_parallel(lambda rank: _replica(documents, jobs, plan, rank, fence), range(plan.spec.replicas))
    verdict, reason = weigh(plan.spec, replicas, fence)
    result = Result(
        run=plan.run,
        verdict=verdict,
        reason=reason,
        settled_at=clock.now(),
        replicas=tuple(replicas),
        reruns=sum(max(0, len(replica.attempts) - 1) for replica in replicas),
        parameters_identical=_identical(replicas),
    )
    if documents.store.create(documents.layout.result, result.to_json()):
        return result
    return documents.result() or result


def weigh(spec: Spec, replicas: Sequence[ReplicaResult], fence: Fence | None) -> tuple[Verdict, str]:
    """The verdict and its reason. Pure."""
    succeeded = sum(replica.outcome is ReplicaOutcome.SUCCEEDED for replica in replicas)
    if fence is not None:
        return fence.verdict, fence.reason
    count = f"{succeeded} of {spec.replicas} replicas succeeded"
    if succeeded >= spec.quorum:
        return Verdict.SUCCEEDED, count
    needed = f"{count}, {spec.quorum} were needed"
    first = next((replica for replica in replicas if replica.outcome is ReplicaOutcome.FAILED), None)
    if first is None or not first.attempts:
        return Verdict.FAILED, needed
    return Verdict.FAILED, f"{needed}; replica {first.rank}: {first.attempts[-1].reason}"


def _replica(documents: RunDocuments, jobs: Jobs, plan: Plan, rank: int, fence: Fence | None) -> ReplicaResult:
    record = documents.record(rank).record
    if record is None:
        return ReplicaResult(rank=rank, outcome=ReplicaOutcome.NOT_LAUNCHED)
    current = record.current if record.decision is not None else _look(jobs, record)
    outcome = _outcome(current, fence)
    attempts = tuple(_attempt_result(attempt) for attempt in (*record.attempts[:-1], current))
    replica = ReplicaResult(rank=rank, outcome=outcome, attempts=attempts, artifacts=current.artifacts)
    return _with_manifest(documents, plan, replica) if outcome is ReplicaOutcome.SUCCEEDED else replica


def _look(jobs: Jobs, record: Record) -> Attempt:
    """The current attempt as its job stands now: in a run that was cut off, its end may not have been reported."""
    job = jobs.find(record.current.job)
    if job is None:
        return record.current
    failure_class = classify_end(job.end) if job.end else None
    return record.current.model_copy(
        update={
            "status": job.status,
            "secondary": job.secondary,
            "reason": job.reason,
            "artifacts": job.artifacts,
            "failure_class": failure_class,
            "ended_at": job.changed_at if job.end else None,
        }
    )


def _outcome(attempt: Attempt, fence: Fence | None) -> ReplicaOutcome:
    if attempt.status == JobStatus.COMPLETED:
        return ReplicaOutcome.SUCCEEDED
    cut_off = attempt.failure_class in {None, FailureClass.STOPPED_BY_USER}
    return ReplicaOutcome.STOPPED if fence is not None and cut_off else ReplicaOutcome.FAILED


def _attempt_result(attempt: Attempt) -> AttemptResult:
    return AttemptResult(
        attempt=attempt.attempt,
        job=attempt.job,
        launched_at=attempt.launched_at,
        ended_at=attempt.ended_at,
        status=attempt.status,
        secondary=attempt.secondary,
        failure_class=attempt.failure_class,
        reason=attempt.reason,
    )


def _with_manifest(documents: RunDocuments, plan: Plan, replica: ReplicaResult) -> ReplicaResult:
    output = s3_uri(plan.place.bucket, plan.layout.output.rstrip("/"))
    try:
        manifest = resolve_manifest(documents.store.s3, output, replica.attempts[-1].job)
    except ManifestError as problem:
        return replica.model_copy(update={"manifest_problem": str(problem)})
    return replica.model_copy(
        update={
            "checkpoint_uri": manifest.checkpoint_uri,
            "round": manifest.round,
            "checksum": manifest.checksum,
            "metrics": manifest.metrics,
        }
    )


def _identical(replicas: Sequence[ReplicaResult]) -> bool | None:
    checksums = [replica.checksum for replica in replicas if replica.checksum is not None]
    return len(set(checksums)) == 1 if len(checksums) > 1 else None
