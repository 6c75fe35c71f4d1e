"""What a deployment chooses: the tables and keys of `muster.toml`, each with its limits and where they come from."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.errors import Problem
from muster.contract.names import PREFIX_MAX
from muster.contract.spec.places import PLACES_MAX, PlaceName
from muster.contract.spec.replica_access import ReplicaAccess
from muster.contract.spec.secret_references import SOURCE
from muster.contract.spec.stack_defaults import StackDefaults
from muster.contract.training.clusters import ClusterName, Clusters
from muster.contract.training.network_access import VpcConfig
from muster.contract.training.values import S3_URI_MAX, Image, InstanceType, RoleArn, TagKey, TagValue, Wording
from muster.infra.settings.cluster_tables import ClusterTable, clusters_of
from muster.infra.settings.scheduled_runs import ScheduledRun

Tables = Mapping[str, Mapping[str, Any]]
"""Settings as they are written: table, key, value."""
DEFAULT_STACK = "Muster"
DEFAULT_JOB_PREFIX = "muster"
SETTINGS_METADATA = "Muster"
"""The key of the template's metadata under which a stack carries its settings."""
LOCAL_IMAGE = "muster-local/python"  # the only image of the embedded cloud

SNAP_START = "runs.snap_start"
# SnapStart needs Python 3.12, no container image, no EFS, and at most 512 MB of ephemeral storage.
# https://docs.aws.amazon.com/lambda/latest/dg/snapstart.html: every commercial region except these two.
_REGIONS_WITHOUT = ("ap-east-2", "ap-southeast-6")
OTHER_PARTITIONS = ("cn-", "us-gov-", "us-iso", "eu-iso", "eusc-")
"""How the names of regions begin that are not in AWS's commercial partition."""
_ALLOWED = f"a commercial region of AWS other than {' and '.join(_REGIONS_WITHOUT)}"


class Platform(StrEnum):
    """Where the functions run."""

    AWS = "aws"
    LOCAL = "local"


# A re-arm is a transition and a call of a function, for each replica. Local runs are short.
REARM_SECONDS_MIN = {Platform.AWS: 7_600, Platform.LOCAL: 5}
REARM_SECONDS_MAX = 31_536_000  # Step Functions: a Standard execution lasts at most a year
SWEEP_HOURS_MAX = 168  # the sweep looks a week back (muster.contract.run.orphans)
CONCURRENT_REPLICAS_MAX = 1_000_000  # far above any account's quota; leave the key out for no limit
LAUNCHES_PER_SECOND_MAX = 1_000  # above any rate at which SageMaker takes CreateTrainingJob
# CloudFormation allows 128 characters. The names of alarms and of the inbox's topic begin with the stack's name.
STACK_NAME_MAX = 64
STACK_TAGS_MAX = 40  # CloudFormation: a stack has at most 50 tags; a deployment may need some of its own

