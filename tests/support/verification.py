"""Facts of a healthy verification, and for each of its checks a change of the facts that makes it fail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from muster.client.launch.estimate import Quota
from muster.client.runs.run_state import RunState
from muster.client.verify.account_checks import (
    ImageFacts,
    Probe,
    judge_image,
    judge_prices,
    judge_rates,
)
from muster.client.verify.bucket_checks import BucketFacts, LifecycleRule, judge_bucket
from muster.client.verify.delivery_checks import Rule, judge_dead_letters, judge_rules
from muster.client.verify.leftovers import Leftovers, judge_leftovers
from muster.client.verify.own_run import DELETED_FILE, FAILS_AFTER, KEPT_FILE, ROUNDS
from muster.client.verify.permission_cases import REPLICA, Case
from muster.client.verify.permission_checks import Decision, Simulated, judge_permissions
from muster.client.verify.quota_checks import Granted, judge_quotas
from muster.client.verify.run_checks import judge_run
from muster.client.verify.run_facts import ContainerReport, JobFacts, LogFacts, Look, OutputFacts, RunFacts
from muster.client.verify.services import Identity
from muster.client.verify.stack_checks import OUTPUTS, StackFacts, judge_stack
from muster.client.verify.stack_template import Statement
from muster.client.verify.verification import Check
from muster.client.verify.workflow_checks import Function, Machine, judge_functions, judge_machine
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import PriceTable
from muster.contract.run.attempt import Attempt
from muster.contract.run.model import ModelKind, ModelResult
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.contract.timestamps import Timestamp

ACCOUNT, REGION, BUCKET = "123456789012", "eu-west-1", "the-bucket"
_BUCKET_ARN = f"arn:aws:s3:::{BUCKET}"
_ROLE = f"arn:aws:iam::{ACCOUNT}:role/Attempt"
_FUNCTION = f"arn:aws:lambda:{REGION}:{ACCOUNT}:function:React"
_AT = Timestamp("2026-11-21T09:45:00.000Z")
_BEGAN = datetime(2026, 11, 21, 9, 45, tzinfo=UTC)

STACK = StackFacts(
    identity=Identity(ACCOUNT, f"arn:aws:sts::{ACCOUNT}:assumed-role/dev/me"),
    region=REGION,
    partition_of_region="aws",
    name="Muster",
    status="UPDATE_COMPLETE",
    outputs={**dict.fromkeys(OUTPUTS, "x"), "Region": REGION, "Version": "0.1.0"},
    client_version="0.1.0",
)


def _deny(action: str, resources: list[str], conditions: dict[str, Any]) -> dict[str, Any]:
    return {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": action,
        "Resource": [f"{_BUCKET_ARN}/{key}" for key in resources],
        "Condition": conditions,
    }


POLICY = {
    "Statement": [
        _deny("s3:*", ["*"], {"Bool": {"aws:SecureTransport": "false"}}),
        _deny("s3:*", ["*"], {"NumericLessThan": {"s3:TlsVersion": 1.2}}),
        _deny(
            "s3:PutObject",
            [
                *(f"control/*/{name}.json" for name in ("plan", "result", "lineage", "continued_by")),
                *("control/*/announced.json", "control/*/finished.json", "control/*/report.html", "runs/*"),
            ],
            {"Null": {"s3:if-none-match": "true"}},
        ),
        _deny(
            "s3:PutObject",
            [
                *("control/*/replicas/*", "control/*/rollup/*", "control/*/stopping.json"),
                *("source/*", "packages/*", "recipes/*"),
            ],
            {"Null": {"s3:if-none-match": "true", "s3:if-match": "true"}},
        ),
    ]
}
_RULES = (LifecycleRule("source/", 400, None), LifecycleRule("", None, 7))
BUCKET_FACTS = BucketFacts(
    name=BUCKET,
    region=REGION,
    region_found=REGION,
    arn=_BUCKET_ARN,
    policy=POLICY,
    access_block=dict.fromkeys(
        ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets"), True
    ),
    ownership="BucketOwnerEnforced",
    encryption="AES256",
    lifecycle=_RULES,
    deployed_lifecycle=_RULES,
)
RULE = Rule("JobEvents", "status changes of jobs", enabled=True, targets=(_FUNCTION,), expected=(_FUNCTION,))
FUNCTION = Function("React", "Active", "Successful", "")
MACHINE = Machine("ACTIVE", ("arn:aws:states:::lambda:invoke",), (_FUNCTION,), ("React",), "aws")
NEED = Quota(name="ml.m5.large for training job usage", instances=2)
PROBES = (Probe("DescribeTrainingJob", 20, 0, 0.5), Probe("ListTags", 20, 0, 0.5))
IMAGE = ImageFacts(f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/training:7", REGION, digest="sha256:" + "a" * 64)

_STATEMENT = Statement("Attempt", _ROLE, ("s3:GetObject",), (f"{_BUCKET_ARN}/control/*/plan.json",), {})
_PLAN = f"{_BUCKET_ARN}/control/verify/plan.json"
NEEDED = Case("Attempt", _ROLE, ("s3:GetObject",), (_PLAN,), {}, allowed=True, statement=_STATEMENT)
DENIED = Case(REPLICA, _ROLE, ("s3:GetObject",), (_PLAN,), {}, allowed=False)


def simulated(*, needed: str = "allowed", denied: str = "implicitDeny") -> Simulated:
    """What IAM decides about one request of *attempt*, and one that replicas must not make."""
    return (
        (NEEDED, (Decision("s3:GetObject", _PLAN, needed),)),
        (DENIED, (Decision("s3:GetObject", _PLAN, denied),)),
    )


def _attempt(rank: int, number: int, *, failure_class: FailureClass | None = None) -> Attempt:
    return Attempt(attempt=number, job=f"muster-v-r{rank}-a{number}", launched_at=_AT, failure_class=failure_class)


def _replica(rank: int, *attempts: Attempt) -> ReplicaResult:
    return ReplicaResult(rank=rank, outcome=ReplicaOutcome.SUCCEEDED, attempts=attempts, round=ROUNDS)


RESULT = Result(
    run="v",
    verdict=Verdict.SUCCEEDED,
    reason="",
    settled_at=_AT,
    replicas=(
        _replica(0, _attempt(0, 1)),
        _replica(1, _attempt(1, 1, failure_class=FailureClass.USER_CODE), _attempt(1, 2)),
    ),
    reruns=1,
    parameters_identical=True,
    model=ModelResult(
        uri="s3://b/output/v/model/",
        kind=ModelKind.MODEL,
        round=ROUNDS,
        bytes=100,
        files=1,
        checksum="ab" * 32,
        manifest=f"s3://b/output/v/model-{ROUNDS:08d}.json",
        manifest_sha256="cd" * 32,
    ),
)


def _job(rank: int, number: int, status: str, created: float, ended: float) -> JobFacts:
    name, reason = f"muster-v-r{rank}-a{number}", "" if status == "Completed" else "AlgorithmError: on purpose"
    return JobFacts(name, status, reason, _BEGAN + timedelta(seconds=created), _BEGAN + timedelta(seconds=ended), True)


JOBS = {
    job.name: job
    for job in (_job(0, 1, "Completed", 0, 500), _job(1, 1, "Failed", 0, 200), _job(1, 2, "Completed", 205, 500))
}


def report(rank: int, attempt: int, **changes: Any) -> ContainerReport:
    """What a healthy attempt says."""
    again = attempt > 1
    values: dict[str, Any] = {
        "rank": rank,
        "attempt": attempt,
        "python": "3.12.1",
        "variables": (),
        "restored": (KEPT_FILE, DELETED_FILE) if again else (),
        "round": FAILS_AFTER if again else 0,
        "steps": FAILS_AFTER if again else 0,
    }
    return ContainerReport(**{**values, **changes})


REPORTS = (report(0, 1), report(1, 1), report(1, 2))
RUN = RunFacts(
    run="v",
    prefix="muster",
    seconds=560,
    state=RunState.SUCCEEDED,
    result=RESULT,
    jobs=JOBS,
    looks=(
        # Its end was not rolled up yet, and later looks saw the next attempt.
        Look(5.0, "muster-v-r1-a1", "InProgress", "Failed"),
        *(Look(second, "muster-v-r0-a1", "InProgress", "InProgress") for second in (5.0, 10.0)),
    ),
    rolled_up_seconds=2.0,
    logs=LogFacts(REPORTS, (1.5, 3.0)),
    checkpoints=(KEPT_FILE, "muster-trainer-0.ckpt"),
    outputs=OutputFacts(
        "s3://b/control/v/report.html", 100, {"s3://b/output/v/model.tar.gz": True}, ("manifest.json",)
    ),
    has_key=True,
)
LEFT = Leftovers(running=(), execution_running=False, schedules=(), removed=38, kept=())


def _with_rerun(**changes: Any) -> LogFacts:
    return LogFacts((*REPORTS[:2], report(1, 2, **changes)))


def prices(usd: float) -> tuple[str, PriceTable]:
    """The answer of the Price List API for one type."""
    return "ml.m5.large", PriceTable(as_of="2026-11-21", region=REGION, source="x", usd_per_hour={"ml.m5.large": usd})


Judge = Callable[[], Iterable[Check]]


@dataclass(frozen=True)
class Breakage:
    """Facts under which the check of this name fails, and words that name the cause."""

    check: str
    words: str
    judge: Judge

    def __str__(self) -> str:
        return f"{self.check}: {self.words}"


def _run(check: str, words: str, **changes: Any) -> Breakage:
    return Breakage(check, words, lambda: judge_run(replace(RUN, **changes)))


def _bucket(check: str, words: str, **changes: Any) -> Breakage:
    return Breakage(check, words, lambda: judge_bucket(replace(BUCKET_FACTS, **changes)))


def _policy_without(index: int) -> dict[str, Any]:
    return {"Statement": [item for place, item in enumerate(POLICY["Statement"]) if place != index]}


def _result(**changes: Any) -> Result:
    return RESULT.model_copy(update=changes)


_LATE = {**JOBS, "muster-v-r1-a2": replace(JOBS["muster-v-r1-a2"], created_at=_BEGAN + timedelta(seconds=600))}
_PLAIN = {**JOBS, "muster-v-r0-a1": replace(JOBS["muster-v-r0-a1"], encrypted=False)}
_NO_RERUN = {name: job for name, job in JOBS.items() if not name.endswith("a2")}
_UNKNOWN = (RESULT.replicas[0], _replica(1, _attempt(1, 1, failure_class=FailureClass.UNKNOWN), _attempt(1, 2)))
_STALE = tuple(Look(second, "muster-v-r0-a1", "InProgress", "Completed") for second in (0.0, 90.0))
_SHORT = (RESULT.replicas[0].model_copy(update={"round": 3}), RESULT.replicas[1])

BREAKAGES = (
    Breakage("credentials", "partition aws", lambda: judge_stack(replace(STACK, partition_of_region="aws-cn"))),
    Breakage("stack", "UPDATE_FAILED", lambda: judge_stack(replace(STACK, status="UPDATE_FAILED"))),
    Breakage("stack", "rolled back", lambda: judge_stack(replace(STACK, status="UPDATE_ROLLBACK_COMPLETE"))),
    Breakage("stack", "outputs .*Version", lambda: judge_stack(replace(STACK, outputs={"Region": REGION}))),
    _bucket("bucket-place", "us-east-1", region_found="us-east-1"),
    _bucket("bucket-policy", "no policy", policy=None),
    _bucket("bucket-policy", "plain HTTP", policy=_policy_without(0)),
    _bucket("bucket-policy", "TLS 1.1", policy=_policy_without(1)),
    _bucket("bucket-policy", "control/verify/plan.json can be overwritten", policy=_policy_without(2)),
    _bucket("bucket-policy", "replicas/0.json can be written without", policy=_policy_without(3)),
    _bucket(
        "bucket-policy", "refuses Muster's own", policy={"Statement": [_deny("s3:*", ["*"], {}), *POLICY["Statement"]]}
    ),
    _bucket("bucket-privacy", "BlockPublicPolicy", access_block={}),
    _bucket("bucket-privacy", "ACLs count", ownership="ObjectWriter"),
    _bucket("bucket-encryption", "no default encryption", encryption=""),
    _bucket("bucket-lifecycle", "not there or was changed", lifecycle=_RULES[1:]),
    _bucket(
        "bucket-lifecycle", "every prefix expire after 999 days", lifecycle=(*_RULES, LifecycleRule("", 999, None))
    ),
    _bucket(
        "bucket-lifecycle",
        "control/ expire on 2027-01-01",
        lifecycle=(*_RULES, LifecycleRule("control/", None, None, "2027-01-01")),
    ),
    _bucket(
        "bucket-lifecycle", "source/ expire after 30 days", lifecycle=(*_RULES, LifecycleRule("source/", 30, None))
    ),
    Breakage("event-rules", "JobEvents is disabled", lambda: judge_rules((replace(RULE, enabled=False),))),
    Breakage("event-rules", "no longer calls", lambda: judge_rules((replace(RULE, targets=()),))),
    Breakage("event-rules", "no rule", lambda: judge_rules(())),
    Breakage("functions", "is Failed", lambda: judge_functions((replace(FUNCTION, state="Failed"),))),
    Breakage("functions", "last update Failed", lambda: judge_functions((replace(FUNCTION, last_update="Failed"),))),
    Breakage("state-machine", "DELETING", lambda: judge_machine(replace(MACHINE, status="DELETING"))),
    Breakage(
        "state-machine", "not of the partition aws-cn", lambda: judge_machine(replace(MACHINE, partition="aws-cn"))
    ),
    Breakage("state-machine", "not a function of the stack", lambda: judge_machine(replace(MACHINE, functions=()))),
    Breakage("dead-letters", "about 3 events", lambda: judge_dead_letters(("https://q/Letters", 3))),
    Breakage("quota", "2 needed, 1 granted", lambda: judge_quotas({NEED.name: Granted(1, "L-1")}, [NEED])),
    Breakage(
        "permissions-attempt",
        "s3:GetObject on .*plan.json",
        lambda: judge_permissions(simulated(needed="implicitDeny")),
    ),
    Breakage(
        "permissions-denied-to-replicas", "may s3:GetObject", lambda: judge_permissions(simulated(denied="allowed"))
    ),
    Breakage("prices", "no price", lambda: judge_prices(("ml.p9.large", prices(1.0)[1]))),
    Breakage("prices", r"\$9 an hour", lambda: judge_prices(prices(9.0))),
    Breakage("image", "cannot be found", lambda: judge_image(replace(IMAGE, digest="", problem="ImageNotFound"))),
    Breakage("image", "its own region only", lambda: judge_image(replace(IMAGE, region="us-east-1"))),
    Breakage("call-rates", "15 throttled", lambda: judge_rates((Probe("ListTags", 20, 15, 4.0),))),
    _run("run", "is failed: lost", state=RunState.FAILED, reason="lost"),
    _run("run", "could not be started", problem="the run could not be started: no", state=None),
    _run("rerun", "was not rerun", jobs=_NO_RERUN),
    _run("rerun", "taken for unknown", result=_result(replicas=_UNKNOWN)),
    _run("job-event-delay", "400 s after", jobs=_LATE),
    _run("checkpoint-restored", "did not find verify-kept", logs=_with_rerun(restored=(DELETED_FILE,))),
    _run("checkpoint-restored", "after 0 steps", logs=_with_rerun(steps=0)),
    _run("checkpoint-deleted", "still in the bucket", checkpoints=(KEPT_FILE, DELETED_FILE)),
    _run("checkpoint-deleted", "is not in the bucket", checkpoints=()),
    _run("logs", "1 of 3 attempts", logs=LogFacts(REPORTS[:2])),
    _run("logs", "reached CloudWatch Logs 90 s", logs=LogFacts(REPORTS, (90.0,))),
    _run("status", "differed from SageMaker for 90 s", looks=_STALE),
    _run("status", "shown as InProgress at the end", looks=_STALE[:1]),
    _run("status", "no roll-up", rolled_up_seconds=None),
    _run("status", "the roll-up came 90 s after", rolled_up_seconds=90.0),
    _run("status", "the roll-up does not have the end of rank 1", not_rolled_up=(1,)),
    _run("result", "same parameters", result=_result(parameters_identical=False)),
    _run("result", "rank 0 did not end in round 4", result=_result(replicas=_SHORT)),
    _run("artifacts", "does not exist", outputs=replace(RUN.outputs, artifacts={"s3://b/x": False})),
    _run("artifacts", "names no artifacts", outputs=replace(RUN.outputs, artifacts={})),
    _run("artifacts", "names no model", result=_result(model=None)),
    _run(
        "archive-members", "no manifest.json at its root", outputs=replace(RUN.outputs, archive=("data/manifest.json",))
    ),
    _run("archive-members", "no tar archive", outputs=replace(RUN.outputs, no_archive="Not a gzipped file")),
    _run("page", "no page", outputs=replace(RUN.outputs, page=None)),
    _run("volume-key", "no KMS key on its volume", jobs=_PLAIN),
    Breakage(
        "nothing-runs",
        "muster-v-r0-a1 has not ended",
        lambda: judge_leftovers(replace(LEFT, running=("muster-v-r0-a1",))),
    ),
    Breakage("nothing-runs", "execution has not ended", lambda: judge_leftovers(replace(LEFT, execution_running=True))),
)


def healthy() -> Iterator[Check]:
    """Every check, of facts of which none is wrong."""
    yield from judge_stack(STACK)
    yield from judge_bucket(BUCKET_FACTS)
    yield from judge_rules((RULE,))
    yield from judge_functions((FUNCTION,))
    yield from judge_machine(MACHINE)
    yield from judge_dead_letters(("https://q/Letters", 0))
    yield from judge_quotas({NEED.name: Granted(2, "L-1")}, [NEED])
    yield from judge_permissions(simulated())
    yield from judge_prices(prices(0.128))
    yield from judge_image(IMAGE)
    yield from judge_run(RUN)
    yield from judge_rates(PROBES)
    yield from judge_leftovers(LEFT)
