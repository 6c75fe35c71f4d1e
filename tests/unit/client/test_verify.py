"""What `muster verify` decides about a right and a limit, and its clean-up; tests/e2e/test_verify.py runs all of it."""

import gzip
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from muster.client.aws.cluster_api import ClusterAnswer
from muster.client.aws.s3_route import Routes
from muster.client.launch.dry_run import dry_run
from muster.client.launch.estimate import Quota
from muster.client.verify import leftovers, run_gathering
from muster.client.verify.account_checks import Probe, judge_rates, judge_routes
from muster.client.verify.bucket_checks import BucketFacts, LifecycleRule, judge_bucket
from muster.client.verify.cluster_checks import NEEDED_ADDONS, ClusterFacts, Entry, WantedRole, judge_cluster
from muster.client.verify.leftovers import Leftovers, judge_leftovers
from muster.client.verify.own_run import INSTANCE_TYPE, MAX_RUNTIME_SECONDS, own_spec, promise
from muster.client.verify.permission_cases import OTHER, REPLICA, Case, Site, needed, replica_denials, replica_needs
from muster.client.verify.permission_checks import DENIALS, Decision, decisions, judge_permissions
from muster.client.verify.quota_checks import Granted, judge_quotas
from muster.client.verify.run_gathering import ArchiveError, archive_members
from muster.client.verify.services import Account
from muster.client.verify.stack_template import Statement
from muster.client.verify.topic import with_clean_up
from muster.client.verify.verification import Check, Outcome, Verification, ok
from muster.client.verify.verifier import Verifier, Wishes
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.hyperpod.clusters import Cluster
from muster.contract.layout import RunLayout
from muster.contract.timestamps import Timestamp
from tests.memory.harness import RUN, ControlHarness
from tests.support.memory_client import client_of, muster_of, put

ACCOUNT = "123456789012"
ROLE_ARN = f"arn:aws:iam::{ACCOUNT}:role/Replica"
SITE = Site(
    partition="aws",
    region="eu-west-1",
    account=ACCOUNT,
    bucket="b",
    job_prefix="muster",
    role_arn=ROLE_ARN,
    launcher_arn=f"arn:aws:iam::{ACCOUNT}:role/Launcher",
    attempt_arn=f"arn:aws:lambda:eu-west-1:{ACCOUNT}:function:Attempt",
    bus_arn=f"arn:aws:events:eu-west-1:{ACCOUNT}:event-bus/Bus",
    state_machine_arn=f"arn:aws:states:eu-west-1:{ACCOUNT}:stateMachine:Runs",
)


def failed(checks: Iterator[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.seen) for check in checks if check.outcome is Outcome.FAILED]


def test_a_verification_passes_unless_a_check_has_failed() -> None:
    about = {"stack": "Muster", "region": "eu-west-1", "version": "0.1.0", "promise": None, "run": None}
    at = Timestamp("2026-11-21T09:45:00.000Z")
    for outcome in Outcome:
        found = Verification(started_at=at, checks=(Check(name="x", outcome=outcome, seen="x."),), **about)
        assert found.passed == (outcome is not Outcome.FAILED), outcome


# --- rights of the stack's roles --------------------------------------------------------------------


def statement(*resources: str, action: str = "s3:GetObject", **conditions: Any) -> Statement:
    return Statement("Replica", ROLE_ARN, (action,), resources, conditions)


def test_a_statement_becomes_a_request_that_it_matches_and_that_lacks_what_others_ask_for() -> None:
    arn = "arn:aws:s3:::b/rendezvous/${aws:PrincipalTag/MusterLineage}/*"
    prefixes = {"s3:prefix": ["${aws:PrincipalTag/MusterRun}/*", "y"]}
    [case] = needed([statement(arn, "arn:aws:ecr:eu-west-1:*:repository/*", StringLike=prefixes)])
    assert case.resources == (
        "arn:aws:s3:::b/rendezvous/verify/verify",
        "arn:aws:ecr:eu-west-1:000000000000:repository/verify",
    )
    tags = {f"aws:PrincipalTag/{tag}": ("verify",) for tag in ("MusterLineage", "MusterRun")}
    assert (case.context, case.absent) == ({**tags, "s3:prefix": ("verify/verify",)}, frozenset())
    absent = statement("*", Null={"s3:if-match": "true"})
    metrics = statement("*", action="cloudwatch:PutMetricData", StringEquals={"cloudwatch:namespace": "x"})
    [case, _] = needed([absent, metrics])
    assert case.absent == {"s3:if-match", "cloudwatch:namespace"}
    for case in (*replica_needs(SITE), *replica_denials(SITE, [statement("*")])):
        assert case.context["aws:ResourceAccount"] == (ACCOUNT,)
        assert case.context["aws:PrincipalTag/MusterRun"] == ("verify",)


