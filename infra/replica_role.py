"""The role under which the replicas' containers run. It has no access to control/, nor to what another run wrote.

All runs of a stack share the role, but not its rights: each session carries the tags of its run (launcher_role.py), and
the policy names them. A session without the tags gets nothing in the bucket.
"""

from __future__ import annotations

from collections.abc import Iterable

from aws_cdk import ArnFormat, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from constructs import Construct

from muster.contract.layout import split_s3_uri
from muster.contract.names import TRAINING_LOG_GROUP, run_job_prefix
from muster.contract.run.session_tags import MODEL_FOLDERS, TAG_LINEAGE, TAG_MODEL, TAG_RUN, principal_tag
from muster.contract.spec.recipe_reference import recipe_folder
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.source_delivery import PACKAGES, SOURCE
from muster.infra.encryption import use_key
from muster.infra.policy import Statement, Target, log_group_arn, policy_statements, read, service_of_account, write
from muster.infra.settings.stack_settings import ReplicasTable, StackSettings
from muster.infra.stack_option import Notices

# SageMaker puts its metrics of training jobs under the name of their log group. The alarms read another namespace.
METRIC_NAMESPACE = TRAINING_LOG_GROUP
# A source archive's name begins with its SHA-256, as a replica package's and a recipe's folder do: who does not know it
# can list nothing.
_DIGEST = "?" * 64


class ReplicaRole(Construct):
    """What SageMaker and the training container need, in this stack's bucket alone.

    A deployment can bring a role of its own (`replicas.role_arn`) and is then responsible for its permissions; the
    stack makes none.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        settings: StackSettings,
        *,
        bucket: s3.IBucket,
        notices: Iterable[Notices] = (),
    ) -> None:
        super().__init__(scope, construct_id)
        stack = Stack.of(self)
        if settings.replicas.role_arn is not None:
            self.role: iam.IRole = iam.Role.from_role_arn(self, "Role", settings.replicas.role_arn, mutable=False)
            return
        statements = [
            *own_statements(stack, settings.job_prefix, bucket, notices),
            *_network(stack, settings.defaults),
            *_keys(settings.defaults),
            *use_key(settings.stack.kms_key_arn),
            *read_data(stack, settings.replicas),
            *read_secrets(stack, settings.replicas),
        ]
        self.role = iam.Role(
            self,
            "Role",
            description="Muster: the training containers of the replicas",
            assumed_by=iam.SessionTagsPrincipal(service_of_account("sagemaker.amazonaws.com", stack.account)),
            inline_policies={"Replica": iam.PolicyDocument(statements=statements)},
            managed_policies=[
                iam.ManagedPolicy.from_managed_policy_arn(self, f"Policy{index}", arn)
                for index, arn in enumerate(settings.replicas.policy_arns)
            ],
        )


def own_statements(
    stack: Stack, job_prefix: str, bucket: s3.IBucket, notices: Iterable[Notices] = ()
) -> list[iam.PolicyStatement]:
    """What every replica needs where `stack` is: its part of the bucket, images, metrics, logs."""
    return [*_bucket(bucket, notices), *_services(stack), *_logs(stack, job_prefix)]


def _network(stack: Stack, defaults: StackDefaults) -> list[iam.PolicyStatement]:
    """What SageMaker needs to put a container into the deployment's VPC; nothing where there is none."""
    vpc = defaults.vpc_config
    if vpc is None:
        return []

    def shared(resource: str, name: str) -> str:
        # Of any account: a subnet that another account shares has that account's id in its ARN. The ids are unique.
        return stack.format_arn(service="ec2", account="*", resource=resource, resource_name=name)

    interfaces = stack.format_arn(service="ec2", resource="network-interface", resource_name="*")
    subnets = [shared("subnet", subnet) for subnet in vpc.subnets]
    groups = [shared("security-group", group) for group in vpc.security_group_ids]
    return [
        iam.PolicyStatement(actions=["ec2:CreateNetworkInterface"], resources=[interfaces, *subnets, *groups]),
        iam.PolicyStatement(
            actions=["ec2:CreateNetworkInterfacePermission", "ec2:DeleteNetworkInterface"], resources=[interfaces]
        ),
        # `*` is forced: none of these actions has a resource level.
        iam.PolicyStatement(
            actions=[
                "ec2:DeleteNetworkInterfacePermission",
                "ec2:DescribeDhcpOptions",
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcs",
            ],
            resources=["*"],
        ),
    ]


