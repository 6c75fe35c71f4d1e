"""The HyperPodPyTorchJob of an attempt: a pure function of the plan, so a dry run shows the exact document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from pydantic import JsonValue

from muster.contract.aws.instance_types import has_own_disks
from muster.contract.errors import MusterError
from muster.contract.layout import s3_uri
from muster.contract.names import JobName
from muster.contract.run.job_request import (
    REPLICA_ENTRYPOINT,
    container_arguments,
    container_entrypoint,
    job_channels,
    job_environment,
    output_uri,
)
from muster.contract.run.notices import NOTICES
from muster.contract.run.plan import Plan
from muster.contract.spec.spec import Spec
from muster.contract.training.cluster_fields import Elastic, HyperPod, LogRule, Topology, Volume
from muster.contract.training.input_channels import Channel
from muster.contract.training.resources import DEFAULT_INSTANCE_TYPE
from muster.options.hyperpod.contract.job_schema import SchemaProblem, schema_problems
from muster.options.hyperpod.contract.object_identity import (
    ANNOTATION_PLAN,
    API_VERSION,
    KIND,
    job_labels,
    service_account,
)
from muster.options.hyperpod.contract.pod_bootstrap import (
    AGENT_PORT,
    ENV_POD_ADDRESS,
    ENV_POD_NAME,
    POD_COMMAND,
    STOP_SECONDS,
)
from muster.options.hyperpod.contract.pod_resources import pod_resources
from muster.options.hyperpod.contract.pod_work import (
    ENV_POD_WORK,
    MEMORY_PATH,
    MEMORY_VOLUME,
    TREE_PATHS,
    TREE_VOLUME,
    PodChannel,
    PodWork,
)

POD = "pod"
"""The name of the replicaSpec: the operator names pods `{job}-pod-{index}`."""
CONTAINER = "pytorch-job-container"
"""The name of the container, as AWS's own clients name it."""
QUEUE_LABEL, PRIORITY_LABEL = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
TYPE_LABEL = "node.kubernetes.io/instance-type"
HEALTH_LABEL = "sagemaker.amazonaws.com/deep-health-check-status"
NODES_VARIABLE = "NNODES"
"""How many agents meet, which AWS's rendezvous reads."""

_Json = dict[str, JsonValue]


class ClusterJobError(MusterError):
    """A job that the schema of HyperPodPyTorchJob refuses; nothing is sent."""

    def __init__(self, job: str, problems: list[SchemaProblem]) -> None:
        self.problems = problems
        listed = "\n".join(f"  - {problem}" for problem in problems)
        super().__init__(f"The job {job} is not a valid HyperPodPyTorchJob; nothing was created.\n{listed}")


def cluster_job(plan: Plan, rank: int, attempt: int, shortages: int = 0) -> _Json:
    """The job that launches attempt `attempt` of replica `rank`, which runs on a cluster.

    `shortages` is how many earlier attempts found no capacity or no quota: after each the next fallback type is used.

    Raises:
        ClusterJobError: the schema refuses the document.
    """
    document = drafted_job(plan, rank, attempt, shortages)
    if problems := schema_problems(document):
        raise ClusterJobError(str(JobName(plan.place.job_prefix, plan.run, rank, attempt)), problems)
    return document


def drafted_job(plan: Plan, rank: int, attempt: int, shortages: int = 0) -> _Json:
    """The same without a look at the schema: in a dry run some values are placeholders."""
    spec = plan.spec.of_rank(rank)
    asked = spec.hyperpod or HyperPod()
    place = {"name": str(JobName(plan.place.job_prefix, plan.run, rank, attempt)), "namespace": asked.namespace}
    queue = _set({QUEUE_LABEL: asked.queue, PRIORITY_LABEL: asked.priority})
    metadata: _Json = {
        "labels": {**queue, **job_labels(plan.place.job_prefix, plan.run, rank, attempt)},
        "annotations": {**_topology(asked.topology), ANNOTATION_PLAN: plan.digest},
    }
    pods: _Json = {"name": POD, "replicas": spec.instance_count, "spares": asked.spares}
    if asked.elastic is not None:
        pods["maxReplicas"] = asked.elastic.max_instances
    pods["template"] = {"metadata": metadata, "spec": _pod(plan, spec, rank, attempt, shortages)}
    members: dict[str, object] = {
        # The launcher in a pod starts the replica's processes, so the agent starts one.
        "nprocPerNode": "1",
        "replicaSpecs": [pods],
        "elasticPolicy": asked.elastic and _elastic(asked.elastic),
        "runPolicy": _run_policy(asked, spec.max_runtime_seconds),
    }
    document = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {**_set(place), **metadata},
        "spec": _set(members),
    }
    # Every member comes from a document, so it is JSON.
    return cast("_Json", document)