def denials(*statements: Statement) -> dict[str, list[Case]]:
    """The requests that replicas must be denied, by action."""
    found: dict[str, list[Case]] = {}
    for case in replica_denials(SITE, statements):
        for action in case.actions:
            found.setdefault(action, []).append(case)
    return found


def test_a_replica_must_be_denied_another_runs_objects_and_other_services() -> None:
    own, brought = (
        {arn for cases in denials(*known).values() for case in cases for arn in case.resources}
        for known in ((statement("*"),), ())
    )
    assert "arn:aws:s3:::b/control/verify/plan.json" in own & brought
    objects = {arn for arn in own - brought if arn.startswith("arn:aws:s3")}
    assert objects == {
        f"arn:aws:s3:::b/{key}"
        for key in (
            "checkpoints/another/r0/x",
            "output/another/x",
            "rendezvous/another/x",
            "runs/another/document.json",
        )
    }
    listings = denials(statement("*"))["s3:ListBucket"]
    others = (f"rendezvous/{OTHER}/", f"checkpoints/{OTHER}/r0/", f"output/{OTHER}/")
    assert [case.context.get("s3:prefix") for case in listings] == [
        *(None, ("",), ("control/",)),
        *((prefix,) for prefix in others),
    ]
    found = {action: {arn for case in cases for arn in case.resources} for action, cases in denials().items()}
    assert found["sts:AssumeRole"] == {SITE.launcher_arn}
    assert found["iam:PassRole"] == {ROLE_ARN}
    assert found["lambda:InvokeFunction"] == {SITE.attempt_arn}
    assert found["states:StartExecution"] == {SITE.state_machine_arn}
    jobs = f"arn:aws:sagemaker:eu-west-1:{ACCOUNT}:training-job/muster-"
    assert found["sagemaker:StopTrainingJob"] == {f"{jobs}verify-r0-a1", f"{jobs}another-r0-a1"}


def test_a_decision_is_read_for_each_resource_and_not_from_their_aggregate() -> None:
    results = [
        {"EvalResourceName": "arn:aws:s3:::b/1", "EvalResourceDecision": "allowed"},
        {
            "EvalResourceName": "arn:aws:s3:::b/2",
            "EvalResourceDecision": "implicitDeny",
            "MissingContextValues": ["aws:SourceVpc"],
        },
    ]
    named = {"EvalActionName": "s3:GetObject", "EvalResourceName": "arn:x", "EvalDecision": "implicitDeny"}
    assert list(decisions({**named, "ResourceSpecificResults": results})) == [
        Decision("s3:GetObject", "arn:aws:s3:::b/1", "allowed"),
        Decision("s3:GetObject", "arn:aws:s3:::b/2", "implicitDeny", ("aws:SourceVpc",)),
    ]
    assert list(decisions(named)) == [Decision("s3:GetObject", "arn:x", "implicitDeny")]


PLAN = "arn:aws:s3:::b/control/verify/plan.json"
NEEDED = Case("Attempt", ROLE_ARN, ("s3:GetObject",), (PLAN,), {}, allowed=True, statement=statement(PLAN))
DENIED = Case(REPLICA, ROLE_ARN, ("s3:GetObject",), (PLAN,), {}, allowed=False)
ALLOWS, DENIES = (Decision("s3:GetObject", PLAN, one) for one in ("allowed", "implicitDeny"))
UNDECIDED = replace(DENIES, missing=("aws:SourceVpc",))


