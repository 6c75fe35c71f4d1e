"""What a stack with HyperPod clusters has besides, and what its functions may do on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns

from muster.contract.run.notices import NOTICES
from muster.contract.training.network_access import VpcConfig
from muster.infra.functions.event_delivery import DeadLetters, RuleSettings
from muster.infra.functions.function_table import COMPLETE_TASKS, EMIT, FAIL_TASKS, KEEP_RECORDS, FunctionRow
from muster.infra.functions.handler_function import HandlerFunction, HandlerSettings
from muster.infra.functions.notices_queue import NoticesQueue
from muster.infra.functions.triggers import TriggerContext
from muster.infra.policy import Arns, Target, allow, pass_role, read
from muster.infra.settings.stack_settings import StackSettings
from muster.infra.stack_option import NOTICES_OF_REPLICAS, Grant, Notices, Resources, StackOption
from muster.options.hyperpod.contract.object_identity import GROUP, PLURAL
from muster.options.hyperpod.contract.wake_events import CLUSTER_EVENTS
from muster.options.hyperpod.infra.cluster_access import CalledBy, ClusterAccess, Rule
from muster.options.hyperpod.infra.pod_role import PodRole, eks_cluster_arns
from muster.options.hyperpod.infra.settings import network_of

_LOOK_SECONDS = 300  # as react

_SEE_CLUSTERS = allow(Target.CLUSTERS, "eks:DescribeCluster")
_GIVE_PODS_RIGHTS = (
    _SEE_CLUSTERS,
    allow(Target.CLUSTERS, "eks:CreatePodIdentityAssociation", "eks:ListPodIdentityAssociations"),
    # An association is made with tags.
    allow(Target.POD_ASSOCIATIONS, "eks:DescribePodIdentityAssociation", "eks:TagResource"),
    pass_role(Target.POD_ROLE, "pods.eks.amazonaws.com"),
    allow(Target.POD_ROLE, "iam:GetRole"),  # EKS looks at the role that it is given
)
_TAKE_PODS_RIGHTS = (
    _SEE_CLUSTERS,
    allow(Target.CLUSTERS, "eks:ListPodIdentityAssociations"),
    allow(Target.POD_ASSOCIATIONS, "eks:DescribePodIdentityAssociation", "eks:DeletePodIdentityAssociation"),
)


def _may(group: str, resource: str, *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


_cluster_jobs, _service_accounts = partial(_may, GROUP, PLURAL), partial(_may, "", "serviceaccounts")
_pods = partial(_may, "", "pods")
"""All pods of the namespace: Kubernetes cannot name those of some jobs."""
_LOOK_AFTER = (_cluster_jobs("delete", "get", "list"), _pods("list"))
_CLEAR_UP = (*_LOOK_AFTER, _service_accounts("delete", "get"))
_RULES = {
    "plan": (_cluster_jobs("list"), _service_accounts("create", "get")),
    # A job that is not found is told from a cluster without its kind of jobs by a list.
    "attempt": (_cluster_jobs("create", "delete", "get", "list"), _pods("list")),
    **dict.fromkeys(("react", "look", "scale", "timer"), _LOOK_AFTER),
    **dict.fromkeys(("settle", "stop", "sweep"), _CLEAR_UP),
}
"""What each function may do in the namespaces of the clusters."""
_CLUSTERS = ("MUSTER_CLUSTERS",)

_LOOK = FunctionRow(
    name="look",
    description="Muster: looks at the jobs on clusters that the notices of replicas name",
    timeout_seconds=_LOOK_SECONDS,
    memory_mb=1024,  # as react
    # Called by the queue of notices.
    statements=(
        allow(Target.NOTICES, "sqs:DeleteMessage", "sqs:GetQueueAttributes", "sqs:ReceiveMessage"),
        read(f"{NOTICES}*"),
        *KEEP_RECORDS,
        _SEE_CLUSTERS,
        COMPLETE_TASKS,
        FAIL_TASKS,
        EMIT,
    ),
    variables=_CLUSTERS,
    in_network=True,
)


def _cluster_events(context: TriggerContext) -> list[RuleSettings]:
    """React is called for what happens to the nodes and the state of the stack's clusters."""
    clusters = sorted(context.settings.hyperpod_clusters)
    # HyperPod sends no event about a job. "Cluster Event" comes of clusters with continuous provisioning alone.
    pattern = events.EventPattern(
        source=["aws.sagemaker"],
        detail_type=sorted(CLUSTER_EVENTS),
        # A "Cluster Event" has the name in its EventDetails.
        detail={"$or": [{"ClusterName": clusters}, {"EventDetails": {"ClusterName": clusters}}]},
    )
    return [RuleSettings("ClusterEvents", "Muster: nodes and states of the stack's HyperPod clusters", pattern)]


