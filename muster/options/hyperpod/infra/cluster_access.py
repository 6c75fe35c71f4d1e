"""The way of the functions into one cluster: an access entry for each role, and what it may do in the namespaces.

An access entry gives a role a group of Kubernetes. What a group may do is said by objects in the cluster, which
CloudFormation cannot make: one small function makes them, under a role that may do nothing else. Its own access entry
lets it administer the namespaces of the settings alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from aws_cdk import CustomResource, Duration, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from muster.contract.document import digest
from muster.contract.training.clusters import Cluster
from muster.infra.functions.function_table import FunctionRow
from muster.infra.functions.handler_function import HandlerFunction, HandlerSettings
from muster.infra.policy import Arns, Target, allow
from muster.infra.settings.stack_settings import StackSettings

RESOURCE_TYPE = "Custom::MusterClusterAccess"
# CloudFormation waits this long for an answer, not an hour: the function answers within its own time-out.
_ANSWER_SECONDS = 600
_DIGEST_LENGTH = 8

ACCESS_ROW = FunctionRow(
    name="cluster_access",
    description="Muster: makes the roles of the functions in the namespaces of a cluster",
    timeout_seconds=300,  # an access entry takes some time until the cluster accepts it
    memory_mb=256,
    statements=(allow(Target.CLUSTERS, "eks:DescribeCluster"),),
    in_network=True,
)
"""The function behind the custom resource. Nothing else calls it."""


Rule = Mapping[str, Sequence[str]]
"""What is allowed in the namespaces of a cluster, as a Role of Kubernetes has it."""


@dataclass(frozen=True)
class CalledBy:
    """A function that calls clusters, and what it may do there."""

    function: lambda_.Function
    rules: Sequence[Rule]


class ClusterAccess(Construct):
    """Everything that lets the functions `callers`, by name, into the clusters of a stack.

    The names of the objects in a cluster end in a digest of what they say. A change makes new ones beside the old
    ones, so that at every time the functions have their rights. And a namespace that the settings give up holds roles
    of groups that no function has any more.
    """

    def __init__(
        self,
        scope: Construct,
        settings: StackSettings,
        callers: Mapping[str, CalledBy],
        handlers: HandlerSettings,
        arns: Arns,
    ) -> None:
        super().__init__(scope, "ClusterAccess")
        self._job_prefix = settings.job_prefix
        self._maker = HandlerFunction(self, ACCESS_ROW, handlers, arns=arns, environment={}).function
        of_each = Construct(self, "To")  # a cluster may have any name
        for cluster in settings.clusters.clusters:
            self._let_in(Construct(of_each, cluster.name), cluster, callers)

    def _let_in(self, place: Construct, cluster: Cluster, callers: Mapping[str, CalledBy]) -> None:
        """Let the functions into one cluster."""
        namespaces = sorted(cluster.namespaces)
        rules = {name: list(caller.rules) for name, caller in sorted(callers.items())}
        mark = digest([namespaces, rules])[:_DIGEST_LENGTH]
        admin = self._admin_entry(place, cluster)
        objects = CustomResource(
            place,
            "Roles",
            service_token=self._maker.function_arn,
            resource_type=RESOURCE_TYPE,
            service_timeout=Duration.seconds(_ANSWER_SECONDS),
            properties={
                "Cluster": cluster.name,
                "EksCluster": cluster.eks_cluster,
                "Namespaces": namespaces,
                "Stack": self._job_prefix,
                "Roles": [
                    {
                        "Name": f"muster-{self._job_prefix}-{name}-{mark}",
                        "Group": self._group(name, mark),
                        "Rules": found,
                    }
                    for name, found in rules.items()
                ],
            },
        )
        objects.node.add_dependency(admin)
        for name, caller in sorted(callers.items()):
            entry = eks.CfnAccessEntry(
                place,
                name.capitalize(),
                cluster_name=cluster.eks_cluster,
                principal_arn=_role(caller.function).role_arn,
                kubernetes_groups=[self._group(name, mark)],
                type="STANDARD",
            )
            # First what the group may do, then who is in it.
            entry.node.add_dependency(objects)

    def _group(self, name: str, mark: str) -> str:
        return f"muster:{self._job_prefix}:{name}:{mark}"

    def _admin_entry(self, place: Construct, cluster: Cluster) -> eks.CfnAccessEntry:
        """Roles may be made by those alone who have all their rights, so it has all of them, in these namespaces."""
        policy = f"arn:{Stack.of(self).partition}:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
        scope = eks.CfnAccessEntry.AccessScopeProperty(type="namespace", namespaces=sorted(cluster.namespaces))
        return eks.CfnAccessEntry(
            place,
            "Admin",
            cluster_name=cluster.eks_cluster,
            principal_arn=_role(self._maker).role_arn,
            type="STANDARD",
            access_policies=[eks.CfnAccessEntry.AccessPolicyProperty(policy_arn=policy, access_scope=scope)],
        )


def _role(function: lambda_.Function) -> iam.IRole:
    return cast("iam.IRole", function.role)