def _keys(defaults: StackDefaults) -> list[iam.PolicyStatement]:
    """What SageMaker needs of the deployment's key: it encrypts results with the key and volumes by a grant."""
    if defaults.kms_key_id is None:
        return []
    key = [defaults.kms_key_id]
    return [
        iam.PolicyStatement(
            # SageMaker asks for Encrypt when a job names a key for its output.
            actions=["kms:Decrypt", "kms:DescribeKey", "kms:Encrypt", "kms:GenerateDataKey"],
            resources=key,
        ),
        # EC2 attaches the volume by a grant; the condition keeps the container from granting the key to others.
        iam.PolicyStatement(
            actions=["kms:CreateGrant"], resources=key, conditions={"Bool": {"kms:GrantIsForAWSResource": "true"}}
        ),
    ]


def read_data(stack: Stack, replicas: ReplicasTable) -> list[iam.PolicyStatement]:
    """Reading the deployment's training data: a channel's prefix is listed, and the objects under it are read."""
    prefixes: dict[str, list[str]] = {}
    for uri in replicas.data:
        bucket, prefix = split_s3_uri(uri)
        prefixes.setdefault(bucket, []).append(f"{prefix}*")
    statements = []
    for name, patterns in prefixes.items():
        arn = stack.format_arn(service="s3", region="", account="", resource=name)
        objects = [f"{arn}/{pattern}" for pattern in patterns]
        statements += [
            iam.PolicyStatement(actions=["s3:GetObject"], resources=objects),
            iam.PolicyStatement(
                actions=["s3:ListBucket"], resources=[arn], conditions={"StringLike": {"s3:prefix": patterns}}
            ),
        ]
    if replicas.data_kms_key_arns:
        statements.append(iam.PolicyStatement(actions=["kms:Decrypt"], resources=replicas.data_kms_key_arns))
    return statements


def read_secrets(stack: Stack, replicas: ReplicasTable) -> list[iam.PolicyStatement]:
    """Reading the deployment's secrets: exactly those that the settings name."""
    arns: dict[str, list[str]] = {"secretsmanager:GetSecretValue": [], "ssm:GetParameter": []}
    for source in replicas.secrets:
        service, _, name = source.partition(":")
        if service == "ssm":
            arn = stack.format_arn(service=service, resource="parameter", resource_name=name.removeprefix("/"))
            arns["ssm:GetParameter"].append(arn)
        elif name.startswith("arn:"):
            arns["secretsmanager:GetSecretValue"].append(name)
        else:
            # Secrets Manager adds a hyphen and six characters to the name.
            arn = stack.format_arn(
                service=service,
                resource="secret",
                resource_name=f"{name}-??????",
                arn_format=ArnFormat.COLON_RESOURCE_NAME,
            )
            arns["secretsmanager:GetSecretValue"].append(arn)
    statements = [iam.PolicyStatement(actions=[action], resources=found) for action, found in arns.items() if found]
    if replicas.secrets_kms_key_arns:
        # Both services decrypt with the rights of the caller.
        statements.append(iam.PolicyStatement(actions=["kms:Decrypt"], resources=replicas.secrets_kms_key_arns))
    return statements


