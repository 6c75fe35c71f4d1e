"""Turns a TorchX application and its run options into a spec. Pure, and without TorchX's own types."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from muster.client.launch.changes import read_changes, with_changes
from muster.contract import names
from muster.contract.backend import Backend
from muster.contract.errors import MusterError
from muster.contract.spec.private_values import kind_of, shown
from muster.contract.spec.spec_fields import ENVIRONMENT_MAX
from muster.contract.spec.spec_problems import field_name
from muster.contract.spec.spec_reader import parse_spec
from muster.options.torchx.client.command import SHELL, program_of, shell_arguments
from muster.options.torchx.client.options import REFUSED

Fields = dict[str, Any]
"""Options, or fields of a spec, as a user writes them: `parse_spec` checks them."""

TAG_ROLE = "torchx:role"
_VALUE_MAX = 512  # CreateTrainingJob: a value of Environment
_SUFFIX_BYTES = 4


class OptionsError(MusterError):
    """Run options that Muster cannot follow, or that contradict each other."""


@dataclass(frozen=True)
class Mount:
    """A mount of a role: a path of the host, or a volume, which is a claim in Kubernetes."""

    target: str
    host_path: str | None = None
    claim: str | None = None
    read_only: bool = False


@dataclass(frozen=True)
class Application:
    """An AppDef with one role. Its macros are filled in, except the rank."""

    name: str
    role: str
    image: str
    entrypoint: str
    arguments: tuple[str, ...]
    replicas: int
    source: str | None = None
    """The folder of the workspace."""
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    min_replicas: int | None = None
    max_retries: int = 0
    each_replica: bool = False
    """Whether a retry replaces the replica that failed (REPLICA), rather than the application (APPLICATION, ROLE)."""
    instance_type: str | None = None
    mounts: tuple[Mount, ...] = ()


def new_run_name(application: str, base: str | None, backend: str | None = None) -> str:
    """A new name that begins like `base`, else like the application; lower-case for jobs on a cluster."""
    head = base or application
    head = head.lower() if backend == Backend.HYPERPOD.value else head
    return names.fresh_run_name(head, secrets.token_hex(_SUFFIX_BYTES))


def document_of(name: str, application: Application, options: Fields, further: Fields) -> Fields:
    """The document of a run's spec. Its recipe is named as the user does it: the launch resolves it.

    The options and the application override `further`, other fields of a spec; the option `set` overrides all of them.

    Raises:
        OptionsError: an option asks for something that Muster does not do.
        SpecError: the rest of the spec has problems, all of which are listed.
    """
    asked = _asked(name, application, options, further)
    recipe = asked.pop("recipe", None)
    document = parse_spec(asked).model_dump(mode="json", exclude_unset=True)
    return document if recipe is None else {**document, "recipe": recipe}


def _asked(name: str, application: Application, options: Fields, further: Fields) -> Fields:
    """The same, not validated yet."""
    given = {key: value for key, value in options.items() if value is not None}
    further = _mergeable(further)
    for key, remedy in REFUSED.items():
        if given.get(key):
            message = f"{key}: found {shown(given[key])}; {remedy}."
            raise OptionsError(message)
    if given.get("debugger_hook_config"):
        message = "debugger_hook_config: found True; set debug_hook_config in the file of the option spec."
        raise OptionsError(message)
    if given.get("model_channel_name") and not given.get("model_uri"):
        message = (
            f"model_channel_name: found {shown(given['model_channel_name'])} without model_uri; "
            "name the model in model_uri, or leave it out."
        )
        raise OptionsError(message)
    document = {
        **({} if application.source is None else {"source_dir": application.source}),
        **further,
        **_plain_fields(given),
        **_sections(given, further, application.mounts),
        **_failure_policy(application, given),
        "name": name,
        "replicas": _replicas(application, given),
        "tags": _tags(application, given, further),
        **_program(application, given, {**further.get("environment", {}), **given.get("environment", {})}),
    }
    if application.image:
        document["image"] = application.image
    instance_type = given.get("instance_type") or further.get("instance_type") or application.instance_type
    if instance_type:
        document["instance_type"] = instance_type
    if given.get("recipe"):
        document["recipe"] = given["recipe"]
    return with_changes(document, read_changes(f"{path}={value}" for path, value in given.get("set", {}).items()))


_PLAIN = {
    "role": "role_arn",
    "keep_alive_period_in_seconds": "keep_alive_period_in_seconds",
    "volume_size": "volume_gb",
    "volume_kms_key": "volume_kms_key_id",
    "max_run": "max_runtime_seconds",
    "input_mode": "training_input_mode",
    "encrypt_inter_container_traffic": "enable_inter_container_traffic_encryption",
    "use_spot_instances": "spot",
    "max_wait": "max_wait_seconds",
    "enable_sagemaker_metrics": "enable_sage_maker_metrics_time_series",
    "enable_network_isolation": "enable_network_isolation",
    "source_dir": "source_dir",
    "checkpoint_uri_exact": "checkpoint_uri_exact",
    "fallback_instance_types": "fallback_instance_types",
    "max_pending_seconds": "max_pending_seconds",
    "backend": "backend",
}
# Options that are one member of a section: (section, member).
_MEMBERS = {
    "output_path": ("output_data_config", "s3_output_path"),
    "output_kms_key": ("output_data_config", "kms_key_id"),
    "subnets": ("vpc_config", "subnets"),
    "security_group_ids": ("vpc_config", "security_group_ids"),
    "checkpoint_s3_uri": ("checkpoint_config", "s3_uri"),
    "checkpoint_local_path": ("checkpoint_config", "local_path"),
    "disable_profiler": ("profiler_config", "disable_profiler"),
    "max_retry_attempts": ("retry_strategy", "maximum_retry_attempts"),
    "training_repository_access_mode": ("training_image_config", "training_repository_access_mode"),
    "enable_infra_check": ("infra_check_config", "enable_infra_check"),
    **{name: ("hyperpod", name) for name in ("cluster", "namespace", "queue", "priority", "spares", "service_account")},
}


# The sections that options and the application add to, so they must have these types in the file.
_MAPPINGS = {"environment", "tags", "hyper_parameters", *(section for section, _ in _MEMBERS.values())}
_LISTS = {"metric_definitions", "input_data_config"}


def _mergeable(further: Fields) -> Fields:
    """`further` without its empty fields.

    Raises:
        OptionsError: a section has the wrong type.
    """
    found = {name: value for name, value in further.items() if value is not None}
    for names_, kind, word in ((_MAPPINGS, Mapping, "a mapping"), (_LISTS, list, "a list")):
        for name in sorted(names_ & found.keys()):
            if not isinstance(found[name], kind):
                message = f"spec: {name}: found {kind_of(found[name])}; write {word}."
                raise OptionsError(message)
    for name, value in found.get("environment", {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            message = f"spec: {field_name(('environment', name))}: found {kind_of(value)}; write a string, in quotes."
            raise OptionsError(message)
    return found


def _plain_fields(given: Fields) -> Fields:
    return {spec_field: given[option] for option, spec_field in _PLAIN.items() if option in given}


def _sections(given: Fields, further: Fields, mounts: Sequence[Mount]) -> Fields:
    found: Fields = {}

    def section(name: str) -> Fields:
        return found.setdefault(name, dict(further.get(name) or {}))  # type: ignore[no-any-return]

    for option, (name, member) in _MEMBERS.items():
        if option in given:
            section(name)[member] = given[option]
    if mounts:
        _refuse_mounts(mounts, given.get("backend") or further.get("backend"))
        volumes = section("hyperpod").get("volumes") or []
        section("hyperpod")["volumes"] = [*volumes, *(_volume(number, one) for number, one in enumerate(mounts))]
    if given.get("disable_output_compression"):
        section("output_data_config")["compression_type"] = "NONE"
    if "training_repository_credentials_provider_arn" in given:
        login = {"training_repository_credentials_provider_arn": given["training_repository_credentials_provider_arn"]}
        section("training_image_config")["training_repository_auth_config"] = login
    if "hyperparameters" in given or "container_log_level" in given:
        section("hyper_parameters").update(given.get("hyperparameters", {}))
        if "container_log_level" in given:
            section("hyper_parameters")["sagemaker_container_log_level"] = str(given["container_log_level"])
    if "metric_definitions" in given:
        metrics = [{"name": name, "regex": regex} for name, regex in given["metric_definitions"].items()]
        found["metric_definitions"] = [*further.get("metric_definitions", []), *metrics]
    if "model_uri" in given:
        model = {
            "channel_name": given.get("model_channel_name") or "model",
            "data_source": {"s3_data_source": {"s3_uri": given["model_uri"]}},
            "input_mode": "File",
        }
        found["input_data_config"] = [*further.get("input_data_config", []), model]
    return found


def _refuse_mounts(mounts: Sequence[Mount], backend: object) -> None:
    """Only pods have mounts, of two of TorchX's kinds."""
    devices = [mount.target for mount in mounts if mount.host_path is None and mount.claim is None]
    if backend == Backend.HYPERPOD.value and not devices:
        return
    if backend == Backend.HYPERPOD.value:
        message = f"mounts: found the device {devices[0]}; on a cluster, mount volumes and paths of the node."
        raise OptionsError(message)
    found = ", ".join(mount.target for mount in mounts)
    message = (
        f"mounts: found {found}; a training job reads its data from channels: "
        "set input_data_config in the file of the option spec, or run on a cluster (backend=hyperpod)."
    )
    raise OptionsError(message)