def _set(members: Mapping[str, object]) -> _Json:
    """The members that are set."""
    return cast("_Json", {name: value for name, value in members.items() if value is not None})


def pod_work(plan: Plan, rank: int, attempt: int) -> PodWork:
    """What the first process of the attempt's pods does."""
    spec = plan.spec.of_rank(rank)
    channels = (PodChannel(name=item.channel_name, uri=_uri(item)) for item in job_channels(plan, rank))
    return PodWork(
        job=str(JobName(plan.place.job_prefix, plan.run, rank, attempt)),
        program=tuple(pod_program(spec)),
        channels=tuple(channels),
        hyper_parameters=spec.hyper_parameters,
        checkpoints_uri=s3_uri(plan.place.bucket, plan.shared_layout.checkpoints(rank)),
        output_uri=output_uri(plan),
        notices_uri=s3_uri(plan.place.bucket, f"{NOTICES}{plan.run}/"),
        instances=spec.instance_count,
    )


def pod_program(spec: Spec) -> list[str]:
    """The program of a pod and its arguments. An image's own program is not known here, so a spec names it."""
    return [*(container_entrypoint(spec) or REPLICA_ENTRYPOINT), *container_arguments(spec)]


def _uri(channel: Channel) -> str:
    source = channel.data_source.s3_data_source
    if source is None:
        message = f"the channel {channel.channel_name} is not in S3"
        raise ValueError(message)
    return source.s3_uri


def _topology(topology: Topology | None) -> _Json:
    """Kueue: the topology annotations of a pod set."""
    if topology is None:
        return {}
    return {f"kueue.x-k8s.io/podset-{topology.mode}-topology": topology.level}


def _pod(plan: Plan, spec: Spec, rank: int, attempt: int, shortages: int) -> _Json:
    asked = spec.hyperpod or HyperPod()
    instance_type = spec.type_after(shortages) or DEFAULT_INSTANCE_TYPE
    several = spec.instance_count > 1 or asked.elastic is not None
    # A volume of the user's may keep the local states beyond the pod.
    own = {volume.mount_path.rstrip("/") for volume in asked.volumes}
    container: dict[str, object] = {
        **asked.container,
        "name": CONTAINER,
        "image": spec.image,
        "command": [_literal(word) for word in POD_COMMAND],
        "env": _variables(plan, spec, rank, attempt),
        "ports": [{"name": "agent", "containerPort": AGENT_PORT}],
        "resources": pod_resources(asked, instance_type, several=several),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [
            {"name": MEMORY_VOLUME, "mountPath": MEMORY_PATH},
            *(
                {"name": TREE_VOLUME, "mountPath": path, "subPath": folder}
                for path, folder in TREE_PATHS.items()
                if path not in own
            ),
            *(_mount(volume) for volume in asked.volumes),
        ],
    }
    # As for a training job: on a type with disks of its own the volume is as large as they are.
    disk: _Json = {} if has_own_disks(instance_type) else {"sizeLimit": f"{spec.volume_gb}Gi"}
    pod: dict[str, object] = {
        **asked.pod,
        "containers": [container],
        "nodeSelector": _node_labels(asked, instance_type),
        # A container that ends is started again by the operator, never by the node alone.
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_SECONDS,
        "serviceAccountName": asked.service_account or service_account(plan.run),
        # Pods need S3, and nothing of the cluster's API. Pod Identity brings a token of its own.
        "automountServiceAccountToken": None if asked.service_account else False,
        "enableServiceLinks": False,
        "volumes": [
            {"name": MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}},
            {"name": TREE_VOLUME, "emptyDir": disk},
            *(_volume(volume) for volume in asked.volumes),
        ],
    }
    return _set(pod)


