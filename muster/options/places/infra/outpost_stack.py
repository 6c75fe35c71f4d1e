"""The stack of a place: a bucket, three roles and a rule. It has no functions and costs nothing while no job runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from aws_cdk import BootstraplessSynthesizer, CfnOutput, CfnParameter, Environment, PermissionsBoundary, Stack, Tags
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from constructs import Construct

import muster
from muster.contract.run.session_tags import SESSION_TAGS, TAG_RUN, principal_tag
from muster.contract.spec.recipe_reference import RECIPES
from muster.contract.training.source_delivery import PACKAGES, SOURCE
from muster.infra.functions.function_table import LIST_JOBS, READ_JOB_LOGS, WATCH_AND_STOP_JOBS
from muster.infra.functions.triggers import job_pattern
from muster.infra.launcher_role import LAUNCH_JOBS, TAGS_OF_A_RUN
from muster.infra.policy import (
    Statement,
    Target,
    job_targets,
    list_under,
    policy_statements,
    read,
    read_and_write,
    service_of_account,
)
from muster.infra.rendezvous_bucket import RendezvousBucket
from muster.infra.replica_role import own_statements, read_data, read_secrets
from muster.infra.settings.stack_settings import BucketTable, StackSettings
from muster.options.places.contract.outposts import HOME_BUCKET, PARTITION, home_arn, outpost_stack, role_name
from muster.options.places.infra.home_access import (
    LAUNCHES,
    LOOKS_AFTER,
    deployed_places,
    home_of,
    role_patterns,
    statements_at_home,
)

_LOOK_AFTER_JOBS = (WATCH_AND_STOP_JOBS, LIST_JOBS, *READ_JOB_LOGS)
_DELIVERED = (f"{SOURCE}*", f"{PACKAGES}*", f"{RECIPES}*")
# What the jobs of a run read in their own region, from where SageMaker takes it.
_PUT_WHAT_JOBS_READ = (
    read_and_write(f"runs/{principal_tag(TAG_RUN)}/*", *_DELIVERED),
    list_under(f"runs/{principal_tag(TAG_RUN)}/*", *_DELIVERED),
)
_READ_OUTPUTS = (read("output/*"), list_under("output/*"))


class OutpostStack(Stack):
    """One place of a stack, in an app of its own or in another one.

    Args:
        scope: an app, or a stage of one.
        settings: of the stack; they say where it is, and where the place.
        name: that of the place.

    Raises:
        ConfigurationError: the settings do not say where the stack is.
    """

    def __init__(self, scope: Construct, settings: StackSettings, name: str) -> None:
        home = home_of(settings)
        place = deployed_places(settings).outposts(PARTITION)[name]
        stack = settings.stack.name
        super().__init__(
            scope,
            outpost_stack(stack, name),
            stack_name=outpost_stack(stack, name),
            description=f"Muster: the place {name} of the stack {stack} in {home.region}, account {home.account}",
            analytics_reporting=False,
            env=Environment(account=place.account, region=place.region),
            synthesizer=BootstraplessSynthesizer(),  # it has no files
            permissions_boundary=_boundary(settings.stack.permissions_boundary, place.account),
        )
        for key, value in settings.stack.tags.items():
            Tags.of(self).add(key, value)
        home_bucket = CfnParameter(
            self,
            HOME_BUCKET,
            description=f"Bucket of the stack {stack}, its output BucketName",
            allowed_pattern=r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]",
            constraint_description="must be the name of a bucket, without s3://",
        )
        self._settings, self._home, self._place = settings, home, place
        table = BucketTable(name=place.bucket)
        self._bucket = RendezvousBucket(self, "Rendezvous", inbox=None, table=table, notices={}).bucket
        replicas = self._replica_role(home_bucket.value_as_string)
        self._launcher_role(replicas)
        self._forward_job_events()
        for key, value in outpost_outputs(settings, name).items():
            CfnOutput(self, key, value=value)

    def _replica_role(self, home_bucket: str) -> iam.Role:
        """As at home in the bucket of the place; and in the bucket at home what the replicas of a place do there."""
        arn = [f"arn:{self._home.partition}:s3:::{home_bucket}"]
        return iam.Role(
            self,
            "Replica",
            role_name=role_name(self._settings.stack.name, self._place.name, "replica"),
            description=f"Muster: the training containers of the replicas in {self._place.name}",
            assumed_by=iam.SessionTagsPrincipal(service_of_account("sagemaker.amazonaws.com", self.account)),
            inline_policies={
                "Replica": iam.PolicyDocument(
                    statements=[
                        *own_statements(self, self._settings.job_prefix, self._bucket),
                        *policy_statements(
                            statements_at_home(), {Target.OBJECTS: arn, Target.BUCKET: arn}, account=self._home.account
                        ),
                        *read_data(self, self._settings.replicas),
                        *read_secrets(self, self._settings.replicas),
                    ]
                )
            },
            managed_policies=[
                iam.ManagedPolicy.from_managed_policy_arn(self, f"Policy{index}", arn)
                for index, arn in enumerate(self._settings.replicas.policy_arns)
            ],
        )

    def _launcher_role(self, replicas: iam.Role) -> None:
        """The role of home's functions here: attempt's with the tags of a run, others' and its own without any.

        Without these tags a session creates nothing.
        """
        of_this_stack = {"StringEquals": {"sts:ExternalId": self._place.external_id}}
        arns = {
            **job_targets(self, self._settings.job_prefix),
            Target.ANY: ["*"],
            Target.REPLICA_ROLE: [replicas.role_arn],
            Target.BUCKET: [self._bucket.bucket_arn],
            Target.OBJECTS: [self._bucket.bucket_arn],
        }
        tagged = map(_of_a_run, (*LAUNCH_JOBS, *_PUT_WHAT_JOBS_READ))
        role = iam.Role(
            self,
            "Launcher",
            role_name=role_name(self._settings.stack.name, self._place.name, "launcher"),
            description="Muster: creates and looks after the training jobs of runs of the stack at home",
            assumed_by=self._functions([LAUNCHES], {**of_this_stack, **TAGS_OF_A_RUN}),
            inline_policies={
                "Launcher": iam.PolicyDocument(
                    statements=policy_statements([*tagged, *_LOOK_AFTER_JOBS, *_READ_OUTPUTS], arns)
                )
            },
        )
        policy = role.assume_role_policy
        assert policy is not None  # noqa: S101 - a role that is made here has one
        # What tags a session is asked without the external id.
        for action, principal in (
            ("sts:TagSession", self._functions([LAUNCHES], TAGS_OF_A_RUN)),
            ("sts:AssumeRole", self._functions([LAUNCHES, *LOOKS_AFTER], of_this_stack)),
        ):
            policy.add_statements(iam.PolicyStatement(actions=[action], principals=[principal]))

    def _functions(self, names: Sequence[str], conditions: Mapping[str, object]) -> iam.IPrincipal:
        """Functions at home, on these conditions."""
        roles = {"ArnLike": {"aws:PrincipalArn": role_patterns(self._home, self._settings.stack.name, names)}}
        return iam.PrincipalWithConditions(iam.AccountPrincipal(self._home.account), {**conditions, **roles})

    def _forward_job_events(self) -> None:
        """A rule that sends the events of jobs to the default bus at home, where SageMaker sends the events of others.

        The re-arm makes up for one that is lost on the way.
        """
        bus = f"{self._home.arn('events')}:event-bus/default"
        role = iam.Role(
            self,
            "Forwarder",
            description="Muster: sends the events of training jobs to the stack at home",
            assumed_by=service_of_account("events.amazonaws.com", self.account),
            inline_policies={
                "Forward": iam.PolicyDocument(
                    statements=[iam.PolicyStatement(actions=["events:PutEvents"], resources=[bus])]
                )
            },
        )
        rule = events.Rule(
            self,
            "JobEvents",
            description="Muster: status changes of the stack's training jobs",
            event_pattern=job_pattern(self._settings.job_prefix),
        )
        # The construct's own target would write a policy of its own.
        cast("events.CfnRule", rule.node.default_child).targets = [
            events.CfnRule.TargetProperty(arn=bus, id="Home", role_arn=role.role_arn)
        ]


def outpost_outputs(settings: StackSettings, name: str) -> Mapping[str, str]:
    """The outputs of an outpost, by which a later deployment knows it."""
    home, place = home_of(settings), deployed_places(settings).outposts(PARTITION)[name]
    return {
        "Home": home_arn(home, settings.stack.name),
        "Place": name,
        "JobPrefix": settings.job_prefix,
        "BucketName": place.bucket,
        "ExternalId": place.external_id,
        "Version": muster.__version__,
    }


def _boundary(arn: str | None, account: str) -> PermissionsBoundary | None:
    """The permissions boundary, a policy of that name in the account of the place."""
    if arn is None:
        return None
    owner = arn.split(":")[4]
    return PermissionsBoundary.from_arn(arn if owner == "aws" else arn.replace(f"::{owner}:", f"::{account}:"))


def _of_a_run(statement: Statement) -> Statement:
    """`statement` for sessions that have the tags of every session."""
    tagged = {f"aws:PrincipalTag/{tag}": "false" for tag in SESSION_TAGS}
    return replace(statement, conditions={**statement.conditions, "Null": tagged})
