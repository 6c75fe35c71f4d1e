"""Judges the run of a verification. Pure: a function of what was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby

from muster.client.runs.run_state import RunState
from muster.client.verify.own_run import DELETED_FILE, FAILING_RANK, FAILS_AFTER, KEPT_FILE, REPLICAS, ROUNDS
from muster.client.verify.run_facts import ContainerReport, JobFacts, RunFacts
from muster.client.verify.verification import Check, failed, info, judged, ok, unchecked
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.names import JobName
from muster.contract.run.attempt import Attempt

EVENT_SECONDS_MAX = 120.0
"""From the end of a job to its rerun: EventBridge, react, the workflow, attempt."""
LOG_SECONDS_MAX = 60.0
STALE_SECONDS_MAX = 60.0
_MANIFEST = "manifest.json"
_NO_MANIFEST = "The settlement cannot find the replicas' manifests."

Judge = Callable[[RunFacts], Check]


def _run(facts: RunFacts) -> Check:
    problems = [] if facts.state is RunState.SUCCEEDED else [f"{facts.run} is {facts.state}: {facts.reason}"]
    seen = f"{facts.run} succeeded after {facts.seconds / 60:.1f} minutes."
    assumes = (
        "SageMaker gives a job's sessions the session tags of the session that created it, and that its download of "
        "channels, its sync of checkpoints and its upload of outputs need no listing of the bucket without a prefix "
        "and take 403 for a missing key"
    )
    return judged(
        "run", problems, seen, f"See why: muster status {facts.run}; muster logs {facts.run}", assumes=assumes
    )


def _rerun(facts: RunFacts) -> Check:
    first, second = _job(facts, 1), _job(facts, 2)
    attempts = _attempts(facts)
    if first is None or not attempts:
        return failed("rerun", f"rank {FAILING_RANK} has no first attempt.", _WORKFLOW)
    problems = []
    if attempts[0].failure_class is not FailureClass.USER_CODE:
        problems.append(f"its failure is taken for {attempts[0].failure_class}; SageMaker's reason is {first.reason!r}")
    if second is None:
        problems.append(f"the failed rank {FAILING_RANK} was not rerun")
    elif second.status != "Completed":
        problems.append(f"its rerun ended as {second.status}: {second.reason}")
    if len(attempts) > 2:
        problems.append(f"it had {len(attempts)} attempts instead of 2")
    seen = f"rank {FAILING_RANK} failed on purpose, was taken for user-code, and its second attempt completed."
    return judged("rerun", problems, seen, _WORKFLOW)


def _event_delay(facts: RunFacts) -> Check:
    name, first, second = "job-event-delay", _job(facts, 1), _job(facts, 2)
    assumes = "the end of a training job reaches the stack within two minutes, as an event"
    if first is None or second is None or first.ended_at is None:
        return unchecked(name, "there is no rerun whose delay could be measured.", assumes=assumes)
    delay = (second.created_at - first.ended_at).total_seconds()
    seen = f"the rerun was created {delay:.0f} s after the end of the failed job."
    late = [f"the rerun was created only {delay:.0f} s after the end"] if delay > EVENT_SECONDS_MAX else []
    remedy = "If an event was lost, a rerun waits until the attempt is re-armed: see the dead letters and the rule."
    return judged(name, late, seen, remedy, assumes=assumes)


def _restored(facts: RunFacts) -> Check:
    name, report = "checkpoint-restored", _report(facts, 2)
    assumes = "SageMaker restores everything under the checkpoint prefix in a new job, also what a failed job left"
    if report is None:
        return unchecked(name, "the rerun did not say what it found.", _LOGS, assumes=assumes)
    missing = [item for item in (KEPT_FILE, DELETED_FILE) if item not in report.restored]
    problems = [f"the rerun did not find {', '.join(missing)}"] if missing else []
    if (report.round, report.steps) != (FAILS_AFTER, FAILS_AFTER):
        problems.append(f"the rerun continued after {report.steps} steps in round {report.round}, not {FAILS_AFTER}")
    seen = f"the rerun found both files and continued after step {report.steps} of round {report.round}."
    return judged(
        name, problems, seen, "See the checkpoints of the run, and s3:GetObject of the role.", assumes=assumes
    )


def _deleted(facts: RunFacts) -> Check:
    assumes = "SageMaker deletes from S3 what a container deletes from its checkpoint directory"
    report = _report(facts, 2)
    if report is None or DELETED_FILE not in report.restored:
        return unchecked("checkpoint-deleted", f"{DELETED_FILE} was not there to be deleted.", _LOGS, assumes=assumes)
    problems = []
    if KEPT_FILE not in facts.checkpoints:
        problems.append(f"{KEPT_FILE}, which was not deleted, is not in the bucket")
    if DELETED_FILE in facts.checkpoints:
        problems.append(f"{DELETED_FILE} was deleted in the container and is still in the bucket")
    seen = f"{DELETED_FILE} was deleted in the container and is gone from the bucket; {KEPT_FILE} is there."
    remedy = (
        "Old checkpoints would come back at every restart and fill the volume: see s3:DeleteObject under checkpoints/."
    )
    return judged("checkpoint-deleted", problems, seen, remedy, assumes=assumes)


def _deletion_denied(facts: RunFacts) -> Check:
    name, last = "deletion-denied", _job(facts, 2)
    assumes = "a deletion that S3 denies to SageMaker does not end the job"
    if DELETED_FILE not in facts.checkpoints or last is None:
        return info(name, "it was not provoked: the role of the replicas may delete.", assumes=assumes)
    return info(name, f"{DELETED_FILE} stayed in the bucket, and its job is {last.status}.", assumes=assumes)


def _container_region(facts: RunFacts) -> Check:
    assumes = "AWS_REGION may be missing in a container, so the region travels in the job's own environment"
    if not facts.logs.reports:
        return unchecked("container-region", "no attempt said which variables it has.", _LOGS, assumes=assumes)
    first = facts.logs.reports[0]
    found = (
        f"{' and '.join(first.variables)} set" if first.variables else "neither AWS_REGION nor AWS_DEFAULT_REGION set"
    )
    seen = f"the container has {found}; it runs Python {first.python}."
    return info("container-region", seen, assumes=assumes)


def _logs(facts: RunFacts) -> Check:
    logs = facts.logs
    if logs.problem:
        return unchecked("logs", logs.problem, _LOGS)
    silent = REPLICAS + 1 - len(logs.reports)
    problems = [f"{silent} of {REPLICAS + 1} attempts have no line in the log"] if silent > 0 else []
    delay = max(logs.delays, default=0.0)
    if delay > LOG_SECONDS_MAX:
        problems.append(f"a line reached CloudWatch Logs {delay:.0f} s after it was written")
    seen = f"every attempt has lines, and the latest line came {delay:.0f} s after it was written."
    return judged("logs", problems, seen, _LOGS)


def _status(facts: RunFacts) -> Check:
    if not facts.looks:
        return unchecked("status", "no look at the run was made while it had jobs.")
    stale = 0.0
    for _, of_job in groupby(sorted(facts.looks, key=lambda look: (look.job, look.seconds)), lambda look: look.job):
        for differs, streak in groupby(of_job, lambda look: look.shown != look.described):
            looks = list(streak)
            stale = max(stale, looks[-1].seconds - looks[0].seconds) if differs else stale
    problems = [f"`muster status` differed from SageMaker for {stale:.0f} s"] if stale > STALE_SECONDS_MAX else []
    # A job that another attempt has replaced was last looked at in the middle of the run.
    end = max(look.seconds for look in facts.looks)
    problems += [
        f"{look.job} was shown as {look.shown} at the end, and is {look.described}"
        for look in facts.looks
        if look.seconds == end and look.shown != look.described
    ]
    late = facts.rolled_up_seconds
    if late is None or late > STALE_SECONDS_MAX:
        problems.append(
            "the run has no roll-up" if late is None else f"the roll-up came {late:.0f} s after the last end"
        )
    problems += [f"the roll-up does not have the end of rank {rank}" for rank in facts.not_rolled_up]
    seen = (
        f"`muster status` agreed with DescribeTrainingJob in {len(facts.looks)} looks, at most {stale:.0f} s behind; "
        f"the roll-up was complete {late or 0:.0f} s after the end of the last job."
    )
    return judged("status", problems, seen, "See the dead letters, and the log of the function react.")


def _result(facts: RunFacts) -> Check:
    result = facts.result
    if result is None:
        return failed("result", "the run has no result.", _WORKFLOW)
    problems = []
    if result.parameters_identical is not True:
        problems.append(f"the replicas do not report the same parameters ({result.parameters_identical})")
    behind = [item.rank for item in result.replicas if item.round != ROUNDS]
    problems += [f"rank {rank} did not end in round {ROUNDS}" for rank in behind]
    problems += [f"rank {item.rank}: {item.problem}" for item in result.replicas if item.problem]
    seen = f"both replicas ended in round {ROUNDS} with the same bytes."
    return judged("result", problems, seen, f"See: muster result {facts.run} --json")


def _artifacts(facts: RunFacts) -> Check:
    missing = [uri for uri, there in facts.outputs.artifacts.items() if not there]
    problems = [f"the result names {uri}, which does not exist" for uri in missing]
    if not facts.outputs.artifacts:
        problems.append("the result names no artifacts")
    if facts.result is not None and facts.result.model is None:
        problems.append(f"the result names no model ({facts.result.model_problem})")
    seen = f"all {len(facts.outputs.artifacts)} objects that the result names are there."
    return judged("artifacts", problems, seen, "See s3:PutObject of the replicas' role under output/.")


def _archive(facts: RunFacts) -> Check:
    assumes = f"{_MANIFEST} is at the root of output.tar.gz, as it was in /opt/ml/output/data"
    if facts.outputs.problem:
        return unchecked("archive-members", facts.outputs.problem, assumes=assumes)
    if facts.outputs.no_archive:
        seen = f"output.tar.gz is no tar archive compressed with gzip: {facts.outputs.no_archive}."
        return failed("archive-members", seen, _NO_MANIFEST, assumes=assumes)
    names = [name.removeprefix("./") for name in facts.outputs.archive]
    seen = f"output.tar.gz holds {', '.join(facts.outputs.archive)}."
    problems = [] if _MANIFEST in names else [f"output.tar.gz has no {_MANIFEST} at its root; it holds {names}"]
    return judged("archive-members", problems, seen, _NO_MANIFEST, assumes=assumes)


def _page(facts: RunFacts) -> Check:
    outputs = facts.outputs
    if outputs.page is None:
        return failed("page", "the run has no page.", "See the log of the function settle.")
    return ok("page", f"{outputs.page} has {outputs.page_bytes:,} bytes.")


def _volume_key(facts: RunFacts) -> Check:
    assumes = "SageMaker encrypts volumes with a grant for which kms:GrantIsForAWSResource is true"
    if not facts.has_key:
        return info("volume-key", "the stack has no KMS key, so no grant was needed.", assumes=assumes)
    plain = [f"{job.name} has no KMS key on its volume" for job in facts.jobs.values() if not job.encrypted]
    return judged("volume-key", plain, "the volumes of all jobs are encrypted with the stack's key.", assumes=assumes)


_WORKFLOW = "See the execution in the Step Functions console, and the log of the function react."
_LOGS = "See the replicas' role: logs:CreateLogStream, logs:PutLogEvents; and your own right logs:FilterLogEvents."

JUDGES: dict[str, Judge] = {
    "run": _run,
    "rerun": _rerun,
    "job-event-delay": _event_delay,
    "checkpoint-restored": _restored,
    "checkpoint-deleted": _deleted,
    "deletion-denied": _deletion_denied,
    "container-region": _container_region,
    "logs": _logs,
    "status": _status,
    "result": _result,
    "artifacts": _artifacts,
    "archive-members": _archive,
    "page": _page,
    "volume-key": _volume_key,
}
"""The checks of the run, in their order."""


def judge_run(facts: RunFacts) -> Iterator[Check]:
    """Every check; those of a run that did not get that far could not be made."""
    if facts.problem or facts.state is None:
        yield failed("run", f"{facts.problem or 'the run was not started'}.", "Mend what the checks above name, first.")
        others = (name for name in JUDGES if name != "run")
        yield from (unchecked(name, "the run did not end by itself.") for name in others)
        return
    for judge in JUDGES.values():
        yield judge(facts)


def _job(facts: RunFacts, attempt: int) -> JobFacts | None:
    return facts.jobs.get(str(JobName(facts.prefix, facts.run, FAILING_RANK, attempt)))


def _attempts(facts: RunFacts) -> tuple[Attempt, ...]:
    replicas = () if facts.result is None else facts.result.replicas
    return next((replica.attempts for replica in replicas if replica.rank == FAILING_RANK), ())


def _report(facts: RunFacts, attempt: int) -> ContainerReport | None:
    return next((item for item in facts.logs.reports if (item.rank, item.attempt) == (FAILING_RANK, attempt)), None)