def test_a_right_that_is_missing_or_too_much_is_a_failure_and_what_iam_cannot_decide_is_unchecked() -> None:
    for of_needed, of_denied, expected in (
        ((ALLOWS,), (DENIES,), (Outcome.OK, Outcome.OK)),
        ((DENIES,), (DENIES,), (Outcome.FAILED, Outcome.OK)),
        ((ALLOWS,), (ALLOWS,), (Outcome.OK, Outcome.FAILED)),
        ((UNDECIDED,), (UNDECIDED,), (Outcome.UNCHECKED, Outcome.UNCHECKED)),
        # What is certain comes first.
        ((ALLOWS,), (UNDECIDED, ALLOWS), (Outcome.OK, Outcome.FAILED)),
    ):
        found = list(judge_permissions(((NEEDED, of_needed), (DENIED, of_denied))))
        assert [check.name for check in found] == ["permissions-attempt", DENIALS]
        assert tuple(check.outcome for check in found) == expected, (of_needed, of_denied)
        assert all("s3:GetObject" in seen for _, seen in failed(iter(found)))


# --- rights on the bucket and on a cluster ----------------------------------------------------------


def deny(action: str, keys: list[str], conditions: dict[str, Any]) -> dict[str, Any]:
    return {
        "Effect": "Deny",
        "Principal": {"AWS": "*"},
        "Action": action,
        "Resource": [f"arn:aws:s3:::b/{key}" for key in keys],
        "Condition": conditions,
    }


ONCE = ("plan", "result", "lineage", "continued_by", "announced", "finished")
SWAPPED = ["control/*/replicas/*", "control/*/rollup/*", "control/*/stopping.json", "source/*", "packages/*"]
POLICY = [
    deny("s3:*", ["*"], {"Bool": {"aws:SecureTransport": "false"}}),
    deny("s3:*", ["*"], {"NumericLessThan": {"s3:TlsVersion": 1.2}}),
    deny(
        "s3:PutObject",
        [*(f"control/*/{name}.json" for name in ONCE), "control/*/report.html", "runs/*"],
        {"Null": {"s3:if-none-match": "true"}},
    ),
    deny("s3:PutObject", [*SWAPPED, "recipes/*"], {"Null": {"s3:if-none-match": "true", "s3:if-match": "true"}}),
]
RULES = (LifecycleRule("source/", 400, None), LifecycleRule("", None, 7))
BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
BUCKET = BucketFacts(
    name="b",
    region="eu-west-1",
    region_found="eu-west-1",
    arn="arn:aws:s3:::b",
    policy={"Statement": POLICY},
    access_block=dict.fromkeys(BLOCKS, True),
    ownership="BucketOwnerEnforced",
    encryption="AES256",
    lifecycle=RULES,
    deployed_lifecycle=RULES,
)


def test_a_bucket_that_others_can_read_or_overwrite_or_that_forgets_too_early_is_a_failure() -> None:
    assert failed(judge_bucket(BUCKET)) == []
    for changes, name, words in (
        ({"policy": None}, "bucket-policy", "no policy"),
        ({"policy": {"Statement": POLICY[1:]}}, "bucket-policy", "plain HTTP"),
        ({"policy": {"Statement": [POLICY[0], *POLICY[2:]]}}, "bucket-policy", "TLS 1.1"),
        ({"policy": {"Statement": [*POLICY[:2], POLICY[3]]}}, "bucket-policy", "can be overwritten"),
        ({"policy": {"Statement": POLICY[:3]}}, "bucket-policy", "can be written without"),
        ({"policy": {"Statement": [deny("s3:*", ["*"], {}), *POLICY]}}, "bucket-policy", "refuses Muster's own"),
        ({"access_block": {}}, "bucket-privacy", "BlockPublicPolicy"),
        ({"ownership": "ObjectWriter"}, "bucket-privacy", "ACLs count"),
        ({"encryption": ""}, "bucket-encryption", "no default encryption"),
        ({"region_found": "us-east-1"}, "bucket-place", "us-east-1"),
        ({"lifecycle": RULES[1:]}, "bucket-lifecycle", "not there or was changed"),
        ({"lifecycle": (*RULES, LifecycleRule("source/", 30, None))}, "bucket-lifecycle", "after 30 days"),
    ):
        [(found, seen)] = failed(judge_bucket(replace(BUCKET, **changes)))  # type: ignore[arg-type]
        assert (found, words in seen) == (name, True), (changes, seen)


