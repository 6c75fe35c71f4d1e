"""The part `hyperpod` of a spec: the jobs of replicas on a HyperPod cluster that EKS orchestrates.

Each becomes one HyperPodPyTorchJob (job_document.py), whose members are named beside the fields.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, JsonValue

from muster.contract.document import Document
from muster.contract.training.clusters import ClusterName, DnsLabel
from muster.contract.training.resources import INSTANCES_MAX
from muster.contract.training.values import LINE, ONE_LINE, Path, Wording

DAY = 86_400
Instances = Annotated[int, Field(ge=1, le=INSTANCES_MAX)]
Seconds = Annotated[int, Field(ge=1, le=DAY)]
Processors = Annotated[float, Field(gt=0, le=1_024)]
Gibibytes = Annotated[float, Field(gt=0, le=32_768)]
Devices = Annotated[int, Field(ge=0, le=64)]
# Kubernetes: a name, behind a DNS name as a prefix where there is one.
_DNS_PART, _LABEL_NAME = "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?", "[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?"
_PREFIX_MAX, _NAME_MAX = 253, 63
LabelKey = Annotated[
    str,
    Field(
        min_length=1,
        max_length=_PREFIX_MAX + 1 + _NAME_MAX,
        pattern=rf"^({_DNS_PART}(\.{_DNS_PART})*/)?{_LABEL_NAME}$",
    ),
    Wording("the key of a Kubernetes label"),
]
LabelValue = Annotated[
    str,
    Field(max_length=63, pattern=r"^([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?)?$"),
    Wording("the value of a Kubernetes label"),
]


TopologyLevel = Literal[
    "topology.k8s.aws/network-node-layer-1",
    "topology.k8s.aws/network-node-layer-2",
    "topology.k8s.aws/network-node-layer-3",
    "topology.k8s.aws/ultraserver-id",
]
"""The labels of EKS that say where a node lies in the network."""


class Topology(Document):
    """Kueue's topology-aware scheduling (kueue.x-k8s.io/podset-*-topology)."""

    level: TopologyLevel = Field(description="within one node of this layer of the network")
    mode: Literal["preferred", "required"] = Field(
        default="preferred", description="`required`: the job waits until there is such a place"
    )


class Elastic(Document):
    """How the operator may change the instances of a replica between rounds (elasticPolicy). `instance_count` is what
    it starts with."""

    min_instances: Instances = Field(description="minReplicas")
    max_instances: Instances = Field(description="maxReplicas")
    step: Instances | None = Field(default=None, description="replicaIncrementStep; default 1")
    counts: list[Instances] | None = Field(
        default=None, min_length=1, description="replicaDiscreteValues: the counts that are possible, instead of step"
    )
    scaling_timeout_seconds: Seconds = Field(
        default=60, description="how long the operator waits for new pods when it scales (scalingTimeoutInSeconds)"
    )
    graceful_shutdown_seconds: Seconds = Field(
        default=600, description="how long pods have to save and stop (gracefulShutdownTimeoutInSeconds)"
    )
    faulty_scale_down_seconds: Seconds = Field(
        default=30,
        description="how long a lost pod may be missing before the replica shrinks (faultyScaleDownTimeoutInSeconds)",
    )
    scale_up_snooze_seconds: int | None = Field(
        default=None,
        ge=0,
        le=DAY,
        description="how long after a restart the replica does not grow (scaleUpSnoozeTimeInSeconds)",
    )


class OperatorRestarts(Document):
    """How often the operator starts a job's pods again before Muster reruns the replica (runPolicy.restartPolicy)."""

    max_retries: int = Field(default=3, ge=0, le=100, description="jobMaxRetryCount")
    period_seconds: int = Field(default=21_600, ge=1, le=30 * DAY, description="evalPeriodSeconds")
    max_full_restarts: int | None = Field(default=None, ge=0, le=100, description="maxFullJobRestarts in a period")
    before_full_restart: int | None = Field(default=None, ge=0, le=100, description="numRestartBeforeFullJobRestart")
    avoided_nodes: int | None = Field(
        default=None,
        ge=0,
        le=INSTANCES_MAX,
        description="nodes with repeated faults that restarted pods avoid (maxNumRepeatOffendersToAvoid)",
    )