def _volume(number: int, mount: Mount) -> Fields:
    source = {"claim": mount.claim} if mount.claim is not None else {"host_path": mount.host_path}
    return {"name": f"mount-{number}", "mount_path": mount.target, "read_only": mount.read_only, **source}


def _failure_policy(application: Application, given: Fields) -> Fields:
    policy: Fields = {}
    if application.min_replicas is not None and application.min_replicas < application.replicas:
        policy |= {"min_replicas": application.min_replicas, "on_replica_failure": "continue"}
    if "on_replica_failure" in given:
        policy["on_replica_failure"] = given["on_replica_failure"]
    if application.max_retries > 0 and application.each_replica:
        # The failures that the user's code may have caused; the other classes keep their default budgets.
        budget = {"max_reruns": application.max_retries}
        policy["reruns"] = {"user-code": budget, "unknown": budget, "timeout": budget}
    elif application.max_retries > 0:
        policy["continue"] = {"on": ["failed"], "max": min(application.max_retries, names.CONTINUATIONS_MAX)}
    return policy


def _replicas(application: Application, given: Fields) -> int:
    asked = int(given.get("instance_count", application.replicas))
    if asked < 1 and "instance_count" in given:
        message = f"instance_count: found {asked}; at least 1."
        raise OptionsError(message)
    if application.replicas not in {1, asked} and asked != 1:
        message = (
            f"instance_count: found {asked}, but the component has {application.replicas} replicas; "
            "leave instance_count out."
        )
        raise OptionsError(message)
    return max(asked, application.replicas)


