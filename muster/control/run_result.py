"""The result of a run: the verdict from the outcomes of its replicas, written once.

`settle` alone asks for it, and does all that follows. The end of one attempt, and its rerun: `attempt_end`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.job_status import JobStatus
from muster.contract.errors import DocumentError, NewerDocumentError
from muster.contract.layout import split_s3_uri
from muster.contract.run.attempt import Attempt, parkings
from muster.contract.run.commit import Commit
from muster.contract.run.failure_words import failure_words
from muster.contract.run.fence import Fence, FenceCause
from muster.contract.run.job_request import output_uri
from muster.contract.run.record import Next
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.run.run_cost import egress_usd, held_seconds, usd_of_ended
from muster.contract.spec.hook import OWN_LOOP
from muster.contract.spec.spec import Spec
from muster.contract.spec.sweep_values import values_of
from muster.control.active_run import ActiveReplica, ActiveRun
from muster.control.aws.aws_errors import UnavailableError
from muster.control.described_job import with_details
from muster.control.failed_logs import with_last_lines
from muster.control.jobs import PlaceSilentError
from muster.control.left_behind import completed_after_all
from muster.control.manifest import Limits, ManifestError, ManifestProblem, resolve_manifest
from muster.control.model_result import FoundModel, find_model, with_own_models
from muster.control.round_notes import (
    committed_rounds,
    find_findings,
    last_commit,
    with_early_finish_note,
    with_early_finishes,
    with_goal_note,
    with_own_rounds,
)
from muster.control.runtime import clock
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import logger
from muster.control.runtime.parallel import OutOfTimeError, in_parallel
from muster.control.seat_keeper import seat_keeper

# Seconds. A search that is given up before its own limit says nothing about the manifest. Settling in its own function
# always begins with more than this, so a run with thousands of slow manifests is settled too.
_TIME_FOR_MANIFESTS = 2 * Limits.seconds
_TIME_FOR_DETAILS = 60.0
# One page of ListObjectsV2. A list costs as much as twelve looks at objects.
OUTPUTS_LISTED_MAX = 1_000
# After the fence, or without one after the last end, in seconds. A client shows a run with a fence as stopping for 50
# minutes.
_OVERDUE_SECONDS = 30 * 60


class _Search(NamedTuple):
    """The time for the manifests, and whether a later call may read those for which it is too short.

    `details` is the time for what SageMaker says of jobs: it is read again where it was not final, or not read.
    """

    budget: TimeBudget
    may_wait: bool
    details: TimeBudget
    written: frozenset[str] | None
    """The keys of all objects of the run's output, where they are few and most replicas may have no manifest."""
    parked: Collection[int]
    """The ranks of an elastic run whose seats are parked."""
    unread: list[str]
    """Why manifests could not be read in passing; grows while the replicas are looked at."""


def write_result(run: ActiveRun, budget: TimeBudget) -> Result:
    """The run's result: the existing one, else a new one. Of two written at the same time the first one is valid.

    The result is written once. So where a manifest is missing only because this call had little time, or because S3
    failed in passing, none is written: a later call has more. Left out is what a call with more time
    (`_TIME_FOR_MANIFESTS`) does not find, and what cannot be read half an hour after the fence, or else the last end.

    Raises:
        OutOfTimeError: the budget was spent, and nothing was written.
        UnavailableError: S3 failed in passing, and nothing was written.
        NewerDocumentError: a newer version of Muster wrote a record, before a rollback.
    """
    if (existing := run.documents.result()) is not None:
        return existing
    fence = run.documents.fence()
    may_wait = budget.remaining < _TIME_FOR_MANIFESTS and not is_overdue(fence)
    details = TimeBudget.of(min(_TIME_FOR_DETAILS, budget.remaining / 4))
    parked = () if (seats := seat_keeper(run.plan.spec)) is None else seats.parked(run)
    search = _Search(budget, may_wait, details, _written_outputs(run), parked, [])
    replicas = in_parallel(lambda replica: _replica(replica, fence, search), run.replicas, budget if may_wait else None)
    if search.unread and not _may_give_up(fence, replicas):
        raise UnavailableError(search.unread[0])
    apart = run.plan.spec.trains_apart  # then each has rounds and a model of its own, which its manifest names
    rounds = 0 if apart else committed_rounds(run)
    last = last_commit(run, rounds)
    replicas = with_early_finishes(replicas, () if last is None else last.finished_in(run.plan.run))
    replicas = with_last_lines(run, replicas, budget)
    verdict, reason = weigh(run.plan.spec, replicas, fence)
    found = FoundModel() if apart else find_model(run, replicas, rounds)
    if run.plan.spec.sweep:
        replicas = [_with_values(run.plan.spec, replica) for replica in replicas]
    if apart:
        replicas = with_own_rounds(run, with_own_models(run, replicas))
    result = Result(
        run=run.plan.run,
        verdict=verdict,
        reason=with_goal_note(with_early_finish_note(reason, replicas, rounds), verdict, last),
        settled_at=clock.now(),
        replicas=tuple(replicas),
        recipe=None if run.plan.spec.recipe is None else run.plan.spec.recipe.shown,
        reruns=sum(max(0, len(replica.attempts) - 1 - parkings(replica.attempts)) for replica in replicas),
        committed_rounds=None if apart else rounds,
        parameters_identical=None if run.plan.spec.sweep else _identical(replicas),
        model=found.model,
        model_problem=found.problem,
        findings=find_findings(run),
        egress_usd=None if last is None else egress_usd(run.plan, rounds, last.crossed_bytes),
        **_speed(last),
    )
    return run.documents.store.first(run.documents.layout.result, result)


