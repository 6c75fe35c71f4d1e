"""What `muster verify` decides about a right and a limit, and its clean-up; tests/e2e/test_verify.py runs all of it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from muster.client.launch.dry_run import dry_run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.layout import RunLayout
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.clusters import Cluster
from muster.contract.training.network_access import VpcConfig
from muster.options.hyperpod.client.checks import ClusterChecks
from muster.options.hyperpod.client.cluster_api import ClusterAnswer
from muster.options.verify.client import run_checks, stack_checks
from muster.options.verify.client.check_outcomes import Check, CheckOutcome
from muster.options.verify.client.own_run import INSTANCE_TYPE, MAX_RUNTIME_SECONDS, own_spec, promise
from muster.options.verify.client.permission_checks import DENIALS, SimulatedRight, context, decisions, example, judge
from muster.options.verify.client.run_checks import SmokeRun, leftovers
from muster.options.verify.client.verification import Verifier
from muster.options.verify.client.verified_stack import Account, StackTemplate, Statement
from tests.memory.harness import RUN, SPEC, ControlHarness
from tests.support.memory_client import client_of, muster_of, put

ROLE = "arn:aws:iam::123456789012:role/Replica"
PLACE = {"Partition": "aws", "Region": "us-east-1", "AccountId": "123456789012"}
KINDS = (INSTANCE_TYPE, "ml.m5.xlarge")


class Told(Account):
    """An account whose answers are given, by operation; what is not given is not there."""

    def __init__(self, harness: ControlHarness, answers: Mapping[str, Any], resources: Mapping[str, Any] | None = None):
        super().__init__(client_of(harness.cloud))
        self.answers = answers
        resources = resources or {}
        vars(self)["template"] = StackTemplate(resources, {name: name for name in resources}, PLACE)

    def ask(self, service: str, operation: str, **arguments: object) -> Any:
        return self.answers.get(operation, {})

    def listed(self, service: str, operation: str, key: str, **arguments: object) -> list[Any]:
        return list(self.answers.get(operation, []))


def wrong(checks: Iterable[Check]) -> list[tuple[str, str]]:
    return [(check.name, check.outcome) for check in checks if check.outcome is not CheckOutcome.OK]


def statement(*resources: str, **conditions: Any) -> Statement:
    return Statement("Replica", ROLE, ["s3:GetObject"], resources, conditions)


def test_a_statement_of_the_template_becomes_a_request_that_it_matches() -> None:
    arn = {"Fn::Join": ["", [{"Fn::GetAtt": ["Bucket", "Arn"]}, "/rendezvous/${aws:PrincipalTag/MusterLineage}/*"]]}
    item = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": [arn, "arn:aws:ecr:eu-west-1:*:repository/*"]}
    policy = {"PolicyDocument": {"Statement": [item]}, "Roles": [{"Ref": "ReplicaRole0A1B2C3D"}]}
    resources = {
        "Bucket": {"Type": "AWS::S3::Bucket"},
        "ReplicaRole0A1B2C3D": {"Type": "AWS::IAM::Role"},
        "Policy": {"Type": "AWS::IAM::Policy", "Properties": policy},
    }
    names = {"Bucket": "b", "ReplicaRole0A1B2C3D": "role", "Policy": "p"}
    [found] = StackTemplate(resources, names, PLACE).statements()
    assert found[:2] == ("Replica", "arn:aws:iam::123456789012:role/role")
    assert [example(arn) for arn in found.resources] == [
        "arn:aws:s3:::b/rendezvous/verify/verify",
        "arn:aws:ecr:eu-west-1:000000000000:repository/verify",
    ]
    assert context(found) == {"aws:PrincipalTag/MusterLineage": ["verify"]}
    assert context(statement("*", StringLike={"s3:prefix": ["x/*", "y"]})) == {"s3:prefix": ["x/verify"]}
    assert context(statement("*", Null={"s3:if-match": "true", "s3:x": "false"})) == {"s3:x": ["verify"]}


def test_a_decision_is_read_for_each_resource_and_a_key_that_is_meant_to_be_absent_is_not_missing() -> None:
    named = {"EvalActionName": "a", "EvalResourceName": "arn:x", "EvalDecision": "implicitDeny"}
    keys = {"MissingContextValues": ["aws:SourceVpc", "s3:if-match"]}
    denied = {"EvalResourceName": "2", "EvalResourceDecision": "implicitDeny", **keys}
    results = [{"EvalResourceName": "1", "EvalResourceDecision": "allowed"}, denied]
    asked = statement("*")
    found = decisions(asked, {**named, "ResourceSpecificResults": results}, {"s3:if-match"})
    denial = SimulatedRight(asked, "a on 2", False, ["aws:SourceVpc"])
    assert list(found) == [SimulatedRight(asked, "a on 1", True, []), denial]
    assert list(decisions(asked, named, ())) == [SimulatedRight(asked, "a on arn:x", False, [])]


def test_a_right_that_is_missing_or_too_much_is_a_failure_and_what_iam_cannot_decide_is_unchecked() -> None:
    allows, denies, undecided = (
        SimulatedRight(statement("*"), "s3:GetObject", *one) for one in ((True,), (False,), (False, ("aws:Vpc",)))
    )
    for found, needed, denied in (
        # What is certain comes first.
        ([undecided, allows], CheckOutcome.UNCHECKED, CheckOutcome.FAILED),
        ([undecided, denies], CheckOutcome.FAILED, CheckOutcome.UNCHECKED),
        ([undecided], CheckOutcome.UNCHECKED, CheckOutcome.UNCHECKED),
        ([allows], CheckOutcome.OK, CheckOutcome.FAILED),
        ([denies], CheckOutcome.FAILED, CheckOutcome.OK),
    ):
        assert judge("permissions-replica", "Replica", found, allowed=True).outcome is needed, found
        assert judge(DENIALS, "Replica", found, allowed=False).outcome is denied, found


DENY = {"Effect": "Deny", "Action": "s3:PutObject", "Resource": ["a", "b"], "Condition": {"x": 1}}
BLOCKS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")
RULE = {"Prefix": "source/", "Status": "Enabled", "ExpirationInDays": 400}
STACK = {
    "Bucket": {"Type": "AWS::S3::Bucket", "Properties": {"LifecycleConfiguration": {"Rules": [RULE]}}},
    "Policy": {"Type": "AWS::S3::BucketPolicy", "Properties": {"PolicyDocument": {"Statement": [DENY]}}},
}


def test_a_bucket_that_others_can_read_or_overwrite_or_that_forgets_too_early_is_a_failure(
    harness: ControlHarness,
) -> None:
    default = {"ApplyServerSideEncryptionByDefault": {"SSEAlgorithm": "AES256"}}
    expires = {"Filter": {"Prefix": "source/"}, "Status": "Enabled", "Expiration": {"Days": 400}}
    early = {"Filter": {"Prefix": ""}, "Status": "Enabled", "Expiration": {"Days": 900}}
    good: dict[str, Any] = {
        "head_bucket": {"BucketRegion": "us-east-1"},
        "get_bucket_policy": {"Policy": json.dumps({"Statement": [DENY | {"Action": ["s3:PutObject"]}]})},
        "get_public_access_block": {"PublicAccessBlockConfiguration": dict.fromkeys(BLOCKS, True)},
        "get_bucket_ownership_controls": {"OwnershipControls": {"Rules": [{"ObjectOwnership": "BucketOwnerEnforced"}]}},
        "get_bucket_encryption": {"ServerSideEncryptionConfiguration": {"Rules": [default]}},
        "get_bucket_lifecycle_configuration": {"Rules": [expires]},
    }
    assert wrong(stack_checks.bucket(Told(harness, good, STACK))) == []
    names = ("place", "policy", "privacy", "privacy", "encryption", "lifecycle")
    bad: list[tuple[str, dict[str, Any], str]] = [
        (operation, {}, name) for operation, name in zip(good, names, strict=True)
    ]
    bad += [("get_bucket_policy", {"Policy": json.dumps({"Statement": [DENY | {"Resource": "a"}]})}, "policy")]
    bad += [("get_bucket_lifecycle_configuration", {"Rules": [expires, early]}, "lifecycle")]
    for operation, answer, name in bad:
        found = stack_checks.bucket(Told(harness, {**good, operation: answer}, STACK))
        assert wrong(found) == [(f"bucket-{name}", CheckOutcome.FAILED)], answer
    # The statements of a bucket that is not the stack's are looked for by their names.
    assert wrong(stack_checks.bucket(Told(harness, good))) == [("bucket-policy", CheckOutcome.FAILED)]


def test_a_job_kind_or_a_role_that_a_cluster_lacks_is_a_failure_and_what_cannot_be_seen_is_unchecked(
    harness: ControlHarness,
) -> None:
    role = {"Name": "plan", "Group": "muster:plan", "Rules": [{"verbs": ["list"]}]}
    access = {"EksCluster": "eks", "Namespaces": ["team"], "Roles": [role]}
    resources = {"Access": {"Type": "Custom::MusterClusterAccess", "Properties": access}}
    eks = {"name": "eks", "endpoint": "https://eks", "status": "ACTIVE", "accessConfig": {"authenticationMode": "API"}}
    told = {"describe_cluster": {"cluster": eks, "ClusterStatus": "InService"}}
    told["describe_addon"] = {"addon": {"status": "ACTIVE"}}
    inside = {
        "selfsubjectaccessreviews": ClusterAnswer(201, {}),
        "v1": ClusterAnswer(200, {"resources": [{"name": "hyperpodpytorchjobs"}]}),
        "roles/plan": ClusterAnswer(200, {"rules": role["Rules"]}),
        "rolebindings/plan": ClusterAnswer(200, {"subjects": [{"name": "muster:plan"}]}),
    }

    def found(told: Mapping[str, Any], inside: Mapping[str, ClusterAnswer]) -> list[tuple[str, str]]:
        account = Told(harness, told, resources)
        checks = ClusterChecks(account, Cluster(name="c", eks_cluster="eks", namespaces=("team",)))
        api = SimpleNamespace(call=lambda _, path, __: next(inside[end] for end in inside if path.endswith(end)))
        vars(checks)["_connection"] = api
        return wrong(checks.checks(account))

    assert found(told, inside) == []
    assert found({**told, "describe_addon": {}}, inside) == [("cluster-add-ons-c", CheckOutcome.FAILED)]
    for end, name in (("v1", "job-kind"), ("roles/plan", "roles"), ("rolebindings/plan", "roles")):
        for status, outcome in ((404, CheckOutcome.FAILED), (403, CheckOutcome.UNCHECKED)):
            assert found(told, {**inside, end: ClusterAnswer(status, {})}) == [(f"cluster-{name}-c", outcome)]
    assert [outcome for _, outcome in found({}, inside)] == [CheckOutcome.FAILED, *[CheckOutcome.UNCHECKED] * 5]


def test_a_nat_gateway_on_the_way_to_s3_is_looked_for_where_the_stack_has_a_vpc(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    vpc = VpcConfig(subnets=["subnet-1"], security_group_ids=["sg-1"])
    for defaults in (StackDefaults(), StackDefaults(vpc_config=vpc)):
        monkeypatch.setattr(Account, "defaults", defaults)
        free = Verifier(muster_of(harness.cloud), run=False).free()
        assert (("route-to-s3",) in free) == (defaults.vpc_config is not None)


def test_of_a_spec_with_places_the_quotas_of_home_are_checked_and_the_other_places_are_named() -> None:
    share = {"replicas": 3, "instance_type": "ml.m5.xlarge", "places": {"home": 2, "oregon": 1}}
    granted = [{"QuotaName": f"{kind} for training job usage", "Value": 1.0, "QuotaCode": "L-1"} for kind in KINDS]
    with ControlHarness(places=True).installed() as harness:
        verifier = Verifier(muster_of(harness.cloud), run=False, spec=parse_spec({**SPEC, **share}))
        checks = list(verifier.free()["quota",](Told(harness, {"list_service_quotas": granted})))
    outcomes = [CheckOutcome.FAILED, CheckOutcome.FAILED, CheckOutcome.UNCHECKED]
    assert [check.outcome for check in checks] == outcomes
    assert checks[1].seen == "ml.m5.xlarge for training job usage: 2 needed, 1 granted."
    assert checks[2].seen.startswith("the quotas of oregon are not checked")


def test_the_run_costs_less_than_ten_cents_and_only_its_failure_on_purpose_is_billed_twice() -> None:
    spec = own_spec("v", INSTANCE_TYPE, "image:1")
    found = promise(dry_run(spec))
    # To the time limit, 120 s from SIGTERM to SIGKILL, 60 s to upload.
    hourly = SHIPPED_PRICES.usd_per_hour[INSTANCE_TYPE]
    assert found.usd == pytest.approx(4 * (MAX_RUNTIME_SECONDS + 120 + 60) / 3600 * hourly + 0.005)
    assert found.usd is not None
    assert found.usd < 0.10
    billed = {item for item in spec.reruns if spec.budget(item).max_reruns}
    assert billed - {FailureClass.CAPACITY, FailureClass.QUOTA, FailureClass.THROTTLE} == {FailureClass.USER_CODE}
    assert promise(dry_run(own_spec("v", "ml.p9.large", None))).usd is None


def test_a_job_without_a_run_is_a_failure_and_objects_stay_while_a_job_of_the_run_is_stopping(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SageMaker would write the objects of a job that ends later again."""
    account = Account(client_of(harness.cloud))
    # The client has the machine's clock.
    harness.cloud.clock.advance((datetime.now(UTC) - harness.cloud.clock.now()).total_seconds())
    harness.plan()
    harness.arm()
    assert wrong(stack_checks.orphans(account, young_seconds=0)) == []
    harness.cloud.workflow.fail(RUN, "States.Runtime")
    assert wrong(stack_checks.orphans(account, young_seconds=0)) == [("orphans", CheckOutcome.FAILED)]
    harness.cloud.training.stop_by_user(harness.job())
    monkeypatch.setattr(run_checks, "JOBS_END_WITHIN_SECONDS", 0.0)
    key = f"{RunLayout(RUN).rendezvous}x"
    put(harness.cloud, key, b"x")
    outcomes = [CheckOutcome.FAILED, CheckOutcome.UNCHECKED, CheckOutcome.INFO]
    assert [check.outcome for check in leftovers(account, RUN, 0.0)] == outcomes
    assert key in harness.cloud.s3.objects(harness.cloud.bucket)


@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_the_clean_up_follows_the_run_and_an_error_and_is_left_to_the_caller_after_an_interruption(
    harness: ControlHarness, monkeypatch: pytest.MonkeyPatch, error: type[BaseException] | None
) -> None:
    def checks(*_: object) -> Iterator[Check]:
        if error is not None:
            raise error
        yield Check(name="run", outcome=CheckOutcome.OK, seen="x.")

    monkeypatch.setattr(SmokeRun, "checks", checks)
    monkeypatch.setattr(Verifier, "free", lambda _: {})
    monkeypatch.setattr(
        Verifier, "clean_up", lambda *_: iter([Check(name="cleaned", outcome=CheckOutcome.OK, seen="x.")])
    )
    verifier, found = Verifier(muster_of(harness.cloud), run=False), list[str]()
    vars(verifier)["_dry"] = SimpleNamespace(requests=[{"AlgorithmSpecification": None}])
    with pytest.raises(error) if error is not None else nullcontext():
        found.extend(check.name for check in verifier.checks(lambda _: None))
    assert found == (["run"] if error is None else []) + ([] if error is KeyboardInterrupt else ["cleaned"])