def _variables(plan: Plan, spec: Spec, rank: int, attempt: int) -> list[object]:
    """The environment: the user's, Muster's, and what the agent reads."""
    values = {
        "AWS_REGION": plan.region,
        "AWS_DEFAULT_REGION": plan.region,
        **job_environment(plan, spec, rank, attempt),
        NODES_VARIABLE: str(spec.instance_count),
        ENV_POD_WORK: pod_work(plan, rank, attempt).to_json().decode(),
    }
    fields = {ENV_POD_NAME: "metadata.name", ENV_POD_ADDRESS: "status.podIP"}
    return [
        *({"name": name, "value": _literal(value)} for name, value in values.items()),
        *({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()),
    ]


def _literal(text: str) -> str:
    """A text of the environment or the command as it is: Kubernetes replaces $(NAME), and writes $ for $$."""
    return text.replace("$", "$$")


def _node_labels(asked: HyperPod, instance_type: str) -> _Json:
    health: _Json = {HEALTH_LABEL: "Passed"} if asked.deep_health_checks else {}
    return {**asked.node_labels, TYPE_LABEL: instance_type, **health}


def _mount(volume: Volume) -> _Json:
    mount: _Json = {"name": volume.name, "mountPath": volume.mount_path}
    return {**mount, "readOnly": True} if volume.read_only else mount


def _volume(volume: Volume) -> _Json:
    if volume.source is not None:
        return {"name": volume.name, **volume.source}
    if volume.claim is not None:
        claim: _Json = {"claimName": volume.claim}
        return {
            "name": volume.name,
            "persistentVolumeClaim": {**claim, "readOnly": True} if volume.read_only else claim,
        }
    return {"name": volume.name, "hostPath": {"path": volume.host_path}}


def _elastic(elastic: Elastic) -> _Json:
    """elasticPolicy: the instances are minReplicas and a number of steps more, or one of the values."""
    counts: _Json = (
        {"replicaDiscreteValues": [*elastic.counts]}
        if elastic.counts is not None
        else {"replicaIncrementStep": elastic.step or 1}
    )
    return {
        "minReplicas": elastic.min_instances,
        "maxReplicas": elastic.max_instances,
        **counts,
        "scalingTimeoutInSeconds": elastic.scaling_timeout_seconds,
        "gracefulShutdownTimeoutInSeconds": elastic.graceful_shutdown_seconds,
        "faultyScaleDownTimeoutInSeconds": elastic.faulty_scale_down_seconds,
    }


def _run_policy(asked: HyperPod, seconds: int) -> _Json:
    restarts = {
        "evalPeriodSeconds": asked.restarts.period_seconds,
        "maxFullJobRestarts": asked.restarts.max_full_restarts,
        "numRestartBeforeFullJobRestart": asked.restarts.before_full_restart,
        "maxNumRepeatOffendersToAvoid": asked.restarts.avoided_nodes,
        "scaleUpSnoozeTimeInSeconds": asked.elastic and asked.elastic.scale_up_snooze_seconds,
    }
    policy: _Json = {
        # The operator removes pods of an ended job at once: they hold their accelerators until then.
        "cleanPodPolicy": "All",
        # Its default, 0, removes the job before it can be read.
        "ttlSecondsAfterFinished": asked.keep_seconds,
        "activeDeadlineSeconds": seconds,
        "startupDeadlineSeconds": asked.startup_deadline_seconds,
        "faultDeadlineSeconds": asked.fault_deadline_seconds,
        "jobMaxRetryCount": asked.restarts.max_retries,
        "restartPolicy": _set(restarts),
    }
    if asked.log_rules:
        policy["logMonitoringConfiguration"] = [_log_rule(rule) for rule in asked.log_rules]
    return policy


def _log_rule(rule: LogRule) -> _Json:
    compared = rule.threshold is not None
    members = {
        "name": rule.name,
        "logPattern": rule.pattern,
        "stopPattern": rule.stop_pattern,
        "expectedStartCutOffInSeconds": rule.start_within_seconds,
        "expectedRecurringFrequencyInSeconds": rule.every_seconds,
        "metricThreshold": rule.threshold,
        "operator": rule.operator,
        "metricEvaluationDataPoints": rule.data_points if compared else None,
    }
    return _set(members)