GROUP = "muster:muster:plan:0a1b2c3d"
RIGHTS: tuple[dict[str, Any], ...] = ({"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},)
BOUND = ClusterAnswer(200, {"subjects": [{"kind": "Group", "name": GROUP}]})
ROLE = WantedRole("team-a", "muster-plan", GROUP, RIGHTS, ClusterAnswer(200, {"rules": list(RIGHTS)}), BOUND)
ORCHESTRATOR = {"Eks": {"ClusterArn": f"arn:aws:eks:us-east-1:{ACCOUNT}:cluster/research-eks"}}
CLUSTER = ClusterFacts(
    cluster=Cluster(name="research", eks_cluster="research-eks", namespaces=("team-a",)),
    hyperpod={"ClusterStatus": "InService", "Orchestrator": ORCHESTRATOR},
    eks={"status": "ACTIVE", "accessConfig": {"authenticationMode": "API"}},
    addons=dict.fromkeys(NEEDED_ADDONS, "ACTIVE"),
    entries=(Entry("role/plan", (GROUP,), (), (GROUP,)), Entry("role/access", (), ("policy",), (), ("policy",))),
    review=ClusterAnswer(201, {"status": {"allowed": True}}),
    kind=ClusterAnswer(200, {"resources": [{"name": "hyperpodpytorchjobs"}]}),
    roles=(ROLE,),
)
HIDDEN = ClusterAnswer(403, {"message": "forbidden"})


def test_a_right_that_a_cluster_lacks_is_a_failure_and_what_cannot_be_seen_is_unchecked() -> None:
    entries, roles = "cluster-access-entries-research", "cluster-roles-research"
    for changes, outcome, name in (
        ({"hyperpod": {"ClusterStatus": "Deleting"}}, Outcome.FAILED, "cluster-research"),
        ({"addons": {NEEDED_ADDONS[0]: "missing"}}, Outcome.FAILED, "cluster-add-ons-research"),
        ({"entries": (Entry("role/plan", (GROUP,), (), None),)}, Outcome.FAILED, entries),
        ({"entries": (Entry("role/plan", (GROUP,), (), ("x",)),)}, Outcome.FAILED, entries),
        ({"entries": (Entry("role/x", (), ("policy",), ()),)}, Outcome.FAILED, entries),
        ({"kind": ClusterAnswer(404, {})}, Outcome.FAILED, "cluster-job-kind-research"),
        ({"roles": (replace(ROLE, role=ClusterAnswer(404, {})),)}, Outcome.FAILED, roles),
        ({"roles": (replace(ROLE, role=ClusterAnswer(200, {"rules": []})),)}, Outcome.FAILED, roles),
        ({"roles": (replace(ROLE, binding=ClusterAnswer(200, {"subjects": []})),)}, Outcome.FAILED, roles),
        ({"roles": (replace(ROLE, role=HIDDEN),)}, Outcome.UNCHECKED, roles),
        ({"kind": HIDDEN}, Outcome.UNCHECKED, "cluster-job-kind-research"),
    ):
        found = judge_cluster(replace(CLUSTER, **changes))  # type: ignore[arg-type]
        wrong = [(check.name, check.outcome) for check in found if check.outcome is not Outcome.OK]
        assert wrong == [(name, outcome)], changes
    assert {check.outcome for check in judge_cluster(CLUSTER)} == {Outcome.OK}


# --- limits -----------------------------------------------------------------------------------------


def test_a_quota_below_what_the_run_needs_and_a_throttled_account_are_failures() -> None:
    need = Quota(name="ml.m5.large for training job usage", instances=2)
    for granted, wrong in ((2, []), (1, ["quota"])):
        assert [name for name, _ in failed(judge_quotas({need.name: Granted(granted, "L-1")}, [need]))] == wrong
    for throttled, wrong in ((0, []), (15, ["call-rates"])):
        assert [name for name, _ in failed(judge_rates((Probe("ListTags", 20, throttled, 4.0),)))] == wrong


def test_a_nat_gateway_on_the_way_to_s3_is_looked_for_where_the_stack_has_a_vpc(harness: ControlHarness) -> None:
    vpc = {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}
    for defaults in ({}, {"vpc_config": vpc}):
        muster = muster_of(harness.cloud)
        connection = vars(muster._cloud.connection)
        connection["stack"] = replace(connection["stack"], defaults=json.dumps(defaults))
        names = [name for topic in Verifier(muster, Wishes(run=False))._free() for name in topic.names]
        assert ("route-to-s3" in names) == bool(defaults)
    table = {"RouteTableId": "rtb-1", "Associations": [{"Main": True}], "Routes": [{"NatGatewayId": "nat-1"}]}
    outcomes = []
    for endpoints in ((), ({"VpcEndpointType": "Gateway", "RouteTableIds": ["rtb-1"]},)):
        [check] = judge_routes((["subnet-1"], Routes((table,), endpoints)))
        outcomes.append((check.outcome, "$0.045 for each GB" in check.seen))
    assert outcomes == [(Outcome.INFO, True), (Outcome.OK, False)]


def test_the_run_costs_less_than_ten_cents_and_only_its_failure_on_purpose_is_billed_twice() -> None:
    spec = own_spec("v", INSTANCE_TYPE, "image:1")
    found = promise(dry_run(spec))
    # To the time limit, 120 s from SIGTERM to SIGKILL, 60 s to upload.
    hourly = SHIPPED_PRICES.usd_per_hour[INSTANCE_TYPE]
    assert found.usd == pytest.approx(4 * (MAX_RUNTIME_SECONDS + 120 + 60) / 3600 * hourly + 0.005)
    assert found.usd < 0.10
    unbilled = {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLE}
    billed = {item for item in spec.reruns if item not in unbilled and spec.budget(item).max_reruns}
    assert billed == {FailureClass.USER_CODE}
    assert promise(dry_run(own_spec("v", "ml.p9.large", None))).usd is None


def test_an_archive_that_unpacks_to_far_more_than_it_has_is_refused_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_gathering, "_UNPACKED_BYTES_MAX", 1_000_000)
    for body, words in ((gzip.compress(bytes(50_000_000)), "unpacks to more than 1,000,000 bytes"), (b"{}", "gzip")):
        with pytest.raises(ArchiveError, match=words):
            archive_members(body)


# --- the clean-up -----------------------------------------------------------------------------------


def test_objects_stay_while_a_job_of_the_run_is_stopping(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker would write the objects of a job that ends later again."""
    harness.plan()
    harness.arm()
    harness.cloud.training.stop_by_user(harness.job())
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    monkeypatch.setattr(leftovers, "JOBS_END_WITHIN_SECONDS", 0.0)
    key = f"{RunLayout(RUN).rendezvous}x"
    put(harness.cloud, key, b"x")
    found = leftovers.gather_leftovers(Account(client_of(harness.cloud)), RUN, (), 0.0)
    assert (found.running, found.execution_running, found.removed) == ((harness.job(),), False, 0)
    assert key in harness.cloud.s3.objects(harness.cloud.bucket)
    assert {check.name: check.outcome for check in judge_leftovers(found)} == {
        leftovers.JOBS: Outcome.FAILED,
        leftovers.SCHEDULES: Outcome.UNCHECKED,
        leftovers.OBJECTS: Outcome.INFO,
    }


def test_what_still_runs_is_a_failure() -> None:
    left = Leftovers(running=(), execution_running=False, schedules=(), removed=38, kept=())
    assert failed(judge_leftovers(left)) == []
    for changed in (replace(left, running=("job",)), replace(left, execution_running=True)):
        assert [name for name, _ in failed(judge_leftovers(changed))] == ["nothing-runs"], changed


def checks(error: BaseException | None) -> Iterator[Check]:
    yield ok("first", "it holds.")
    if error is not None:
        raise error


def clean_up() -> Iterator[Check]:
    yield ok("cleaned", "nothing is left.")


def test_the_clean_up_follows_the_checks_and_an_error_which_is_raised_again() -> None:
    assert [check.name for check in with_clean_up(checks(None), clean_up)] == ["first", "cleaned"]
    failing = with_clean_up(checks(ValueError("a defect")), clean_up)
    assert [next(failing).name, next(failing).name] == ["first", "cleaned"]
    with pytest.raises(ValueError, match="a defect"):
        next(failing)
    # An interruption is left to the caller.
    interrupted = with_clean_up(checks(KeyboardInterrupt()), clean_up)
    assert next(interrupted).name == "first"
    with pytest.raises(KeyboardInterrupt):
        next(interrupted)
