"""The bucket through which replicas exchange parameters and in which the control plane keeps its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from muster.contract.run.execution_input import INBOX, INBOX_SUFFIXES
from muster.contract.spec.recipe_reference import RECIPES
from muster.contract.training.source_delivery import EXPIRY_DAYS, PACKAGES, SOURCE
from muster.infra.policy import allow_publishing
from muster.infra.settings.stack_settings import BucketTable
from muster.infra.stack_option import Notices

# Replicas delete what no round needs any more. What they leave may be needed by a continuation, whenever it comes, so
# none of it expires: it moves to a class of storage that costs half as much and is read like any other. Longer than a
# job can run (28 days): what is older belongs to runs that have ended, or has not changed for as long.
INFREQUENT_DAYS = 35
# S3 Standard-IA bills smaller objects as if they had this size.
INFREQUENT_BYTES_MIN = 128 * 1024
# Longer than the upload of any checkpoint. The parts of an unfinished upload cost as much as objects.
INCOMPLETE_UPLOAD_DAYS = 7

# Of the control plane.
_WRITTEN_ONCE = (
    *("control/*/plan.json", "control/*/result.json", "control/*/lost/*"),
    *("control/*/spent/*", "control/*/lineage.json", "control/*/continued_by.json"),
    *("control/*/announced.json", "control/*/finished.json", "control/*/report.html"),
)
_COMPARED_AND_SWAPPED = (
    *("control/*/replicas/*", "control/*/rollup/*", "control/*/queue_token.json"),
    *("control/*/stopping.json", "control/*/seats.json", "control/*/parked/*"),
    *("queue/*", "ended/*"),
)


class BucketTopic(Construct):
    """A topic that the bucket notifies of objects under a prefix.

    Between bucket and function, because the function's role names the bucket: neither could be made first. Its name is
    fixed: a bucket that outlives its stack notifies the topic of the next stack of that name.
    """

    def __init__(self, scope: Construct, construct_id: str, *, name: str, display_name: str) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", topic_name=name, display_name=display_name, enforce_ssl=True)
        allow_publishing(self.topic, "BucketsOfThisAccount", "s3.amazonaws.com")


def inbox_topic_name(stack: str) -> str:
    """The name of the topic that the bucket of `stack` notifies of specs in its inbox."""
    return f"{stack}-inbox"


def _created(topic: sns.ITopic, prefix: str, suffix: str) -> s3.CfnBucket.TopicConfigurationProperty:
    rules = [("prefix", prefix), ("suffix", suffix)]
    return s3.CfnBucket.TopicConfigurationProperty(
        event="s3:ObjectCreated:*",
        topic=topic.topic_arn,
        filter=s3.CfnBucket.NotificationFilterProperty(
            s3_key=s3.CfnBucket.S3KeyFilterProperty(
                rules=[s3.CfnBucket.FilterRuleProperty(name=name, value=value) for name, value in rules]
            )
        ),
    )


def _expire(notices: Notices) -> s3.LifecycleRule:
    days = Duration.days(notices.expiry_days)
    return s3.LifecycleRule(id=f"{notices.name}-expire", prefix=notices.prefix, expiration=days)


def _logs_bucket(scope: Construct, name: str | None) -> s3.IBucket | None:
    return None if name is None else s3.Bucket.from_bucket_name(scope, "AccessLogs", name)


class RendezvousBucket(Construct):
    """One bucket per stack; the first part of a key decides which roles have access (muster.contract.layout).

    It is not versioned. In every round each replica writes and deletes about as many bytes as the model has, and
    checkpoints are overwritten: old versions would multiply the cost of a run and keep what retention deletes. Instead
    the bucket refuses to overwrite objects that the control plane writes once and refuses unconditional writes of
    records, and no role may delete under control/.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        inbox: sns.ITopic | None,
        table: BucketTable,
        notices: Mapping[Notices, sns.ITopic],
    ) -> None:
        """`inbox` is None for the bucket of an outpost, which has nothing of the control plane."""
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            bucket_name=table.name,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=False,
            # The results of runs stay when the stack is deleted, but not a bucket whose first deployment fails.
            removal_policy=RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE,
            server_access_logs_bucket=_logs_bucket(self, table.access_logs_bucket),
            server_access_logs_prefix=table.access_logs_prefix,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="rendezvous-becomes-infrequent",
                    prefix="rendezvous/",
                    object_size_greater_than=INFREQUENT_BYTES_MIN,
                    transitions=[
                        s3.Transition(
                            storage_class=s3.StorageClass.INFREQUENT_ACCESS,
                            transition_after=Duration.days(INFREQUENT_DAYS),
                        )
                    ],
                ),
                # A plan writes again what it needs of these and is old, and no run lives as long.
                s3.LifecycleRule(id="source-expires", prefix=SOURCE, expiration=Duration.days(EXPIRY_DAYS)),
                s3.LifecycleRule(id="packages-expire", prefix=PACKAGES, expiration=Duration.days(EXPIRY_DAYS)),
                s3.LifecycleRule(id="recipes-expire", prefix=RECIPES, expiration=Duration.days(EXPIRY_DAYS)),
                *map(_expire, notices),
                s3.LifecycleRule(
                    id="incomplete-uploads-are-aborted",
                    abort_incomplete_multipart_upload_after=Duration.days(INCOMPLETE_UPLOAD_DAYS),
                ),
            ],
        )
        # CloudFormation's property is text; the CDK writes a number.
        size = "LifecycleConfiguration.Rules.0.ObjectSizeGreaterThan"
        cast("s3.CfnBucket", self.bucket.node.default_child).add_property_override(size, str(INFREQUENT_BYTES_MIN))
        if inbox is not None:
            self._notify(inbox, notices)
        once, swapped = ((), ()) if inbox is None else (_WRITTEN_ONCE, _COMPARED_AND_SWAPPED)
        self._refuse_writes("WrittenOnce", [*once, "runs/*"], {"s3:if-none-match": "true"})
        self._refuse_writes(
            "ComparedAndSwapped",
            [*swapped, f"{SOURCE}*", f"{PACKAGES}*", f"{RECIPES}*"],
            {"s3:if-none-match": "true", "s3:if-match": "true"},
        )

        if self.bucket.policy is not None:
            # The bucket outlives the stack, and its protection with it.
            self.bucket.policy.apply_removal_policy(RemovalPolicy.RETAIN_ON_UPDATE_OR_DELETE)

    def _notify(self, inbox: sns.ITopic, notices: Mapping[Notices, sns.ITopic]) -> None:
        """Send a message to a topic for each spec that is put into the inbox, and for each notice.

        Not through EventBridge, which would get an event for every object of every round, at $1 per million. The
        construct's own method would add a function of the CDK to the stack; CloudFormation needs none.
        """
        resource = cast(s3.CfnBucket, self.bucket.node.default_child)
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            topic_configurations=[
                *(_created(inbox, INBOX, suffix) for suffix in INBOX_SUFFIXES),
                *(_created(topic, one.prefix, one.suffix) for one, topic in notices.items()),
            ]
        )
        # S3 tests the topic when the notification is configured.
        for topic in (inbox, *notices.values()):
            resource.node.add_dependency(topic)

    def _refuse_writes(self, sid: str, keys: Sequence[str], absent: Mapping[str, str]) -> None:
        """Deny writes to `keys` that carry none of the headers in `absent`, to every principal.

        The parts of a multipart upload cannot carry them: of such an upload, S3 checks the call that completes it.
        """
        self.bucket.add_to_resource_policy(
            iam.PolicyStatement(
                sid=sid,
                effect=iam.Effect.DENY,
                principals=[iam.AnyPrincipal()],
                actions=["s3:PutObject"],
                resources=[self.bucket.arn_for_objects(key) for key in keys],
                conditions={"Null": dict(absent), "Bool": {"s3:ObjectCreationOperation": "true"}},
            )
        )
