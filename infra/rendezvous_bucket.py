"""The bucket through which replicas exchange parameters and in which the control plane keeps its records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from aws_cdk import Duration, RemovalPolicy
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from infra.policy import allow_publishing
from muster.contract.run.execution_input import INBOX, INBOX_SUFFIXES
from muster.contract.run.source_delivery import EXPIRY_DAYS, SOURCE

# Replicas delete what no round needs any more; this is for what they leave. It is longer than a job can run (28 days),
# so that nothing is deleted that a replica still needs.
RENDEZVOUS_DAYS = 35
# Longer than the upload of any checkpoint. The parts of an unfinished upload cost as much as objects.
INCOMPLETE_UPLOAD_DAYS = 7


class InboxTopic(Construct):
    """The topic that the bucket notifies of specs in its inbox.

    Between bucket and function, because the function's role names the bucket: neither could be made first.
    """

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", display_name="Muster: specs in the inbox", enforce_ssl=True)
        allow_publishing(self.topic, "BucketsOfThisAccount", "s3.amazonaws.com")


def _created(inbox: sns.Topic, suffix: str) -> s3.CfnBucket.TopicConfigurationProperty:
    rules = [("prefix", INBOX), ("suffix", suffix)]
    return s3.CfnBucket.TopicConfigurationProperty(
        event="s3:ObjectCreated:*",
        topic=inbox.topic_arn,
        filter=s3.CfnBucket.NotificationFilterProperty(
            s3_key=s3.CfnBucket.S3KeyFilterProperty(
                rules=[s3.CfnBucket.FilterRuleProperty(name=name, value=value) for name, value in rules]
            )
        ),
    )


class RendezvousBucket(Construct):
    """One bucket per stack; the first part of a key decides which roles have access (muster.contract.layout).

    It is not versioned. In every round each replica writes and deletes about as many bytes as the model has, and
    checkpoints are overwritten: old versions would multiply the cost of a run and keep what retention deletes. Instead
    the bucket refuses to overwrite objects that the control plane writes once and refuses unconditional writes of
    records, and no role may delete under control/.
    """

    def __init__(self, scope: Construct, construct_id: str, *, inbox: sns.Topic, name: str | None) -> None:
        super().__init__(scope, construct_id)
        self.bucket = s3.Bucket(
            self,
            "Bucket",
            bucket_name=name,
            encryption=s3.BucketEncryption.S3_MANAGED,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=False,
            # The results of runs stay when the stack is deleted.
            removal_policy=RemovalPolicy.RETAIN,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="rendezvous-expires", prefix="rendezvous/", expiration=Duration.days(RENDEZVOUS_DAYS)
                ),
                s3.LifecycleRule(id="source-expires", prefix=SOURCE, expiration=Duration.days(EXPIRY_DAYS)),
                s3.LifecycleRule(
                    id="incomplete-uploads-are-aborted",
                    abort_incomplete_multipart_upload_after=Duration.days(INCOMPLETE_UPLOAD_DAYS),
                ),
            ],
        )
        self._notify_of_inbox(inbox)
        self._refuse_writes(
            "WrittenOnce",
            [
                *("control/*/plan.json", "control/*/stopping.json", "control/*/result.json", "control/*/lost/*"),
                *("control/*/waiting/*", "control/*/spent/*"),
                *("control/*/lineage.json", "control/*/continued_by.json", "control/*/report.html", "runs/*"),
            ],
            {"s3:if-none-match": "true"},
        )
        self._refuse_writes(
            "ComparedAndSwapped",
            ["control/*/replicas/*", "control/*/queue_token.json", "queue/*", f"{SOURCE}*"],
            {"s3:if-none-match": "true", "s3:if-match": "true"},
        )

    def _notify_of_inbox(self, inbox: sns.Topic) -> None:
        """Send a message to the topic for each spec that is put into the inbox.

        Not through EventBridge, which would get an event for every object of every round, at $1 per million. The
        construct's own method would add a function of the CDK to the stack; CloudFormation needs none.
        """
        resource = cast(s3.CfnBucket, self.bucket.node.default_child)
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            topic_configurations=[_created(inbox, suffix) for suffix in INBOX_SUFFIXES]
        )
        # S3 tests the topic when the notification is configured.
        resource.node.add_dependency(inbox.node.find_child("Policy"))

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
