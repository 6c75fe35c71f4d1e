"""The role under which jobs are created: its sessions carry the tags that keep the runs of a stack apart."""

from __future__ import annotations

from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from muster.contract.run.session_tags import SESSION_TAGS, TAG_MODEL
from muster.infra.policy import Arns, Statement, Target, allow, pass_role, policy_statements

LAUNCH_JOBS = (
    allow(Target.JOBS, "sagemaker:AddTags", "sagemaker:CreateTrainingJob"),
    allow(Target.TRAINING_PLANS, "sagemaker:CreateTrainingJob"),
    pass_role(Target.REPLICA_ROLE, "sagemaker.amazonaws.com"),
)

TAGS_OF_A_RUN = {
    "ForAllValues:StringEquals": {"aws:TagKeys": [*SESSION_TAGS, TAG_MODEL]},
    "StringLike": {f"aws:RequestTag/{key}": "?*" for key in SESSION_TAGS},
}
"""The condition of a session's tags."""


class LauncherRole(Construct):
    """Can be assumed by the function attempt alone, and only with both tags of every session, and at most the model's.

    SageMaker gives the tags to the replica role's sessions (SessionChainingConfig), and the replica role's policy names
    them. AWS allows only letters, digits, spaces and `_.:/=+-@` in a session tag, so no value is a pattern in a policy.
    """

    def __init__(self, scope: Construct, construct_id: str, *, arns: Arns, attempt: lambda_.Function) -> None:
        super().__init__(scope, construct_id)
        tagged = iam.PrincipalWithConditions(attempt.grant_principal, TAGS_OF_A_RUN)
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: creates the training jobs of one run per session",
            assumed_by=iam.SessionTagsPrincipal(tagged),
            inline_policies={"Launcher": iam.PolicyDocument(statements=policy_statements(LAUNCH_JOBS, arns))},
        )
        assume = Statement(("sts:AssumeRole", "sts:TagSession"), Target.LAUNCHER_ROLE)
        # A policy of its own: it names the launcher role, whose trust policy names attempt's role.
        policy = iam.Policy(
            self,
            "Policy",
            roles=[role for role in [attempt.role] if role is not None],
            statements=policy_statements([assume], {Target.LAUNCHER_ROLE: [self.role.role_arn]}),
        )
        attempt.add_environment("MUSTER_LAUNCHER_ROLE_ARN", self.role.role_arn)
        attempt.node.add_dependency(policy)