def _tags(application: Application, given: Fields, further: Fields) -> dict[str, str]:
    user = {"user": given["user"]} if "user" in given else {}
    own = {TAG_ROLE: re.sub(r"[^\w .:/=+\-@]", "_", application.role)[:256]}
    return {**further.get("tags", {}), **application.tags, **given.get("tags", {}), **user, **own}


def _program(application: Application, given: Fields, environment: Mapping[str, str]) -> Fields:
    together = {**environment, **application.environment}
    # CreateTrainingJob's Environment cannot hold the rank, long values or line breaks: the shell sets those.
    plain = {name: value for name, value in together.items() if _is_plain(value)}
    if len(plain) > ENVIRONMENT_MAX:
        plain = {}
    exported = {name: value for name, value in together.items() if name not in plain}
    arguments = shell_arguments(command_of(application, given), exported)
    return {"entrypoint": SHELL, "arguments": arguments, "environment": plain}


def command_of(application: Application, given: Fields) -> list[str]:
    """What the container runs, by the role and the options.

    Raises:
        CommandError: it is no program.
    """
    named = given.get("hyperparameters") or {}
    return program_of(application.entrypoint, application.arguments, named, given.get("torchrun"))


def _is_plain(value: str) -> bool:
    return len(value) <= _VALUE_MAX and value.isprintable() and "\ue000" not in value
