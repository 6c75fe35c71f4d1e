"""Who may do what: the template against the table in docs/security.md, and the borders evaluated as IAM does."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster.contract.run.source_delivery import package_key
from tests.infra.access_table import BEGIN, END, PAGE, access_table
from tests.support.template import FUNCTIONS, Template, synthesized

BUCKET = "arn:aws:s3:::BUCKET"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd"
JOBS = "arn:aws:sagemaker:REGION:ACCOUNT:training-job"
ROLES = (*FUNCTIONS, "Workflow", "Replica", "TimerScheduler")
CONTROL_KEYS = [
    "control/run/plan.json",
    "control/run/replicas/0.json",
    "control/run/stopping.json",
    "control/run/result.json",
    "control/run/lost/0",
]
# What a service forces to `*`, by the reason for which a statement in infra/ may have it.
NO_RESOURCE_LEVEL = {
    "cloudwatch:PutMetricData",
    "ecr:GetAuthorizationToken",
    "logs:CreateLogDelivery",
    "logs:DeleteLogDelivery",
    "logs:DescribeLogGroups",
    "logs:DescribeResourcePolicies",
    "logs:GetLogDelivery",
    "logs:ListLogDeliveries",
    "logs:PutResourcePolicy",
    "logs:UpdateLogDelivery",
    "sagemaker:ListTrainingJobs",
    "states:SendTaskFailure",
    "states:SendTaskSuccess",
}


def test_the_page_names_every_statement_of_every_role(template: Template) -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = page[page.index(BEGIN) + len(BEGIN) + 1 : page.index(END)]
    assert shown == access_table(template), "run `python -m tests.infra.access_table` and read the diff"


def test_no_action_has_a_wildcard_and_no_resource_is_open_that_the_service_can_name(template: Template) -> None:
    for statement in template.statements:
        assert statement.effect == "Allow"
        assert not [action for action in statement.actions if "*" in action]
        if "*" in statement.resources:
            assert set(statement.actions) <= NO_RESOURCE_LEVEL, statement


@pytest.mark.parametrize("key", CONTROL_KEYS)
@pytest.mark.parametrize(
    "action", ["s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:GetObjectVersion", "s3:AbortMultipartUpload"]
)
def test_a_replica_reaches_nothing_of_the_control_plane(template: Template, action: str, key: str) -> None:
    assert not template.allows("Replica", action, f"{BUCKET}/{key}")


def test_a_replica_has_what_it_trains_with_and_cannot_change_its_inputs(template: Template) -> None:
    for prefix in ("rendezvous", "checkpoints", "output"):
        assert template.allows("Replica", "s3:GetObject", f"{BUCKET}/{prefix}/run/x")
        assert template.allows("Replica", "s3:PutObject", f"{BUCKET}/{prefix}/run/x")
        assert template.allows("Replica", "s3:ListBucket", BUCKET, {"s3:prefix": f"{prefix}/run/"})
    for prefix in ("runs", "source"):
        assert template.allows("Replica", "s3:GetObject", f"{BUCKET}/{prefix}/x")
        assert not template.allows("Replica", "s3:PutObject", f"{BUCKET}/{prefix}/x")
        assert not template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/{prefix}/x")
    assert template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/rendezvous/run/x")
    assert not template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/output/run/x")


def test_a_replica_lists_its_prefixes_only_but_learns_that_a_key_is_missing(template: Template) -> None:
    for prefix in ("control/", "control/run/", "runs/", ""):
        assert not template.allows("Replica", "s3:ListBucket", BUCKET, {"s3:prefix": prefix})
    # S3 asks this, without a prefix, before it answers 404 rather than 403.
    assert template.allows("Replica", "s3:ListBucket", BUCKET)


def test_a_replica_reads_the_packages_of_all_versions_and_only_plan_writes_them(template: Template) -> None:
    key = f"{BUCKET}/{package_key('0' * 64)}"
    assert template.allows("Replica", "s3:GetObject", key)
    assert template.allows("Replica", "s3:ListBucket", BUCKET, {"s3:prefix": package_key("0" * 64)})
    assert [role for role in ROLES if template.allows(role, "s3:PutObject", key)] == ["Plan"]
    assert not [role for role in ROLES if template.allows(role, "s3:DeleteObject", key)]


@pytest.mark.parametrize("action", ["states:SendTaskSuccess", "sagemaker:CreateTrainingJob", "iam:PassRole"])
def test_a_replica_has_no_power_over_the_run(template: Template, action: str) -> None:
    assert not template.allows("Replica", action, "*", {"iam:PassedToService": "sagemaker.amazonaws.com"})


def test_only_sagemaker_of_this_account_takes_on_the_replica_role(template: Template) -> None:
    [role] = [role for name, role in template.of_type("AWS::IAM::Role").items() if name.startswith("Replica")]
    [trust] = template.resolve(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}


def test_only_attempt_launches_jobs_and_only_ours_with_only_the_replica_role(template: Template) -> None:
    create, ours, foreign = "sagemaker:CreateTrainingJob", f"{JOBS}/muster-run-r0-a1", f"{JOBS}/other-run-r0-a1"
    assert [role for role in ROLES if template.allows(role, create, ours)] == ["Attempt"]
    assert not [role for role in ROLES if template.allows(role, create, foreign)]
    sagemaker = {"iam:PassedToService": "sagemaker.amazonaws.com"}
    replica = "arn:aws:iam::ACCOUNT:role/Replica"
    assert [role for role in ROLES if template.allows(role, "iam:PassRole", replica, sagemaker)] == ["Attempt"]
    assert not template.allows("Attempt", "iam:PassRole", replica, {"iam:PassedToService": "lambda.amazonaws.com"})
    assert not template.allows("Attempt", "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Admin", sagemaker)


@pytest.mark.parametrize("action", ["StopTrainingJob", "DescribeTrainingJob", "ListTags", "AddTags"])
def test_no_role_touches_a_foreign_job(template: Template, action: str) -> None:
    foreign = f"{JOBS}/other-run-r0-a1"
    assert not [role for role in ROLES if template.allows(role, f"sagemaker:{action}", foreign)]


@pytest.mark.parametrize("key", CONTROL_KEYS)
def test_no_role_deletes_a_record_of_the_control_plane(template: Template, key: str) -> None:
    assert not [role for role in ROLES if template.allows(role, "s3:DeleteObject", f"{BUCKET}/{key}")]


def test_every_function_logs_to_its_own_group_only(template: Template) -> None:
    for role in FUNCTIONS:
        for group in FUNCTIONS:
            arn = f"arn:aws:logs:REGION:ACCOUNT:log-group:{group}:log-stream:x"
            assert template.allows(role, "logs:PutLogEvents", arn) == (role == group)


def test_the_workflow_calls_what_it_names_and_starts_only_itself(template: Template) -> None:
    functions = {"Plan": True, "Attempt": True, "Stop": True, "Settle": True, "React": False}
    for name, called in functions.items():
        arn = f"arn:aws:lambda:REGION:ACCOUNT:function:{name}"
        assert template.allows("Workflow", "lambda:InvokeFunction", arn) == called
    states = "arn:aws:states:REGION:ACCOUNT"
    assert template.allows("Workflow", "states:StartExecution", f"{states}:stateMachine:Workflow")
    assert not template.allows("Workflow", "states:StartExecution", f"{states}:stateMachine:Other")
    assert template.allows("Workflow", "states:DescribeExecution", f"{states}:execution:Workflow:run")
    assert template.allows("Workflow", "states:StopExecution", f"{states}:execution:Workflow/Replicas:child")
    assert not template.allows("Workflow", "states:StopExecution", f"{states}:execution:Workflow2:run")


@pytest.fixture(scope="module")
def with_defaults(tmp_path_factory: pytest.TempPathFactory) -> Template:
    """The stack of a deployment with a VPC, a key and a bucket's name of its own."""
    return synthesized(
        tmp_path_factory.mktemp("defaults"),
        replicas={"vpc": {"subnets": ["subnet-1"], "security_group_ids": ["sg-1"]}, "kms_key_arn": KEY},
        bucket={"name": "team-rendezvous"},
    )


