"""The resources that the embedded API serves."""

from __future__ import annotations

from muster.contract.hyperpod.identity import GROUP, KIND, PLURAL, VERSION
from muster.local.kubernetes.kinds.pods import PODS
from muster.local.kubernetes.kinds.roles import GROUP as RBAC
from muster.local.kubernetes.kinds.roles import BindingRules, RoleRules
from muster.local.kubernetes.objects.resource import NAMESPACES, Resource

JOBS = Resource(GROUP, VERSION, PLURAL, KIND, "hyperpodpytorchjob", has_status=True, custom=True)

NODES = Resource(
    "",
    "v1",
    "nodes",
    "Node",
    "node",
    namespaced=False,
    has_status=True,
    keeps_status=True,
)
SERVICE_ACCOUNTS = Resource(
    "",
    "v1",
    "serviceaccounts",
    "ServiceAccount",
    "serviceaccount",
)
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap", "configmap")
SECRETS = Resource("", "v1", "secrets", "Secret", "secret")
EVENTS = Resource(
    "",
    "v1",
    "events",
    "Event",
    "event",
)

ROLES = Resource(RBAC, "v1", "roles", "Role", "role", rules=RoleRules(namespaced=True))
ROLE_BINDINGS = Resource(RBAC, "v1", "rolebindings", "RoleBinding", "rolebinding", rules=BindingRules(namespaced=True))
CLUSTER_ROLES = Resource(
    RBAC, "v1", "clusterroles", "ClusterRole", "clusterrole", namespaced=False, rules=RoleRules(namespaced=False)
)
CLUSTER_ROLE_BINDINGS = Resource(
    RBAC,
    "v1",
    "clusterrolebindings",
    "ClusterRoleBinding",
    "clusterrolebinding",
    namespaced=False,
    rules=BindingRules(namespaced=False),
)

KUEUE = "kueue.x-k8s.io"
WORKLOADS = Resource(KUEUE, "v1beta1", "workloads", "Workload", "workload", has_status=True, custom=True)
LOCAL_QUEUES = Resource(KUEUE, "v1beta1", "localqueues", "LocalQueue", "localqueue", has_status=True, custom=True)
CLUSTER_QUEUES = Resource(
    KUEUE,
    "v1beta1",
    "clusterqueues",
    "ClusterQueue",
    "clusterqueue",
    namespaced=False,
    has_status=True,
    custom=True,
)
RESOURCE_FLAVORS = Resource(
    KUEUE,
    "v1beta1",
    "resourceflavors",
    "ResourceFlavor",
    "resourceflavor",
    namespaced=False,
    custom=True,
)
WORKLOAD_PRIORITY_CLASSES = Resource(
    KUEUE,
    "v1beta1",
    "workloadpriorityclasses",
    "WorkloadPriorityClass",
    "workloadpriorityclass",
    namespaced=False,
    custom=True,
)
PRIORITY_CLASSES = Resource(
    "scheduling.k8s.io",
    "v1",
    "priorityclasses",
    "PriorityClass",
    "priorityclass",
    namespaced=False,
)
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
)
