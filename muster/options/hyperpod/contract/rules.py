"""Problems of a spec whose replicas, or some of them, run on a HyperPod cluster: what fits together, and what only
training jobs have."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from muster.contract.document import canonical_json
from muster.contract.errors import Problem, StatedProblem
from muster.contract.spec.backend_rules import BackendRules
from muster.contract.spec.rank_spec import ClusterPart, parts_of, uses_cluster
from muster.contract.training.cluster_fields import Elastic, LogRule, Volume
from muster.contract.training.input_channels import Channel
from muster.contract.training.source_delivery import DEFAULT_BASE_DIR
from muster.options.hyperpod.contract.cluster_places import place_problems, placed
from muster.options.hyperpod.contract.pod_fragments import fragment_problems
from muster.options.hyperpod.contract.pod_resources import resource_problems
from muster.options.hyperpod.contract.pod_work import MEMORY_VOLUME, OWN_PATHS, POD_WORK_BYTES_MAX, TREE_VOLUME

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields

OWN_VARIABLES = ("NNODES", "POD_IP", "POD_NAME")
"""What Muster sets in the environment of a pod beside the names that begin with MUSTER_."""
_OWN_LABELS = ("node.kubernetes.io/instance-type", "sagemaker.amazonaws.com/deep-health-check-status")
# PodWork beside what a spec says: URIs of the run and names of its fields.
_WORK_RESERVE = 8_192

_JOBS_ALONE = "only training jobs have it"
# Fields that mean nothing where no rank has a training job, and what to do instead.
_TRAINING_JOB_FIELDS = {
    "debug_hook_config": "leave it out",
    "debug_rule_configurations": "leave it out, or use watch or hyperpod.log_rules",
    "enable_inter_container_traffic_encryption": "leave it out",
    "enable_network_isolation": "leave it out, or use a network policy of the cluster",
    "enable_sage_maker_metrics_time_series": "leave it out",
    "experiment_config": "leave it out, or use metrics",
    "infra_check_config": "set hyperpod.deep_health_checks instead",
    "keep_alive_period_in_seconds": "leave it out: the nodes of a cluster stay",
    "max_pending_seconds": "set hyperpod.startup_deadline_seconds instead",
    "max_wait_seconds": "leave it out",
    "metric_definitions": "leave it out, or use metrics",
    "mlflow_config": "leave it out, or use metrics.mlflow",
    "profiler_config": "leave it out",
    "profiler_rule_configurations": "leave it out",
    "remote_debug_config": "leave it out, or use kubectl exec",
    "retry_strategy": "set hyperpod.restarts instead",
    "role_arn": "leave it out, or name a service account of yours in hyperpod.service_account",
    "session_chaining_config": "leave it out",
    "spot": "leave it out: the cluster's instance group decides",
    "tensor_board_output_config": "leave it out, or use metrics.tensorboard",
    "training_image_config": "leave it out: the nodes of the cluster pull the image",
    "training_plan_arn": "leave it out: the cluster's instance group has the plan",
    "volume_kms_key_id": "leave it out: the cluster's instance group has the key of its volumes",
    "vpc_config": "leave it out: the cluster has a network of its own",
}
_OVERRIDE_FIELDS = ("spot", "training_plan_arn", "vpc_config")


def cluster_problems(spec: SpecFields) -> Iterator[Problem]:
    """Every problem of the ranks on clusters. Pure."""
    parts = list(parts_of(spec))
    on_cluster = [part for part in parts if part.on_cluster]
    found: list[Problem] = [*_unused_sections(spec, parts)]
    if on_cluster:
        found += _name_problems(spec)
        if len(on_cluster) == len(parts):
            found += _job_fields(spec)
        for part in on_cluster:
            found += _override_fields(part)
            found += _section_problems(part)
            found += _program_problems(part)
            found += _channel_problems(part)
    # A problem of the run is the same for each of its overrides.
    yield from dict.fromkeys(found)


def launch_name_problems(run: str, prefix: str, spec: SpecFields) -> Iterator[Problem]:
    """What is wrong with the names that a launch chooses: Kubernetes takes lower-case letters alone."""
    if not uses_cluster(spec):
        return
    allowed = "replicas on a cluster are named after it: lower-case letters, digits and hyphens"
    if run != run.lower():
        remedy = "start the run under another name"
        yield Problem("name", repr(run), remedy, allowed)
    if prefix != prefix.lower():
        remedy = "deploy the stack with a job_prefix in lower case"
        yield StatedProblem("backend", f"the stack's job_prefix is {prefix!r}", remedy, allowed)


def _unused_sections(spec: SpecFields, parts: Iterable[ClusterPart]) -> Iterator[Problem]:
    remedy = "set backend: hyperpod, or leave it out"
    statement = "set, and these ranks run as training jobs"
    if spec.hyperpod is not None and not any(part.on_cluster for part in parts):
        yield StatedProblem("hyperpod", "set, and no rank has backend: hyperpod", remedy)
    for part in parts:
        if part.override is not None and part.override.hyperpod is not None and not part.on_cluster:
            yield StatedProblem(f"overrides.{part.ranks}.hyperpod", statement, remedy)


def _name_problems(spec: SpecFields) -> Iterator[Problem]:
    for field in ("name", "resume_from"):
        value = getattr(spec, field)
        if value is not None and value != value.lower():
            allowed = "replicas on a cluster are named after it: lower-case letters, digits and hyphens"
            yield Problem(field, repr(value), "write it in lower case", allowed)


def _job_fields(spec: SpecFields) -> Iterator[Problem]:
    for field, remedy in _TRAINING_JOB_FIELDS.items():
        if getattr(spec, field) not in (None, False, []):
            yield StatedProblem(field, "set, and all ranks run on a cluster", remedy, _JOBS_ALONE)
    if spec.output_data_config.kms_key_id is not None:
        remedy = "leave it out: what pods write has the key of the bucket"
        statement = "set, and all ranks run on a cluster"
        yield StatedProblem("output_data_config.kms_key_id", statement, remedy, _JOBS_ALONE)


def _of_jobs(field: str, remedy: str, allowed: str = _JOBS_ALONE) -> Problem:
    """The problem of a field that is set for ranks on a cluster, whose jobs do not have it, or not in this way."""
    return StatedProblem(field, "set for ranks that run on a cluster", remedy, allowed)


def _override_fields(part: ClusterPart) -> Iterator[Problem]:
    for field in _OVERRIDE_FIELDS:
        if part.override is not None and getattr(part.override, field) not in (None, False):
            yield _of_jobs(f"overrides.{part.ranks}.{field}", _TRAINING_JOB_FIELDS[field])


def _section_problems(part: ClusterPart) -> Iterator[Problem]:
    """Problems inside `hyperpod`, and between it and the instances."""
    asked, where = part.asked, part.section
    if part.spec.instance_preferences is not None:
        yield _of_jobs("instance_preferences", "set instance_type, and fallback_instance_types for more")
    else:
        yield from resource_problems(asked, part.spec.instance_types, where)
    if asked.partition is not None and (part.spec.instance_count > 1 or asked.elastic is not None):
        remedy = "leave it out, or set instance_count: 1 without elastic"
        yield StatedProblem(f"{where}.partition", "parts of GPUs do not talk to those of other nodes", remedy)
    yield from fragment_problems(asked, where)
    if asked.elastic is not None:
        yield from _elastic_problems(asked.elastic, part.spec.instance_count, f"{where}.elastic")
    yield from _log_rule_problems(asked.log_rules, f"{where}.log_rules")
    yield from _volume_problems(asked.volumes, f"{where}.volumes")
    for key in _OWN_LABELS:
        if key in asked.node_labels:
            remedy = "set instance_type" if key == _OWN_LABELS[0] else "set deep_health_checks"
            yield StatedProblem(f"{where}.node_labels.{key}", "Muster sets this label itself", remedy)
    restarts = asked.restarts
    if restarts.before_full_restart is not None and restarts.before_full_restart > restarts.max_retries:
        allowed = f"at most max_retries ({restarts.max_retries})"
        field = f"{where}.restarts.before_full_restart"
        yield Problem(field, str(restarts.before_full_restart), "lower it, or raise max_retries", allowed)


def _elastic_problems(elastic: Elastic, count: int, where: str) -> Iterator[Problem]:
    least, most = elastic.min_instances, elastic.max_instances
    if most < least:
        yield Problem(f"{where}.max_instances", str(most), "raise it", f"at least min_instances ({least})")
        return
    if elastic.step is not None and elastic.counts is not None:
        yield StatedProblem(f"{where}.counts", "set together with step", "leave one of the two out")
        return
    if elastic.counts is None:
        step = elastic.step or 1
        possible = set(range(least, most + 1, step))
        words = f"min_instances ({least})" if step == 1 else f"min_instances ({least}) and a number of steps of {step}"
        if most not in possible:
            yield Problem(f"{where}.max_instances", str(most), "change it, or step", f"{words} more")
    else:
        possible = set(elastic.counts)
        listed = ", ".join(map(str, elastic.counts))
        words = f"one of counts ({listed})"
        if elastic.counts != sorted(possible):
            yield Problem(f"{where}.counts", listed, "sort them", "each count once, in ascending order")
        outside = [str(value) for value in elastic.counts if not least <= value <= most]
        if outside:
            allowed = f"from min_instances ({least}) to max_instances ({most})"
            yield Problem(f"{where}.counts", ", ".join(outside), "leave it out, or change the bounds", allowed)
        for field, bound in (("min_instances", least), ("max_instances", most)):
            if bound not in possible:
                yield Problem(f"{where}.{field}", str(bound), "change it, or add it to counts", words)
    if not least <= count <= most:
        allowed = f"from {where}.min_instances ({least}) to max_instances ({most}): what the replica starts with"
        yield Problem("instance_count", str(count), "change it, or the bounds", allowed)
    elif count not in possible:
        yield Problem("instance_count", str(count), "change it, or the steps", f"{words}, in {where}")


def _log_rule_problems(rules: list[LogRule], where: str) -> Iterator[Problem]:
    for name, number in Counter(rule.name for rule in rules).items():
        if number > 1:
            yield Problem(where, f"{number} rules named {name!r}", "rename all but one", "names must be unique")
    for index, rule in enumerate(rules):
        place = f"{where}.{index}"
        if (rule.threshold is None) != (rule.operator is None):
            there, missing = ("threshold", "operator") if rule.operator is None else ("operator", "threshold")
            yield StatedProblem(f"{place}.{missing}", f"missing beside {there}", f"set both, or leave {there} out")
        if rule.threshold is None and rule.start_within_seconds is None and rule.every_seconds is None:
            remedy = "set start_within_seconds, every_seconds, or threshold and operator"
            yield StatedProblem(place, "the rule finds nothing", remedy)
        groups = None
        for field, text in (("pattern", rule.pattern), ("stop_pattern", rule.stop_pattern)):
            try:
                compiled = None if text is None else re.compile(text)
            except re.error as error:
                yield Problem(f"{place}.{field}", repr(text), "correct it", f"not a valid regular expression: {error}")
            else:
                groups = compiled.groups if field == "pattern" and compiled is not None else groups
        if rule.threshold is not None and groups is not None and groups != 1:
            allowed = "with threshold exactly one group, which is the metric"
            yield Problem(f"{place}.pattern", f"{groups} groups", "put the number in ( )", allowed)


def _volume_problems(volumes: list[Volume], where: str) -> Iterator[Problem]:
    names, paths = Counter(volume.name for volume in volumes), Counter(volume.mount_path for volume in volumes)
    for field, counts in (("name", names), ("mount_path", paths)):
        for value, number in counts.items():
            if number > 1:
                yield Problem(where, f"{number} volumes with the {field} {value}", "change all but one")
    for index, volume in enumerate(volumes):
        place = f"{where}.{index}"
        sources = sum(bool(source) for source in (volume.claim, volume.host_path, volume.source))
        if sources != 1:
            statement = f"{sources} sources are set" if sources else "no source is set"
            yield StatedProblem(place, statement, "set one of claim, host_path and source")
        if volume.name in (MEMORY_VOLUME, TREE_VOLUME):
            yield Problem(f"{place}.name", repr(volume.name), "rename it", "Muster has a volume of this name")
        steps = {field for field in ("mount_path", "host_path") if ".." in str(getattr(volume, field)).split("/")}
        for field in sorted(steps):
            allowed = "an absolute path without .."
            yield Problem(f"{place}.{field}", repr(getattr(volume, field)), "write where it leads", allowed)
        if ":" in volume.mount_path:
            allowed = "Kubernetes takes no colon in it"
            yield Problem(f"{place}.mount_path", repr(volume.mount_path), "choose another path", allowed)
        # normpath keeps two slashes at the beginning.
        path = "/" + posixpath.normpath(volume.mount_path).lstrip("/")
        own = next((own for own in OWN_PATHS if own == path or own.startswith(f"{path.rstrip('/')}/")), None)
        if own is not None and "mount_path" not in steps:
            yield Problem(f"{place}.mount_path", repr(volume.mount_path), "choose another path", f"it hides {own}")


def _program_problems(part: ClusterPart) -> Iterator[Problem]:
    """What the first process of a pod cannot run or give to the program."""
    spec = part.spec
    if spec.algorithm_name is not None:
        yield _of_jobs("algorithm_name", "set image and entrypoint, or a trainer")
    elif not spec.has_trainer and spec.entrypoint is None and spec.recipe is not None:
        remedy = "write the program of the image in entrypoint"
        allowed = "the first process of a pod is Muster's, which cannot know the image's own program"
        yield StatedProblem("entrypoint", "missing for ranks that run on a cluster", remedy, allowed)
    if spec.model_package_config is not None:
        yield _of_jobs("model_package_config", "leave these ranks to training jobs")
    checkpoints = spec.checkpoint_config
    for field, value in (("s3_uri", checkpoints.s3_uri), ("local_path", checkpoints.local_path)):
        if value is not None:
            allowed = f"a pod keeps {DEFAULT_BASE_DIR}/checkpoints in the run's prefix of the bucket"
            yield _of_jobs(f"checkpoint_config.{field}", "leave it out", allowed)
    if spec.output_data_config.compression_type == "NONE":
        yield _of_jobs("output_data_config.compression_type", "leave it out: a pod's model is an archive")
    for name in OWN_VARIABLES:
        if name in spec.environment:
            remedy = "choose another name"
            yield StatedProblem(f"{_variable_field(part, name)}.{name}", "Muster sets this in every pod", remedy)
    size = len(canonical_json([spec.hyper_parameters, spec.entrypoint, spec.arguments, _uris(spec.input_data_config)]))
    if size > POD_WORK_BYTES_MAX - _WORK_RESERVE:
        allowed = (
            f"at most {POD_WORK_BYTES_MAX - _WORK_RESERVE:,} together with the program and the channels, on a cluster"
        )
        remedy = "keep long values in kwargs, or in an object in S3"
        yield Problem("hyper_parameters", f"{size:,} bytes", remedy, allowed)


def _variable_field(part: ClusterPart, name: str) -> str:
    own = part.override is not None and name in part.override.environment
    return f"overrides.{part.ranks}.environment" if own else "environment"


def _uris(channels: Iterable[Channel]) -> list[Mapping[str, str]]:
    sources = ((item.channel_name, item.data_source.s3_data_source) for item in channels)
    return [{"name": name, "uri": "" if source is None else source.s3_uri} for name, source in sources]


def _channel_problems(part: ClusterPart) -> Iterator[Problem]:
    """What the first process of a pod copies: the objects below a prefix, before the program starts."""
    own = [] if part.override is None else part.override.input_data_config
    replaced = {channel.channel_name for channel in own}
    base = part.spec.training_input_mode
    places = [
        *(
            (f"input_data_config.{index}", channel)
            for index, channel in enumerate(part.run.input_data_config)
            if channel.channel_name not in replaced
        ),
        *((f"overrides.{part.ranks}.input_data_config.{index}", channel) for index, channel in enumerate(own)),
    ]
    for where, channel in places:
        mode, source = channel.input_mode or base, channel.data_source.s3_data_source
        if channel.data_source.file_system_data_source is not None:
            yield _of_jobs(f"{where}.data_source.file_system_data_source", "mount it with hyperpod.volumes")
            continue
        if mode != "File":
            field = f"{where}.input_mode" if channel.input_mode is not None else "training_input_mode"
            remedy = "write File, or mount the data with hyperpod.volumes"
            yield Problem(field, repr(mode), remedy, "on a cluster channels are copied before the program starts")
        if source is not None and source.s3_data_type != "S3Prefix":
            field = f"{where}.data_source.s3_data_source.s3_data_type"
            yield Problem(field, repr(source.s3_data_type), "write S3Prefix", _JOBS_ALONE)
        for name in ("model_access_config", "hub_access_config"):
            if source is not None and getattr(source, name) is not None:
                remedy = "copy the model to a bucket that the pods can read, and name it there"
                yield _of_jobs(f"{where}.data_source.s3_data_source.{name}", remedy)
        if channel.shuffle_config is not None:
            yield _of_jobs(f"{where}.shuffle_config", "leave it out", "")


OFFER = BackendRules(cluster_problems, launch_name_problems, place_problems, placed)