def test_network_and_key_are_allowed_where_a_deployment_has_them_and_only_there(
    template: Template, with_defaults: Template
) -> None:
    for found in (template, with_defaults):
        actions = {action for item in found.statements for action in item.actions}
        assert any(action.startswith(("ec2:", "kms:")) for action in actions) == (found is with_defaults)
    ec2 = "arn:aws:ec2:REGION:ACCOUNT:"
    for resource, allowed in {
        "subnet/subnet-1": True,
        "security-group/sg-1": True,
        "network-interface/eni-1": True,
        "subnet/subnet-2": False,
        "security-group/sg-2": False,
    }.items():
        assert with_defaults.allows("Replica", "ec2:CreateNetworkInterface", f"{ec2}{resource}") == allowed
    assert with_defaults.allows("Replica", "ec2:DescribeSubnets", "*")
    assert [role for role in ROLES if with_defaults.allows(role, "kms:Decrypt", KEY)] == [
        *("Stop", "Settle", "Sweep", "Replica")
    ]
    grant = {"kms:GrantIsForAWSResource": "true"}
    assert [role for role in ROLES if with_defaults.allows(role, "kms:CreateGrant", KEY, grant)] == ["Replica"]
    assert not with_defaults.allows("Replica", "kms:CreateGrant", KEY, {"kms:GrantIsForAWSResource": "false"})
    assert not with_defaults.allows("Replica", "kms:GenerateDataKey", f"{KEY}2")
    [bucket] = with_defaults.of_type("AWS::S3::Bucket").values()
    assert bucket["Properties"]["BucketName"] == "team-rendezvous"


def test_a_role_of_the_deployments_own_is_the_only_one_that_attempt_can_give(tmp_path: Path) -> None:
    role = "arn:aws:iam::123456789012:role/team/training"
    template = synthesized(tmp_path, replicas={"role_arn": role})
    assert not [item for item in template.statements if item.role == "Replica"]
    passing = [item for item in template.statements if "iam:PassRole" in item.actions]
    assert [(item.role, item.resources) for item in passing if item.role != "Plan"] == [("Attempt", (role,))]
    # What plan passes is for timers, and to the scheduler only.
    assert not template.allows("Plan", "iam:PassRole", role, {"iam:PassedToService": "scheduler.amazonaws.com"})
    assert template.resolve(template.body["Outputs"]["ReplicaRoleArn"]["Value"]) == role


def test_an_upper_case_prefix_is_matched_as_sagemaker_writes_it_in_arns_too(tmp_path: Path) -> None:
    template = synthesized(tmp_path, stack={"job_prefix": "TeamA"})
    for name in ("TeamA-run-r0-a1", "teama-run-r0-a1"):
        assert template.allows("Attempt", "sagemaker:CreateTrainingJob", f"{JOBS}/{name}")
    assert not template.allows("Attempt", "sagemaker:CreateTrainingJob", f"{JOBS}/muster-run-r0-a1")