def _bucket(bucket: s3.IBucket, notices: Iterable[Notices]) -> list[iam.PolicyStatement]:
    """The part of the stack's bucket that belongs to the session's run, with what it writes of `notices`."""
    lineage, run = principal_tag(TAG_LINEAGE), principal_tag(TAG_RUN)
    shared, output = (f"rendezvous/{lineage}/*", f"checkpoints/{lineage}/*"), f"output/{run}/*"
    digests = [f"{prefix}{_DIGEST}*" for prefix in (SOURCE, PACKAGES)]
    # Of the run whose model this one starts from. Statements of their own: one whose variable has no value, as in a run
    # without `model`, matches nothing at all.
    models = [f"{folder}{principal_tag(TAG_MODEL)}/*" for folder in MODEL_FOLDERS]
    recipes = f"{recipe_folder(_DIGEST)}*"  # and not their sources
    digests.append(recipes)
    statements = (
        read(f"runs/{run}/*", f"{SOURCE}*", f"{PACKAGES}*", recipes),
        read(*models),
        Statement(("s3:AbortMultipartUpload", "s3:GetObject", "s3:PutObject"), Target.OBJECTS, (*shared, output)),
        # Replicas delete the rounds that no joiner needs any more, and SageMaker what a trainer deletes among its
        # checkpoints.
        Statement(("s3:DeleteObject",), Target.OBJECTS, shared),
        # A request without a prefix, which would list the whole bucket, has no such key and is denied. So S3 answers
        # 403 to a GET of a key that does not exist, and the replica's store finds out what that means.
        Statement(
            ("s3:ListBucket",),
            Target.BUCKET,
            conditions={"StringLike": {"s3:prefix": [*shared, output, *digests]}},
        ),
        Statement(("s3:ListBucket",), Target.BUCKET, conditions={"StringLike": {"s3:prefix": models}}),
        # Such as that a replica of the same run, on a cluster, was missing in a round.
        *(write(f"{one.prefix}{run}/*") for one in notices),
    )
    arn = [bucket.bucket_arn]
    return policy_statements(statements, {Target.OBJECTS: arn, Target.BUCKET: arn})


def _services(stack: Stack) -> list[iam.PolicyStatement]:
    """Images and metrics."""
    return [
        # `*` is forced: the token has no resource level.
        iam.PolicyStatement(actions=["ecr:GetAuthorizationToken"], resources=["*"]),
        # Any repository, also of other accounts, because AWS keeps its training images in its own. The repository's
        # policy must allow the pull as well.
        iam.PolicyStatement(
            actions=["ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer"],
            resources=[stack.format_arn(service="ecr", account="*", resource="repository", resource_name="*")],
        ),
        # `*` is forced: PutMetricData has no resource level; the condition limits it to one namespace.
        iam.PolicyStatement(
            actions=["cloudwatch:PutMetricData"],
            resources=["*"],
            conditions={"StringEquals": {"cloudwatch:namespace": METRIC_NAMESPACE}},
        ),
    ]


def _logs(stack: Stack, job_prefix: str) -> list[iam.PolicyStatement]:
    """The log streams of the run's own jobs: SageMaker names them `{job}/algo-{instance}-{time}`."""

    own, write = run_job_prefix(job_prefix, principal_tag(TAG_RUN)), ["logs:CreateLogStream", "logs:PutLogEvents"]
    return [
        # SageMaker makes the group with the first job of the account.
        iam.PolicyStatement(
            actions=["logs:CreateLogGroup", "logs:DescribeLogStreams"],
            resources=[log_group_arn(stack, ":*")],
        ),
        iam.PolicyStatement(actions=write, resources=[log_group_arn(stack, f":log-stream:{own}*")]),
        # What looks like a stream of a run that is named like this one, then `-r` and more: `a` and `a-r1` or `a-run`.
        iam.PolicyStatement(
            effect=iam.Effect.DENY,
            actions=write,
            resources=[log_group_arn(stack, f":log-stream:{own}*-r*-a*")],
        ),
    ]