def _written_outputs(run: ActiveRun) -> frozenset[str] | None:
    """The keys of the run's output; None where they are unknown, so that each place of a manifest is looked at.

    A program without a trainer of Muster seldom leaves a manifest. One list of the run then replaces the looks at every
    place for every replica.
    """
    store = run.documents.store
    bucket, prefix = split_s3_uri(output_uri(run.plan))
    if run.plan.spec.has_trainer or bucket != store.bucket:
        return None
    try:
        keys = list(islice(store.keys(f"{prefix.rstrip('/')}/"), OUTPUTS_LISTED_MAX + 1))
    except ClientError:
        # In the minute of an upgrade, a function may have its code already and its rights not yet.
        logger.warning("the outputs of the run are not listed", exc_info=True)
        return None
    return frozenset(keys) if len(keys) <= OUTPUTS_LISTED_MAX else None


def _speed(last: Commit | None) -> dict[str, Any]:
    """How much has counted in the rounds, and how fast the last ones were, as the replicas report it."""
    if last is None:
        return {}
    rate = None if last.pace is None else last.pace.samples_per_second
    return {"unit": last.unit, "samples": last.samples, "samples_per_second": rate}


def is_overdue(fence: Fence | None) -> bool:
    """Whether the fence has stood for so long that the result must be written with what can be read."""
    return fence is not None and clock.seconds_since(fence.at) > _OVERDUE_SECONDS


def _may_give_up(fence: Fence | None, replicas: Sequence[ReplicaResult]) -> bool:
    """Whether the result is written although S3 may give a manifest later."""
    if fence is not None:
        return is_overdue(fence)
    ends = [one.attempts[-1].ended_at for one in replicas if one.attempts]
    last = max((end for end in ends if end is not None), default=None)
    return last is None or clock.seconds_since(last) > _OVERDUE_SECONDS


def weigh(spec: Spec, replicas: Sequence[ReplicaResult], fence: Fence | None) -> tuple[Verdict, str]:
    """The verdict and its reason. Pure."""
    succeeded = sum(replica.outcome is ReplicaOutcome.SUCCEEDED for replica in replicas)
    seats = spec.replicas - sum(replica.outcome is ReplicaOutcome.PARKED for replica in replicas)
    count = f"{succeeded} of {seats} replicas succeeded"
    # A late stop changes nothing where all replicas succeeded; nor does a failure of Muster after all had ended.
    late = succeeded == seats >= spec.quorum or _came_after_the_ends(fence, replicas)
    if fence is not None and not late:
        return fence.verdict, fence.reason
    if succeeded >= spec.quorum:
        return Verdict.SUCCEEDED, count
    needed = f"{count}; {spec.quorum} were needed"
    failed = [one for one in replicas if one.outcome is ReplicaOutcome.FAILED and one.attempts]
    if not failed:
        return Verdict.FAILED, needed
    # The others may have failed because of it.
    first = min(failed, key=lambda one: (one.attempts[-1].ended_at or "~", one.rank))
    return Verdict.FAILED, f"{needed}; replica {first.rank}: {failure_words(first.attempts[-1])}"


def _came_after_the_ends(fence: Fence | None, replicas: Sequence[ReplicaResult]) -> bool:
    """Whether Muster failed when every replica had ended by itself: what they achieved is the verdict."""
    by_themselves = {ReplicaOutcome.SUCCEEDED, ReplicaOutcome.FAILED, ReplicaOutcome.PARKED}
    failed = fence is not None and fence.cause is FenceCause.EXECUTION_FAILED
    return failed and all(replica.outcome in by_themselves for replica in replicas)


