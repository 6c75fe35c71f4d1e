"""Who may do what: the template against the table in docs/security.md, and the borders evaluated as IAM does."""

import json
from fnmatch import fnmatchcase
from typing import Any

from muster.contract.training.source_delivery import package_key
from tests.infra.access_table import BEGIN, END, PAGE, access_table
from tests.infra.variants import KEY, ROLE, Variant
from tests.support.template import FUNCTIONS, Template

BUCKET = "arn:aws:s3:::BUCKET"
JOBS = "arn:aws:sagemaker:REGION:ACCOUNT:training-job"
ROLES = (*FUNCTIONS, "Workflow", "Replica", "TimerScheduler", "Launcher")
SAGEMAKER = {"iam:PassedToService": "sagemaker.amazonaws.com"}
STREAMS = "arn:aws:logs:REGION:ACCOUNT:log-group:/aws/sagemaker/TrainingJobs:log-stream:"
CONTROL_KEYS = [
    "control/run/plan.json",
    "control/run/replicas/0.json",
    "control/run/stopping.json",
    "control/run/result.json",
    "control/run/lost/0",
]
# What a service forces to `*`, by the reason for which a statement in infra/ may have it.
NO_RESOURCE_LEVEL = {
    *("cloudwatch:PutMetricData", "ecr:GetAuthorizationToken", "sagemaker:ListTrainingJobs"),
    *("logs:CreateLogDelivery", "logs:DeleteLogDelivery", "logs:DescribeLogGroups", "logs:DescribeResourcePolicies"),
    *("logs:GetLogDelivery", "logs:ListLogDeliveries", "logs:PutResourcePolicy", "logs:UpdateLogDelivery"),
    *("states:SendTaskFailure", "states:SendTaskSuccess"),
}


def test_the_page_names_every_statement_of_every_role(template: Template) -> None:
    page = PAGE.read_text(encoding="utf-8")
    shown = page[page.index(BEGIN) + len(BEGIN) + 1 : page.index(END)]
    assert shown == access_table(template), "run `python -m tests.infra.access_table` and read the diff"


def session(run: str, lineage: str | None = None, **more: str) -> dict[str, str]:
    """The condition keys of a replica of `run`: its session's tags, and those that `more` names with `_` for `:`."""
    keys = {key.replace("_", ":"): value for key, value in more.items()}
    return {"aws:PrincipalTag/MusterRun": run, "aws:PrincipalTag/MusterLineage": lineage or run, **keys}


def test_a_function_may_list_what_it_may_read(template: Template) -> None:
    """S3 answers 404 to a HEAD of a missing key only to who may list it."""
    for role in FUNCTIONS:
        held = [one for one in template.statements if one.role == role]
        lists = [one.condition["StringLikeIfExists"]["s3:prefix"] for one in held if "s3:ListBucket" in one.actions]
        listed = [prefix for prefixes in lists for prefix in prefixes]
        read = [place for one in held if "s3:GetObject" in one.actions for place in one.resources]
        keys = [place.removeprefix(f"{BUCKET}/") for place in read if place.startswith(f"{BUCKET}/")]
        ours = [key for key in keys if not key.startswith("notices/")]  # of a bucket's events: they exist
        assert not [key for key in ours if not any(fnmatchcase(key, prefix) for prefix in listed)], role


def test_no_action_has_a_wildcard_and_no_resource_is_open_that_the_service_can_name(template: Template) -> None:
    for statement in template.statements:
        assert not [action for action in statement.actions if "*" in action]
        if "*" in statement.resources:
            assert set(statement.actions) <= NO_RESOURCE_LEVEL, statement


def test_a_replica_reaches_nothing_of_the_control_plane(template: Template) -> None:
    actions = ("GetObject", "PutObject", "DeleteObject", "GetObjectVersion", "AbortMultipartUpload")
    tries = [(f"s3:{action}", f"{BUCKET}/{key}") for action in actions for key in CONTROL_KEYS]
    assert [one for one in tries if template.allows("Replica", *one, session("run"))] == []
    power = ("states:SendTaskSuccess", "sagemaker:CreateTrainingJob", "iam:PassRole")
    assert [action for action in power if template.allows("Replica", action, "*", SAGEMAKER)] == []


