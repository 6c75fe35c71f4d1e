"""The requests that IAM simulates for the stack's roles, and what its decisions mean."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from muster.client.verify.permission_cases import OTHER, Case, Site, needed, replica_denials, replica_needs
from muster.client.verify.permission_checks import DENIALS, Decision, decisions, judge_permissions
from muster.client.verify.stack_template import Statement
from muster.client.verify.verification import Outcome
from tests.support.verification import DENIED, NEEDED

ROLE_ARN = "arn:aws:iam::123456789012:role/Replica"
SITE = Site(
    partition="aws",
    region="eu-west-1",
    account="123456789012",
    bucket="b",
    job_prefix="muster",
    role_arn=ROLE_ARN,
    launcher_arn="arn:aws:iam::123456789012:role/Launcher",
    attempt_arn="arn:aws:lambda:eu-west-1:123456789012:function:Attempt",
    bus_arn="arn:aws:events:eu-west-1:123456789012:event-bus/Bus",
    state_machine_arn="arn:aws:states:eu-west-1:123456789012:stateMachine:Runs",
)


def statement(*resources: str, action: str = "s3:GetObject", **conditions: Any) -> Statement:
    return Statement("Replica", ROLE_ARN, (action,), resources, conditions)


def test_a_statement_becomes_a_request_that_it_matches() -> None:
    arn = "arn:aws:s3:::b/rendezvous/${aws:PrincipalTag/MusterLineage}/*"
    [case] = needed(
        [
            statement(
                arn,
                "arn:aws:ecr:eu-west-1:*:repository/*",
                StringLike={"s3:prefix": ["${aws:PrincipalTag/MusterRun}/*", "y"]},
            )
        ]
    )
    assert case.resources == (
        "arn:aws:s3:::b/rendezvous/verify/verify",
        "arn:aws:ecr:eu-west-1:000000000000:repository/verify",
    )
    tags = {f"aws:PrincipalTag/{tag}": ("verify",) for tag in ("MusterLineage", "MusterRun")}
    assert case.context == {**tags, "s3:prefix": ("verify/verify",)}
    assert case.absent == frozenset()


def test_a_request_lacks_what_its_statement_wants_absent_and_what_others_ask_for() -> None:
    found = statement("*", Null={"s3:if-match": "true"})
    metrics = statement("*", action="cloudwatch:PutMetricData", StringEquals={"cloudwatch:namespace": "x"})
    [case, _] = needed([found, metrics])
    assert case.absent == {"s3:if-match", "cloudwatch:namespace"}


def test_every_request_of_a_replica_has_the_tags_of_its_session_and_the_account_of_the_bucket() -> None:
    for case in (*replica_needs(SITE), *replica_denials(SITE, [statement("*")])):
        assert case.context["aws:ResourceAccount"] == ("123456789012",)
        assert case.context["aws:PrincipalTag/MusterRun"] == ("verify",)


def denials(*statements: Statement) -> dict[str, list[Case]]:
    """The requests that replicas must be denied, by action."""
    found: dict[str, list[Case]] = {}
    for case in replica_denials(SITE, statements):
        for action in case.actions:
            found.setdefault(action, []).append(case)
    return found


def test_a_replica_is_denied_another_runs_objects_where_the_role_is_the_stacks() -> None:
    own, brought = (
        {arn for cases in denials(*known).values() for case in cases for arn in case.resources}
        for known in ((statement("*"),), ())
    )
    assert "arn:aws:s3:::b/control/verify/plan.json" in own & brought
    logs = "arn:aws:logs:eu-west-1:123456789012:log-group:/aws/sagemaker/TrainingJobs:log-stream:"
    assert own - brought == {
        "arn:aws:s3:::b/checkpoints/another/r0/x",
        "arn:aws:s3:::b/output/another/x",
        "arn:aws:s3:::b/rendezvous/another/x",
        "arn:aws:s3:::b/runs/another/document.json",
        f"{logs}muster-another-r0-a1/algo-1-1700000000",
        f"{logs}muster-verify-r1-r0-a1/algo-1-1700000000",
    }


def test_the_bucket_must_not_be_listed_without_a_prefix_or_beyond_the_run() -> None:
    listings = [case.context.get("s3:prefix") for case in denials(statement("*"))["s3:ListBucket"]]
    others = (f"rendezvous/{OTHER}/", f"checkpoints/{OTHER}/r0/", f"output/{OTHER}/")
    assert listings == [None, *((prefix,) for prefix in ("", "control/", *others))]
    # IAM names the key that this request does not have; that leaves nothing undecided.
    assert [case.absent for case in denials(statement("*"))["s3:ListBucket"]] == [{"s3:prefix"}, *[frozenset()] * 5]


def test_other_services_are_denied_on_the_resources_that_exist() -> None:
    found = {action: {arn for case in cases for arn in case.resources} for action, cases in denials().items()}
    assert found["sts:AssumeRole"] == {SITE.launcher_arn}
    assert found["iam:PassRole"] == {ROLE_ARN}
    assert found["lambda:InvokeFunction"] == {SITE.attempt_arn}
    assert found["events:PutEvents"] == {SITE.bus_arn}
    assert found["states:StartExecution"] == {SITE.state_machine_arn}
    jobs = "arn:aws:sagemaker:eu-west-1:123456789012:training-job/muster-"
    assert found["sagemaker:StopTrainingJob"] == {f"{jobs}verify-r0-a1", f"{jobs}another-r0-a1"}
    assert [action for action, arns in found.items() if "*" in arns] == [
        "states:SendTaskFailure",
        "states:SendTaskSuccess",
    ]


def test_a_decision_is_read_for_each_resource_and_not_from_their_aggregate() -> None:
    result = {
        "EvalActionName": "s3:GetObject",
        "EvalResourceName": "arn:${Partition}:s3:::${BucketName}/${KeyName}",
        "EvalDecision": "implicitDeny",
        "ResourceSpecificResults": [
            {"EvalResourceName": "arn:aws:s3:::b/1", "EvalResourceDecision": "allowed"},
            {
                "EvalResourceName": "arn:aws:s3:::b/2",
                "EvalResourceDecision": "implicitDeny",
                "MissingContextValues": ["aws:SourceVpc"],
            },
        ],
    }
    assert list(decisions(result)) == [
        Decision("s3:GetObject", "arn:aws:s3:::b/1", "allowed"),
        Decision("s3:GetObject", "arn:aws:s3:::b/2", "implicitDeny", ("aws:SourceVpc",)),
    ]
    alone = {"EvalActionName": "a:B", "EvalResourceName": "*", "EvalDecision": "allowed", "MissingContextValues": []}
    assert list(decisions(alone)) == [Decision("a:B", "*", "allowed")]


def test_a_denial_that_lacks_a_condition_key_holds_for_nothing() -> None:
    denied = Decision("s3:GetObject", "arn:aws:s3:::b/1", "implicitDeny", ("aws:SourceVpc",))
    found = judge_permissions(((NEEDED, (denied,)), (DENIED, (denied,))))
    assert [(check.name, check.outcome) for check in found] == [
        ("permissions-attempt", Outcome.UNCHECKED),
        (DENIALS, Outcome.UNCHECKED),
    ]
    [_, check] = judge_permissions(((NEEDED, (denied,)), (DENIED, (denied,))))
    assert "aws:SourceVpc" in check.seen
    # What is certain comes first.
    allowed = replace(denied, decision="allowed")
    [_, check] = judge_permissions(((NEEDED, (allowed,)), (DENIED, (denied, allowed))))
    assert check.outcome is Outcome.FAILED
