"""The resources that the embedded API serves."""

from __future__ import annotations

from muster.contract.hyperpod.identity import GROUP, KIND, PLURAL, VERSION
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.roles import GROUP as RBAC
from muster.local.kubernetes.kinds.roles import BindingRules, RoleRules
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource

JOBS = Resource(GROUP, VERSION, PLURAL, KIND, has_status=True, custom=True)

NODES = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    namespaced=False,
    has_status=True,
    keeps_status=True,
)
SERVICE_ACCOUNTS = Resource(
    "",
    "v1",
    "serviceaccounts",
    "ServiceAccount",
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
SECRETS = Resource("", "v1", "secrets", "Secret")
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
)

ROLES = Resource(RBAC, "v1", "roles", "Role", rules=RoleRules(namespaced=True))
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", rules=BindingRules(namespaced=True))
CLUSTER_ROLES = Resource(RBAC, "v1", "clusterroles", "ClusterRole", namespaced=False, rules=RoleRules(namespaced=False))
CLUSTER_ROLE_BINDINGS = Resource(
    RBAC,
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    namespaced=False,
    rules=BindingRules(namespaced=False),
)

KUEUE = "kueue.x-k8s.io"
WORKLOADS = Resource(KUEUE, "v1beta1", "workloads", "Workload", has_status=True, custom=True)
LOCAL_QUEUES = Resource(KUEUE, "v1beta1", "localqueues", "LocalQueue", has_status=True, custom=True)
CLUSTER_QUEUES = Resource(
    KUEUE,
    "v1beta1",
    "clusterqueues",
    "ClusterQueue",
    namespaced=False,
    has_status=True,
    custom=True,
)
RESOURCE_FLAVORS = Resource(
    KUEUE,
    "v1beta1",
    "resourceflavors",
    "ResourceFlavor",
    namespaced=False,
    custom=True,
)
WORKLOAD_PRIORITY_CLASSES = Resource(
    KUEUE,
    "v1beta1",
    "workloadpriorityclasses",
    "WorkloadPriorityClass",
    namespaced=False,
    custom=True,
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    namespaced=False,
)
CRDS = Resource(
    "apiextensions.k8s.io",
    "v1",
    "customresourcedefinitions",
    "CustomResourceDefinition",
    namespaced=False,
    read_only=True,
)
"""By it `hyp` sees whether the operator is installed."""

RESOURCES: tuple[Resource, ...] = (
    NAMESPACES,
    PODS,
    NODES,
    SERVICE_ACCOUNTS,
    CONFIG_MAPS,
    SECRETS,
    EVENTS,
    ROLES,
    ROLE_BINDINGS,
    CLUSTER_ROLES,
    CLUSTER_ROLE_BINDINGS,
    JOBS,
    WORKLOADS,
    LOCAL_QUEUES,
    CLUSTER_QUEUES,
    RESOURCE_FLAVORS,
    WORKLOAD_PRIORITY_CLASSES,
    PRIORITY_CLASSES,
    CRDS,
)