def test_a_replica_has_what_it_trains_with_and_cannot_change_its_inputs(template: Template) -> None:
    """A continuation works in the rendezvous and on the checkpoints of the lineage's first run."""
    keys = session("run-x1", "run")
    for prefix in ("rendezvous/run", "checkpoints/run", "output/run-x1"):
        assert template.allows("Replica", "s3:GetObject", f"{BUCKET}/{prefix}/x", keys)
        assert template.allows("Replica", "s3:PutObject", f"{BUCKET}/{prefix}/x", keys)
        assert template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": f"{prefix}/"})
    for prefix in ("runs/run-x1", "source"):
        assert template.allows("Replica", "s3:GetObject", f"{BUCKET}/{prefix}/x", keys)
        assert not template.allows("Replica", "s3:PutObject", f"{BUCKET}/{prefix}/x", keys)
        assert not template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/{prefix}/x", keys)
    for prefix in ("rendezvous/run", "checkpoints/run"):
        assert template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/{prefix}/x", keys)
    assert not template.allows("Replica", "s3:DeleteObject", f"{BUCKET}/output/run-x1/x", keys)


def test_a_replica_reaches_nothing_of_another_run(template: Template) -> None:
    """Whatever the names have in common, and also without tags."""
    found = [
        (keys, prefix, what)
        for keys in (session("run"), session("run-x1", "run"), session("ru"), session("r", "run2"), {})
        for prefix in ("rendezvous/run1", "checkpoints/run1", "output/run1", "runs/run1", "runs/run1-x1")
        for what in ("GetObject", "PutObject", "DeleteObject", "AbortMultipartUpload", "ListBucket")
        if reaches(template, keys, prefix, what)
    ]
    assert found == []