def _replica(replica: ActiveReplica, fence: Fence | None, search: _Search) -> ReplicaResult:
    rank = replica.rank
    try:
        record = replica.record().record
    except NewerDocumentError:
        # After a rollback: the record is intact, and the result is written only once.
        raise
    except DocumentError as error:
        # One damaged record must not prevent the result of the run.
        return ReplicaResult(rank=rank, outcome=ReplicaOutcome.UNKNOWN, problem=str(error))
    if record is None:
        absent = ReplicaOutcome.PARKED if rank in search.parked else ReplicaOutcome.NOT_LAUNCHED
        return ReplicaResult(rank=rank, outcome=absent, usd=0.0)
    replica.run.settled[rank] = record
    decision = record.decision
    if decision is None:
        current = _look(replica, record.current, stopping=fence is not None)
    else:
        current = completed_after_all(replica, record.attempts)
    waits = decision is not None and decision.next is Next.RERUN and (decision.parked or rank in search.parked)
    is_parked = waits and current.status != JobStatus.COMPLETED
    outcome = ReplicaOutcome.PARKED if is_parked else _outcome(current, fence)
    attempts = (*record.attempts[:-1], current)
    if not search.details.is_spent:
        attempts = tuple(with_details(replica, attempt) for attempt in attempts)
    usd = usd_of_ended(attempts, replica.spec, clock.now())
    held = held_seconds(attempts, replica.spec, clock.now())
    attempts = (*(attempt.for_result() for attempt in attempts[:-1]), attempts[-1].for_result(is_last=True))
    result = ReplicaResult(
        rank=rank, outcome=outcome, attempts=attempts, artifacts=current.artifacts, usd=usd, instance_seconds=held
    )
    return _with_manifest(replica.run, result, search) if outcome is ReplicaOutcome.SUCCEEDED else result


def _look(replica: ActiveReplica, current: Attempt, *, stopping: bool) -> Attempt:
    """The current attempt, updated from its job: after an aborted execution its end may not be recorded yet."""
    try:
        job = replica.own_job(current)
    except PlaceSilentError:
        # The run ends without it; the sweep stops the job once its place answers.
        return (
            current
            if current.where is None
            else current.model_copy(update={"where": current.where.after_silence(clock.now())})
        )
    if job is None:
        return current
    if job.end is not None:
        job = replica.jobs.explained(job)
    return replica.without_secrets(job.applied_to(current, stopping=stopping))


def _outcome(attempt: Attempt, fence: Fence | None) -> ReplicaOutcome:
    if attempt.status == JobStatus.COMPLETED:
        return ReplicaOutcome.SUCCEEDED
    cut_off = attempt.failure_class in {None, FailureClass.STOPPED_BY_USER, FailureClass.STOPPED_BY_MUSTER}
    return ReplicaOutcome.STOPPED if fence is not None and cut_off else ReplicaOutcome.FAILED


def _with_manifest(run: ActiveRun, replica: ReplicaResult, search: _Search) -> ReplicaResult:
    masked, ended = run.replica(replica.rank).masked, replica.attempts[-1]
    s3, output, written = run.documents.store.s3, output_uri(run.plan), search.written
    limits = Limits(seconds=min(Limits.seconds, search.budget.remaining))
    try:
        if ended.where is not None and not ended.where.is_home:
            store = run.backends.placement.store(ended.where.place)
            s3, output, written = store.s3, store.uri(run.plan.layout.output.rstrip("/")), None
        manifest = resolve_manifest(s3, output, ended.job, limits=limits, written=written)
    except PlaceSilentError as silent:
        return replica.model_copy(update={"problem": f"{silent}, so its manifest was not read"})
    except ManifestError as problem:
        # A trainer with its own loop leaves no model of the run, and so no manifest; most programs of recipes neither.
        spec = run.plan.spec
        own_program = spec.trainer == OWN_LOOP or (spec.trainer is None and spec.recipe is not None)
        if problem.kind is ManifestProblem.ABSENT and own_program:
            return replica
        if search.may_wait and problem.kind is ManifestProblem.TIMEOUT and search.budget.is_spent:
            raise OutOfTimeError(str(problem)) from None
        text = masked(str(problem))
        if problem.is_passing:
            search.unread.append(text)
        return replica.model_copy(update={"problem": text})
    return replica.model_copy(
        update={
            "checkpoint_uri": manifest.checkpoint_uri,
            "checkpoint_platform": manifest.platform,
            "round": manifest.round,
            "checksum": manifest.checksum,
            "metrics": manifest.metrics,
            "problem": None if manifest.problem is None else masked(manifest.problem),
            "ended": manifest.ended or None,
        }
    )


def _with_values(spec: Spec, replica: ReplicaResult) -> ReplicaResult:
    return replica.model_copy(update={"values": values_of(spec.sweep, replica.rank)})


def _identical(replicas: Sequence[ReplicaResult]) -> bool | None:
    to_the_end = (replica for replica in replicas if replica.finished_early is None)
    checksums = [replica.checksum for replica in to_the_end if replica.checksum is not None]
    return len(set(checksums)) == 1 if len(checksums) > 1 else None