class LogRule(Document):
    """A rule by which the operator's agent reads the log of a pod (logMonitoringConfiguration)."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=LINE), ONE_LINE]
    pattern: Annotated[str, Field(min_length=1, max_length=1_024, pattern=LINE), ONE_LINE] = Field(
        description="a regular expression; its first group is the metric, where one is compared (logPattern)"
    )
    stop_pattern: Annotated[str, Field(min_length=1, max_length=1_024, pattern=LINE), ONE_LINE] | None = Field(
        default=None, description="a line that ends the rule (stopPattern)"
    )
    start_within_seconds: Seconds | None = Field(
        default=None, description="the first line is expected in this time (expectedStartCutOffInSeconds)"
    )
    every_seconds: Seconds | None = Field(
        default=None, description="and then each in this time (expectedRecurringFrequencyInSeconds)"
    )
    threshold: int | None = Field(
        default=None,
        ge=-(2**63),
        le=2**63 - 1,
        description="what the metric is compared with; a whole number (metricThreshold)",
    )
    operator: Literal["gt", "lt", "eq", "gteq", "lteq"] | None = Field(
        default=None, description="a metric for which this holds is a fault"
    )
    data_points: int = Field(default=1, ge=1, le=1_000, description="how many in a row (metricEvaluationDataPoints)")


Fragment = dict[str, JsonValue]
"""A part of a pod, in the words of Kubernetes. pod_fragments.py says what it may have."""


class Volume(Document):
    """A volume of the pods: a path of the node, a claim, or another source."""

    name: DnsLabel
    mount_path: Path
    host_path: Path | None = None
    claim: DnsLabel | None = Field(default=None, description="the name of a PersistentVolumeClaim")
    source: Fragment | None = Field(
        default=None,
        max_length=1,
        description="another source, as Kubernetes writes it: secret, configMap, emptyDir or ephemeral",
    )
    read_only: bool = False


class HyperPod(Document):
    """The jobs of replicas on a HyperPod cluster."""

    cluster: ClusterName | None = Field(
        default=None, description="the HyperPod cluster; may be left out where the stack has one"
    )
    namespace: DnsLabel | None = Field(default=None, description="default: the first of the cluster's in the settings")
    queue: DnsLabel | None = Field(default=None, description="Kueue's local queue (kueue.x-k8s.io/queue-name)")
    priority: DnsLabel | None = Field(default=None, description="kueue.x-k8s.io/priority-class")
    topology: Topology | None = Field(default=None, description="how close together Kueue puts the pods of a replica")
    spares: int = Field(default=0, ge=0, le=INSTANCES_MAX, description="pods that wait to replace one that is lost")
    elastic: Elastic | None = Field(
        default=None, description="how the operator may change the instances of a replica; none: it never does"
    )
    restarts: OperatorRestarts = Field(
        default_factory=OperatorRestarts,
        description="how often the operator starts a job's pods again before Muster reruns the replica",
    )
    startup_deadline_seconds: Seconds = Field(
        default=3_600, description="how long the pods may take to start once they are admitted"
    )
    fault_deadline_seconds: Seconds = Field(
        default=3_600,
        description="how long the operator waits for a node in place of a lost one; then Muster reruns the replica",
    )
    log_rules: list[LogRule] = Field(
        default_factory=list,
        max_length=20,
        description="patterns of the log by which the operator's agent notices a hang or a bad metric",
    )
    deep_health_checks: bool = Field(default=False, description="only nodes whose deep health checks have passed")
    node_labels: dict[LabelKey, LabelValue] = Field(default_factory=dict, max_length=20, description="nodeSelector")
    accelerators: Devices | None = Field(
        default=None, description="GPUs or Neuron devices of each pod; default: all of the instance type"
    )
    partition: Annotated[str, Field(pattern=r"^mig-[1-7]g\.[0-9]{1,3}gb$"), Wording("a MIG profile")] | None = Field(
        default=None,
        description="a part of a GPU, such as `mig-1g.10gb`; `accelerators` then counts these, by default 1",
    )
    vcpu: Processors | None = Field(
        default=None,
        description="processors of each pod; default: all that a node has for pods, or the accelerators' part of it",
    )
    memory_gib: Gibibytes | None = Field(
        default=None,
        description="memory of each pod; default: all that a node has for pods, or the accelerators' part of it",
    )
    vcpu_limit: Processors | None = Field(
        default=None, description="the most processors that each pod gets; default: no limit"
    )
    memory_limit_gib: Gibibytes | None = Field(
        default=None, description="memory at which a pod is ended; default: what it asks for"
    )
    efa: Devices | None = Field(
        default=None,
        description="EFA interfaces of each pod; default: as `vcpu` if a replica can have several instances",
    )
    volumes: list[Volume] = Field(
        default_factory=list,
        max_length=20,
        description="paths of the nodes, claims and others that the pods mount",
    )
    pod: Fragment = Field(
        default_factory=dict,
        max_length=20,
        description="further members of the pods, as Kubernetes writes them: tolerations, affinity, …",
    )
    container: Fragment = Field(
        default_factory=dict,
        max_length=20,
        description="further members of their container, as Kubernetes writes them: envFrom, imagePullPolicy, …",
    )
    service_account: DnsLabel | None = Field(
        default=None, description="one of your own, with the rights that the pods need; default: one for the run"
    )
    keep_seconds: Annotated[int, Field(ge=3_600, le=30 * DAY), Wording(remedy="Muster reads the job after its end")] = (
        Field(default=DAY, description="how long the ended job stays in the cluster (ttlSecondsAfterFinished)")
    )