def reaches(template: Template, keys: dict[str, str], prefix: str, what: str) -> bool:
    """Whether a replica gets at anything under a prefix."""
    if what != "ListBucket":
        return template.allows("Replica", f"s3:{what}", f"{BUCKET}/{prefix}/x", keys)
    listed = (f"{prefix}/", prefix, prefix.partition("/")[0], "")
    return any(template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": one}) for one in listed)


def test_a_replica_reads_the_model_that_its_session_names_and_nothing_else_of_that_run(template: Template) -> None:
    keys = {**session("run"), "aws:PrincipalTag/MusterModel": "first/model"}
    for folder in ("output", "checkpoints"):
        model = f"{BUCKET}/{folder}/first/model/x"
        assert template.allows("Replica", "s3:GetObject", model, keys)
        assert template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": f"{folder}/first/model/"})
        assert not template.allows("Replica", "s3:GetObject", model, session("run"))
        for action in ("PutObject", "DeleteObject", "AbortMultipartUpload"):
            assert not template.allows("Replica", f"s3:{action}", model, keys), (folder, action)
        for prefix in (f"{folder}/first/", f"{folder}/first/model", "control/first/model/"):
            assert not template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": prefix}), prefix
        for key in (f"{folder}/first/model2/x", f"{folder}/first/x", "rendezvous/first/model/x"):
            assert not template.allows("Replica", "s3:GetObject", f"{BUCKET}/{key}", keys), key


def test_no_models_tag_opens_what_is_not_a_model(template: Template) -> None:
    for value in ("run", "../control/run", "control/run", "*"):
        keys = {**session("run"), "aws:PrincipalTag/MusterModel": value}
        for key in (*CONTROL_KEYS, "queue/queue.json", "inbox/x.yaml", "recipes/sources-0.json"):
            assert not template.allows("Replica", "s3:GetObject", f"{BUCKET}/{key}", keys)


def test_a_replica_lists_nothing_whose_name_it_does_not_know(template: Template) -> None:
    digest = "0123456789abcdef" * 4
    for prefix in ("control/", "control/run/", "runs/", "source/", f"source/{digest[:63]}", ""):
        assert not template.allows("Replica", "s3:ListBucket", BUCKET, session("run", s3_prefix=prefix))
    assert not template.allows("Replica", "s3:ListBucket", BUCKET, session("run"))
    # SageMaker lists a channel by its whole key.
    archive = f"source/{digest}.tar.gz"
    assert template.allows("Replica", "s3:ListBucket", BUCKET, session("run", s3_prefix=archive))


def test_a_replica_reads_resolved_recipes_whose_digest_it_knows_and_no_sources(template: Template) -> None:
    digest, keys = "0123456789abcdef" * 4, session("run")
    recipe, sources = f"recipes/{digest}/recipe.yaml", f"recipes/sources-{digest}.json"
    assert template.allows("Replica", "s3:GetObject", f"{BUCKET}/{recipe}", keys)
    assert template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": f"recipes/{digest}/"})
    for action in ("s3:PutObject", "s3:DeleteObject"):
        assert not template.allows("Replica", action, f"{BUCKET}/{recipe}", keys)
    for listed in ("recipes/", f"recipes/{digest}", "recipes/sources-", sources):
        assert not template.allows("Replica", "s3:ListBucket", BUCKET, {**keys, "s3:prefix": listed})
    assert not template.allows("Replica", "s3:GetObject", f"{BUCKET}/{sources}", keys)


def test_only_plan_keeps_recipes_and_it_reads_those_of_the_public_hub(template: Template) -> None:
    hub = "arn:aws:sagemaker:REGION:aws:hub-content/SageMakerPublicHub/Model/meta/1.0.0"
    for role in ROLES:
        for action in ("s3:GetObject", "s3:PutObject"):
            key = f"{BUCKET}/recipes/sources-x.json"
            assert template.allows(role, action, key) == (role == "Plan")
        assert template.allows(role, "sagemaker:DescribeHubContent", hub) == (role == "Plan")
    assert not template.allows("Plan", "sagemaker:DescribeHubContent", hub.replace("SageMakerPublicHub", "Own"))


def test_plan_reads_recipes_where_the_settings_allow(template: Template, variant: Variant) -> None:
    key, point = "arn:aws:s3:::team-recipes/tuned/a.yaml", "arn:aws:s3:us-east-1:123456789012:accesspoint/recipes"
    found = variant("data")
    for resource in (key, f"{point}/object/v1/a.yaml"):
        assert found.allows("Plan", "s3:GetObject", resource)
        assert not found.allows("Plan", "s3:PutObject", resource)
        assert not found.allows("Replica", "s3:GetObject", resource)
        assert not template.allows("Plan", "s3:GetObject", resource)
    assert not found.allows("Plan", "s3:GetObject", "arn:aws:s3:::team-recipes/other.yaml")
    assert not found.allows("Plan", "s3:GetObject", f"{point}/object/v2/a.yaml")


def test_a_bucket_that_another_account_has_taken_over_is_left_alone(template: Template) -> None:
    foreign = {"aws:ResourceAccount": "999999999999"}
    named = [item for item in template.statements for resource in item.resources if resource.startswith(BUCKET)]
    assert len(named) > 40
    for item in named:
        assert item.condition["StringEquals"]["aws:ResourceAccount"] == "ACCOUNT", item
    assert not template.allows("Settle", "s3:GetObject", f"{BUCKET}/control/run/plan.json", foreign)
    assert template.allows("Settle", "s3:GetObject", f"{BUCKET}/control/run/plan.json")


LOG_STREAMS = [
    ("a", "muster-a-r0-a1", True),
    ("a", "muster-a-r12-a300", True),
    ("a", "muster-b-r0-a1", False),
    ("a", "muster-ab-r0-a1", False),
    ("a", "muster-a-run-r0-a1", False),
    ("a", "muster-a-b-r0-a1", False),
    # Names that go on as the names of the run's own jobs do.
    ("a", "muster-a-r1-r0-a1", False),
    ("a", "muster-a-r-r0-a1", False),
    ("a", "muster-a-r0-a1-r0-a1", False),
    ("a-r1", "muster-a-r1-r0-a1", True),
    ("a-r1", "muster-a-r1-a1", False),
    ("a-r0-a1", "muster-a-r0-a1-r0-a1", True),
    ("a", "other-a-r0-a1", False),
]
"""A run, a job, and whether a replica of the run may write the log of the job."""


def test_a_replica_writes_the_log_streams_of_its_own_runs_jobs(template: Template) -> None:
    for run, job, allowed in LOG_STREAMS:
        stream = f"{STREAMS}{job}/algo-1-1763769600000"
        for action in ("logs:CreateLogStream", "logs:PutLogEvents"):
            assert template.allows("Replica", action, stream, session(run)) == allowed, (run, job)
            assert not template.allows("Replica", action, stream), job
            # Nor what only looks like one: SageMaker's have a slash.
            assert allowed or not template.allows("Replica", action, f"{STREAMS}{job}", session(run)), (run, job)


def test_a_replica_cannot_write_what_the_alarms_read(template: Template) -> None:
    watched = {
        metric["Namespace"]
        for alarm in template.of_type("AWS::CloudWatch::Alarm").values()
        for metric in [
            alarm["Properties"],
            *(m["MetricStat"]["Metric"] for m in alarm["Properties"].get("Metrics", [])),
        ]
        if "Namespace" in metric
    }
    assert "Muster" in watched
    for namespace in watched:
        assert not template.allows("Replica", "cloudwatch:PutMetricData", "*", {"cloudwatch:namespace": namespace})
    own = {"cloudwatch:namespace": "/aws/sagemaker/TrainingJobs"}
    assert template.allows("Replica", "cloudwatch:PutMetricData", "*", own)


def test_a_replica_reads_the_packages_of_all_versions_and_only_plan_writes_them(template: Template) -> None:
    key = f"{BUCKET}/{package_key('0' * 64)}"
    assert template.allows("Replica", "s3:GetObject", key, session("run"))
    assert template.allows("Replica", "s3:ListBucket", BUCKET, session("run", s3_prefix=package_key("0" * 64)))
    assert [role for role in ROLES if template.allows(role, "s3:PutObject", key)] == ["Plan"]
    assert not [role for role in ROLES if template.allows(role, "s3:DeleteObject", key)]


def test_only_sagemaker_of_this_account_takes_on_the_replica_role(template: Template) -> None:
    [role] = [role for name, role in template.of_type("AWS::IAM::Role").items() if name.startswith("Replica")]
    [trust] = template.resolve(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert trust["Condition"] == {"StringEquals": {"aws:SourceAccount": "ACCOUNT"}}
    assert trust["Action"] == ["sts:AssumeRole", "sts:TagSession"]


def test_only_the_launcher_role_creates_jobs_and_only_ours_with_only_the_replica_role(template: Template) -> None:
    create, ours, foreign = "sagemaker:CreateTrainingJob", f"{JOBS}/muster-run-r0-a1", f"{JOBS}/other-run-r0-a1"
    for action in (create, "sagemaker:AddTags"):
        assert [role for role in ROLES if template.allows(role, action, ours)] == ["Launcher"]
        assert not [role for role in ROLES if template.allows(role, action, foreign)]
    replica = "arn:aws:iam::ACCOUNT:role/Replica"
    assert [role for role in ROLES if template.allows(role, "iam:PassRole", replica, SAGEMAKER)] == ["Launcher"]
    assert not template.allows("Launcher", "iam:PassRole", replica, {"iam:PassedToService": "lambda.amazonaws.com"})
    assert not template.allows("Launcher", "iam:PassRole", "arn:aws:iam::ACCOUNT:role/Admin", SAGEMAKER)


def test_only_attempt_assumes_the_launcher_role_and_only_with_the_tags_of_a_run(template: Template) -> None:
    launcher = "arn:aws:iam::ACCOUNT:role/Launcher"
    for action in ("sts:AssumeRole", "sts:TagSession"):
        assert [role for role in ROLES if template.allows(role, action, launcher)] == ["Attempt"]
    [role] = [role for name, role in template.of_type("AWS::IAM::Role").items() if name.startswith("Launcher")]
    [trust] = template.resolve(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]
    assert trust["Principal"] == {"AWS": "arn:aws:iam::ACCOUNT:role/Attempt"}
    assert trust["Action"] == ["sts:AssumeRole", "sts:TagSession"]
    assert trust["Condition"] == {
        "ForAllValues:StringEquals": {"aws:TagKeys": ["MusterLineage", "MusterRun", "MusterModel"]},
        "StringLike": {"aws:RequestTag/MusterLineage": "?*", "aws:RequestTag/MusterRun": "?*"},
    }


def test_no_role_touches_a_foreign_job_or_deletes_a_record_of_the_control_plane(template: Template) -> None:
    actions = ("StopTrainingJob", "DescribeTrainingJob", "ListTags", "AddTags")
    tries = [(f"sagemaker:{action}", f"{JOBS}/other-run-r0-a1") for action in actions]
    tries += [("s3:DeleteObject", f"{BUCKET}/{key}") for key in CONTROL_KEYS]
    assert [(role, one) for role in ROLES for one in tries if template.allows(role, *one)] == []


def test_network_and_key_are_allowed_where_a_deployment_has_them_and_only_there(
    template: Template, variant: Variant
) -> None:
    with_defaults = variant("network")
    for found in (template, with_defaults):
        actions = {action for item in found.statements for action in item.actions}
        assert any(action.startswith(("ec2:", "kms:")) for action in actions) == (found is with_defaults)
    ec2 = "arn:aws:ec2:REGION:ACCOUNT:"
    for resource in ("subnet/subnet-1", "security-group/sg-1", "network-interface/eni-1"):
        assert with_defaults.allows("Replica", "ec2:CreateNetworkInterface", f"{ec2}{resource}"), resource
    for resource in ("subnet/subnet-2", "security-group/sg-2"):
        assert not with_defaults.allows("Replica", "ec2:CreateNetworkInterface", f"{ec2}{resource}"), resource
    # A subnet that another account shares bears that account's id.
    for resource, allowed in {
        "subnet/subnet-1": True,
        "subnet/subnet-2": False,
        "network-interface/eni-1": False,
    }.items():
        arn = f"arn:aws:ec2:REGION:999999999999:{resource}"
        assert with_defaults.allows("Replica", "ec2:CreateNetworkInterface", arn) == allowed
    assert with_defaults.allows("Replica", "ec2:DescribeSubnets", "*")
    assert [role for role in ROLES if with_defaults.allows(role, "kms:Decrypt", KEY)] == [
        *("Stop", "Settle", "Sweep", "Replica")
    ]
    assert [role for role in ROLES if with_defaults.allows(role, "kms:Encrypt", KEY)] == ["Replica"]
    grant = {"kms:GrantIsForAWSResource": "true"}
    assert [role for role in ROLES if with_defaults.allows(role, "kms:CreateGrant", KEY, grant)] == ["Replica"]
    assert not with_defaults.allows("Replica", "kms:CreateGrant", KEY, {"kms:GrantIsForAWSResource": "false"})
    assert not with_defaults.allows("Replica", "kms:GenerateDataKey", f"{KEY}2")
    [bucket] = with_defaults.of_type("AWS::S3::Bucket").values()
    assert bucket["Properties"]["BucketName"] == "team-rendezvous"


def test_a_role_of_the_deployments_own_is_the_only_one_that_a_job_can_get(variant: Variant) -> None:
    template, role = variant("other"), ROLE
    assert not [item for item in template.statements if item.role == "Replica"]
    passing = [item for item in template.statements if "iam:PassRole" in item.actions]
    assert [(item.role, item.resources) for item in passing if item.role != "Plan"] == [("Launcher", (role,))]
    # What plan passes is for timers, and to the scheduler only.
    assert not template.allows("Plan", "iam:PassRole", role, {"iam:PassedToService": "scheduler.amazonaws.com"})
    assert template.resolve(template.body["Outputs"]["ReplicaRoleArn"]["Value"]) == role


def test_the_documents_for_a_role_of_ones_own_are_those_of_the_stacks_role(template: Template) -> None:
    _, _, rest = PAGE.read_text(encoding="utf-8").partition("## A role of your own for replicas")
    blocks = [block.partition("```")[0] for block in rest.partition("\n## ")[0].split("```json\n")[1:]]
    text = [block.replace("us-east-1", "REGION").replace("111122223333", "ACCOUNT") for block in blocks]
    trust, policy = (json.loads(block)["Statement"] for block in text)
    [role] = [role for name, role in template.of_type("AWS::IAM::Role").items() if name.startswith("Replica")]
    assert trust == template.resolve(role["Properties"]["AssumeRolePolicyDocument"])["Statement"]

    def comparable(effect: str, actions: object, resources: object, condition: dict[str, Any]) -> str:
        known = {operator: dict(block) for operator, block in condition.items()}
        known.get("StringEquals", {}).pop("aws:ResourceAccount", None)
        lists = [sorted([found] if isinstance(found, str) else found) for found in (actions, resources)]
        return json.dumps([effect, lists, {operator: block for operator, block in known.items() if block}])

    shown = {comparable(one["Effect"], one["Action"], one["Resource"], one.get("Condition", {})) for one in policy}
    own = {
        comparable(one.effect, list(one.actions), list(one.resources), dict(one.condition))
        for one in template.statements
        if one.role == "Replica" and one.actions[0].startswith(("s3:", "logs:"))
    }
    assert shown == own
    assert len(shown) == 9


def test_an_upper_case_prefix_is_matched_as_sagemaker_writes_it_in_arns_too(variant: Variant) -> None:
    template = variant("other")
    for name in ("TeamA-run-r0-a1", "teama-run-r0-a1"):
        assert template.allows("Launcher", "sagemaker:CreateTrainingJob", f"{JOBS}/{name}")
    assert not template.allows("Launcher", "sagemaker:CreateTrainingJob", f"{JOBS}/muster-run-r0-a1")
