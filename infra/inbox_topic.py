"""Where the bucket tells of specs in its inbox."""

from __future__ import annotations

from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns as sns
from constructs import Construct


class InboxTopic(Construct):
    """Between bucket and function, because the function's role names the bucket: neither could be made first."""

    def __init__(self, scope: Construct, construct_id: str) -> None:
        super().__init__(scope, construct_id)
        self.topic = sns.Topic(self, "Topic", display_name="Muster: specs in the inbox")
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="BucketsOfThisAccount",
                actions=["sns:Publish"],
                principals=[iam.ServicePrincipal("s3.amazonaws.com")],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