# CloudWatch Logs: PutRetentionPolicy takes these numbers of days and no others.
_RetentionDays = Literal[
    1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192, 2557, 2922, 3288, 3653
]
_ARN = r"^arn:aws[a-z-]*:"
_BucketName = Annotated[
    str,
    Field(pattern=r"^[a-z0-9][a-z0-9-]{1,61}[a-z0-9]$"),
    Wording("3 to 63 lower-case letters, digits and hyphens", "write the bucket's name alone, without s3://"),
]
# Roles may use this one key, and a policy can name a key by its ARN only.
_KmsKeyArn = Annotated[
    str,
    Field(pattern=_ARN + r"kms:[a-z0-9-]+:[0-9]{12}:key/[a-zA-Z0-9-]+$"),
    Wording("arn:aws:kms:region:123456789012:key/id", "write the key's ARN, not its ID or an alias"),
]
_PolicyArn = Annotated[
    str,
    Field(pattern=_ARN + r"iam::([0-9]{12}|aws):policy/[a-zA-Z_0-9+=,.@/-]+$"),
    Wording("arn:aws:iam::123456789012:policy/name", "write the policy's whole ARN"),
]
_AccountId = Annotated[str, Field(pattern=r"^[0-9]{12}$"), Wording("12 digits", "write the account's ID in quotes")]
_Region = Annotated[str, Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"), Wording("a region such as eu-west-1")]


# `*`, `?` and `$` have a meaning in a policy.
_DataPrefix = Annotated[
    str,
    Field(max_length=S3_URI_MAX, pattern=r"^s3://[a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]/([^*?$\s]*/)?$"),
    Wording("s3://bucket/ or s3://bucket/prefix/, without * ? $ and spaces", "end the prefix with a slash"),
]
_RecipePrefix = Annotated[
    str,
    Field(
        max_length=S3_URI_MAX,
        pattern=r"^s3://([a-z0-9][a-z0-9.\-]{1,61}[a-z0-9]"
        r"|arn:aws[a-z-]*:s3:[a-z0-9-]+:[0-9]{12}:accesspoint/[a-z0-9][a-z0-9-]{1,48}[a-z0-9])/([^*?$\s]*/)?$",
    ),
    Wording(
        "s3://bucket/prefix/ or s3://arn:aws:s3:region:123456789012:accesspoint/name/prefix/, without * ? $ and spaces",
        "end the prefix with a slash",
    ),
]
SECRET_MAX = 512  # a value of an environment, which names it, has no more
_SecretSource = Annotated[
    str,
    Field(max_length=SECRET_MAX, pattern=rf"^{SOURCE}$"),
    Wording("secretsmanager:NAME, secretsmanager:ARN or ssm:/path/name", "write it as a spec does, without #key"),
]
# IAM: an inline policy of a role has at most 10,240 characters, and a prefix stands in two statements.
DATA_PREFIXES_MAX = 20
POLICIES_MAX = 10  # IAM: a role has at most 10 managed policies by default


class SettingsTable(BaseModel):
    """A table of `muster.toml`. Unknown keys are refused and values are never converted."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class StackTable(SettingsTable):
    """The stack itself."""

    name: Annotated[
        str,
        Field(max_length=STACK_NAME_MAX, pattern=r"^[a-zA-Z][a-zA-Z0-9-]*$"),
        Wording("letters, digits and hyphens, with a letter at the beginning"),
    ] = Field(default=DEFAULT_STACK, description="the CloudFormation stack; several fit into one account and region")
    job_prefix: (
        Annotated[
            str,
            Field(pattern=rf"^[a-zA-Z0-9]{{1,{PREFIX_MAX}}}$"),
            Wording(f"1 to {PREFIX_MAX} letters and digits", "choose one that no other stack of this account uses"),
        ]
        | None
    ) = Field(
        default=None,
        description="first part of the name of every training job; by default `muster` for the stack `Muster`, and for "
        "any other stack a part of its name with a digest",
    )
    account: _AccountId | None = Field(default=None, description="the only account to which this file may be deployed")
    region: _Region | None = Field(default=None, description="the only region to which this file may be deployed")
    permissions_boundary: _PolicyArn | None = Field(
        default=None, description="ARN of a policy that every role of the stack gets as its permissions boundary"
    )
    kms_key_arn: _KmsKeyArn | None = Field(
        default=None, description="ARN of a key that encrypts the bucket, the logs, the topics and the queues"
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, max_length=STACK_TAGS_MAX, description="tags of every resource of the stack"
    )


class BucketTable(SettingsTable):
    """The bucket of the stack. Without a name CloudFormation generates one."""

    name: _BucketName | None = Field(default=None, description="name of the bucket that the stack makes")
    existing: _BucketName | None = Field(
        default=None, description="name of a bucket that exists already; the stack uses it and makes none"
    )
    access_logs_bucket: _BucketName | None = Field(
        default=None, description="bucket that gets the S3 access logs of the stack's bucket"
    )
    access_logs_prefix: Annotated[str, Field(min_length=1, max_length=512)] | None = Field(
        default=None, description="first part of the access logs' keys"
    )


class ReplicasTable(SettingsTable):
    """What the replicas' jobs get where a spec leaves it out, and what their role may reach."""

    image: Image | None = Field(
        default=None, description="`image` of a spec; not used for a spec with `algorithm_name`"
    )
    instance_type: InstanceType | None = Field(
        default=None, description="`instance_type` of a spec; not used for a spec with `instance_preferences`"
    )
    vpc: VpcConfig | None = Field(
        default=None,
        description="`vpc_config` of a spec; the stack's replica role may create network interfaces in these subnets",
    )
    kms_key_arn: _KmsKeyArn | None = Field(
        default=None,
        description="`volume_kms_key_id` and `output_data_config.kms_key_id` of a spec; default `stack.kms_key_arn`. "
        "Not used for the volume of instance types with local disks",
    )
    tags: dict[TagKey, TagValue] = Field(
        default_factory=dict, description="`tags` of a spec; merged, and the spec's value comes first"
    )
    data: list[_DataPrefix] = Field(
        default_factory=list,
        max_length=DATA_PREFIXES_MAX,
        description="prefixes of S3 that the stack's replica role may read: training data, `s3://bucket/prefix/`",
    )
    data_kms_key_arns: list[_KmsKeyArn] = Field(
        default_factory=list,
        max_length=DATA_PREFIXES_MAX,
        description="ARNs of the keys with which the objects under these prefixes are encrypted",
    )
    secrets: list[_SecretSource] = Field(
        default_factory=list,
        max_length=DATA_PREFIXES_MAX,
        description="secrets that the stack's replica role may read and a spec's `environment` may refer to: "
        "`secretsmanager:NAME`, `secretsmanager:ARN`, `ssm:/path/name`",
    )
    secrets_kms_key_arns: list[_KmsKeyArn] = Field(
        default_factory=list,
        max_length=DATA_PREFIXES_MAX,
        description="ARNs of the customer managed keys with which these secrets are encrypted; AWS's own keys "
        "(`aws/secretsmanager`, `aws/ssm`) need none",
    )
    policy_arns: list[_PolicyArn] = Field(
        default_factory=list,
        max_length=POLICIES_MAX,
        description="ARNs of managed policies that the stack's replica role gets in addition",
    )
    role_arn: RoleArn | None = Field(
        default=None, description="an existing role for the replicas, instead of the stack's replica role"
    )
    further_role_arns: list[RoleArn] = Field(
        default_factory=list, max_length=POLICIES_MAX, description="other roles that a spec may name in `role_arn`"
    )


class RunsTable(SettingsTable):
    """How runs are launched and looked after."""

    launches_per_second: int = Field(
        default=10, ge=1, le=LAUNCHES_PER_SECOND_MAX, description="how fast replicas are launched"
    )
    max_concurrent_replicas: int | None = Field(
        default=None,
        ge=1,
        le=CONCURRENT_REPLICAS_MAX,
        description="most replicas of all runs together; runs beyond it wait in the run queue",
    )
    rearm_seconds: int = Field(
        default=21_600,
        ge=min(REARM_SECONDS_MIN.values()),
        le=REARM_SECONDS_MAX,
        description="how long an attempt waits for an event of its job before it checks the job itself; on AWS at "
        f"least {REARM_SECONDS_MIN[Platform.AWS]:,}. Of a job on a cluster it is 15 minutes. Both grow to 1/250 of the "
        "age of a replica",
    )
    sweep_hours: int = Field(
        default=6, ge=0, le=SWEEP_HOURS_MAX, description="hours between two sweeps; 0 turns the sweep off"
    )
    snap_start: bool = Field(
        default=False,
        description="whether *attempt* and *react* start from snapshots (Lambda SnapStart), which takes most of a cold "
        "start off each rerun and costs about $8 per month and deployed version",
    )


class RecipesTable(SettingsTable):
    """Recipes of runs that `muster launch` does not start: of the console, the inbox, events and schedules."""

    sources: list[_RecipePrefix] = Field(
        default_factory=list,
        max_length=DATA_PREFIXES_MAX,
        description="prefixes of S3 from which the function plan may read recipes",
    )


class WatchTable(SettingsTable):
    """Logs, alarms and the dashboard."""

    log_retention_days: _RetentionDays = Field(
        default=90, description="how long the logs of the functions and the workflow are kept"
    )
    health_alarms: bool = Field(default=True, description="whether the stack has its alarms")
    dashboard: bool = Field(default=True, description="whether the stack has its dashboard")


class NotifyTable(SettingsTable):
    """Who is notified when a run ends."""

    email: (
        Annotated[str, Field(pattern=r"^[^@\s]{1,64}@[^@\s]{1,189}$"), Wording("one address, such as team@example.com")]
        | None
    ) = Field(default=None, description="address that is notified; it must confirm the subscription once")


# What holds between places and other settings is the option's to say.
class PlaceTable(SettingsTable):
    """A region of an account in which replicas may run."""

    region: _Region = Field(description="the region")
    account: _AccountId | None = Field(default=None, description="the account; default: that of the stack")
    profile: Annotated[str, Field(min_length=1, max_length=128)] | None = Field(
        default=None,
        description="the AWS CLI's profile for the account on the machine that deploys; default: that of the stack",
    )


class StackSettings(SettingsTable):
    """All settings of a deployment. A table that is left out has its defaults.

    Valid by itself; `muster.infra.settings.settings_file` also checks what holds between several keys.
    """

    stack: StackTable = Field(default_factory=StackTable)
    bucket: BucketTable = Field(default_factory=BucketTable)
    replicas: ReplicasTable = Field(default_factory=ReplicasTable)
    runs: RunsTable = Field(default_factory=RunsTable)
    recipes: RecipesTable = Field(default_factory=RecipesTable)
    watch: WatchTable = Field(default_factory=WatchTable)
    notify: NotifyTable = Field(default_factory=NotifyTable)
    schedules: dict[str, ScheduledRun] = Field(
        default_factory=dict, description="runs that start at fixed times, by name"
    )
    hyperpod_clusters: dict[ClusterName, ClusterTable] = Field(
        default_factory=dict, description="HyperPod clusters on which replicas may run, by name"
    )
    places: dict[PlaceName, PlaceTable] = Field(
        default_factory=dict,
        max_length=PLACES_MAX,
        description="other regions and accounts in which replicas may run, by name",
    )

    @property
    def tables(self) -> dict[str, dict[str, Any]]:
        """The keys that are set, by table, as a settings file writes them."""
        return self.model_dump(mode="json", exclude_unset=True, exclude_none=True)

    @property
    def job_prefix(self) -> str:
        """The first part of the name of every training job."""
        return self.stack.job_prefix or job_prefix_of(self.stack.name)

    @property
    def defaults(self) -> StackDefaults:
        """What the functions need to know of the table `replicas`."""
        replicas = self.replicas
        return StackDefaults(
            image=replicas.image,
            instance_type=replicas.instance_type,
            vpc_config=replicas.vpc,
            kms_key_id=replicas.kms_key_arn or self.stack.kms_key_arn,
            tags=replicas.tags,
            access=ReplicaAccess(
                # What another role or policy allows is not known here.
                data=None if replicas.role_arn or replicas.policy_arns else replicas.data,
                roles=replicas.further_role_arns,
                secrets=None if replicas.role_arn else replicas.secrets,
            ),
            clusters=self.clusters.clusters or None,
        )

    @property
    def clusters(self) -> Clusters:
        """The HyperPod clusters, as functions and clients know them."""
        return clusters_of(self.hyperpod_clusters)


def job_prefix_of(stack: str) -> str:
    """The job prefix of the stack `stack` where the settings name none: two stacks do not share it."""
    if stack == DEFAULT_STACK:
        return DEFAULT_JOB_PREFIX
    digest = hashlib.sha256(stack.encode()).hexdigest()[:5]
    return re.sub("[^a-z0-9]", "", stack.lower())[: PREFIX_MAX - len(digest)] + digest


def snap_start_problems(settings: StackSettings, region: str | None) -> Iterator[Problem]:
    """The problem of a stack that wants snapshots in `region`, if that has none; None is a region not known yet."""
    if not settings.runs.snap_start or region is None:
        return
    if region in _REGIONS_WITHOUT or region.startswith(OTHER_PARTITIONS):
        yield Problem(SNAP_START, f"true in {region}", "leave it out, or deploy to another region", _ALLOWED)