class ClusterPart:
    """The pods' role, the queue of notices, and the functions' way into the clusters."""

    def __init__(
        self,
        stack: Stack,
        settings: StackSettings,
        bucket: s3.IBucket,
        topics: Mapping[Notices, sns.ITopic],
        dead_letters: DeadLetters,
    ) -> None:
        self._stack, self._settings = stack, settings
        self._pod_role = PodRole(stack, "Pod", settings, bucket=bucket).role
        self._queue = NoticesQueue(
            stack,
            "NoticesQueue",
            topic=topics[NOTICES_OF_REPLICAS],
            dead_letters=dead_letters.queue,
            timeout_seconds=_LOOK_SECONDS,
        )

    @cached_property
    def arns(self) -> Mapping[Target, list[str]]:
        """The clusters of the settings, what gives their service accounts roles, the pods' role, the queue."""
        clusters = self._settings.clusters
        return {
            Target.CLUSTERS: eks_cluster_arns(self._stack, clusters),
            Target.POD_ASSOCIATIONS: [
                self._stack.format_arn(
                    service="eks", resource="podidentityassociation", resource_name=f"{cluster.eks_cluster}/*"
                )
                for cluster in clusters.clusters
            ],
            Target.POD_ROLE: [self._pod_role.role_arn],
            Target.NOTICES: [self._queue.queue.queue_arn],
        }

    @property
    def variables(self) -> Mapping[str, str]:
        """What functions know of the clusters."""
        clusters = self._settings.clusters.to_json().decode()
        return {"MUSTER_CLUSTERS": clusters, "MUSTER_POD_ROLE_ARN": self._pod_role.role_arn}

    @property
    def network(self) -> VpcConfig | None:
        """That of private endpoints."""
        return network_of(self._settings.hyperpod_clusters)

    def connect(self, functions: Mapping[str, HandlerFunction], handlers: HandlerSettings, arns: Arns) -> None:
        """Let the queue call look, and the functions into the clusters."""
        self._queue.call(functions["look"].called)
        # Without the option of elastic runs nothing scales.
        rules_of = {name: rules for name, rules in _RULES.items() if name in functions}
        callers = {name: CalledBy(functions[name].function, rules) for name, rules in rules_of.items()}
        ClusterAccess(self._stack, self._settings, callers, handlers, arns)


OFFER = StackOption(
    is_asked_for=lambda settings: bool(settings.hyperpod_clusters),
    resources=Resources(ClusterPart, [NOTICES_OF_REPLICAS]),
    grants={
        "plan": Grant(_GIVE_PODS_RIGHTS, ("MUSTER_POD_ROLE_ARN", *_CLUSTERS)),
        "attempt": Grant((_SEE_CLUSTERS,), _CLUSTERS),
        "react": Grant((_SEE_CLUSTERS,), _CLUSTERS, _cluster_events),
        **dict.fromkeys(("scale", "timer"), Grant((_SEE_CLUSTERS,), _CLUSTERS)),
        **dict.fromkeys(("settle", "stop", "sweep"), Grant(_TAKE_PODS_RIGHTS, _CLUSTERS)),
    },
    rows={"react": _LOOK},
)
