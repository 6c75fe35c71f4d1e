"""A TorchX application and its run options as a spec. Pure; TorchX's own types stay outside."""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from muster.contract import names
from muster.contract.errors import MusterError
from muster.contract.spec.consistency import ENVIRONMENT_MAX
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.torchx.command import SHELL, of_one_node, shell_arguments
from muster.torchx.options import REFUSED

TAG_ROLE = "torchx:role"
_VALUE_MAX = 512  # CreateTrainingJob: a value of Environment
_SUFFIX_BYTES = 4


class OptionsError(MusterError):
    """Run options that cannot be had together, or not at all."""


@dataclass(frozen=True)
class Application:
    """What an AppDef with its one role says, macros filled in but for the rank."""

    name: str
    role: str
    image: str
    command: tuple[str, ...]
    replicas: int
    environment: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)
    min_replicas: int | None = None
    max_retries: int = 0
    each_replica: bool = False
    """Whether a retry replaces the replica that failed (REPLICA), rather than the application (APPLICATION, ROLE)."""
    instance_type: str | None = None


def run_name(application: str, base: str | None) -> str:
    """A new name that begins like `base`, else like the application."""
    suffix = secrets.token_hex(_SUFFIX_BYTES)
    head = re.sub("[^a-zA-Z0-9]+", "-", base or application)[: names.RUN_MAX - len(suffix) - 1].strip("-")
    return f"{head or 'app'}-{suffix}"


def spec_of(name: str, application: Application, options: Mapping[str, Any], further: Mapping[str, Any]) -> Spec:
    """The spec of a run; `further` are fields of a spec that the options and the application go before.

    Raises:
        OptionsError: an option asks for what Muster does not do.
        SpecError: with every problem of the spec at once.
    """
    given = {key: value for key, value in options.items() if value is not None}
    further = _mergeable(further)
    for key, remedy in REFUSED.items():
        if given.get(key):
            message = f"{key}: found {given[key]!r}; {remedy}."
            raise OptionsError(message)
    if given.get("debugger_hook_config"):
        message = "debugger_hook_config: found True; name debug_hook_config in a spec (option spec)."
        raise OptionsError(message)
    document = {
        **further,
        **_plain_fields(given),
        **_sections(given, further),
        **_failure_policy(application, given),
        "name": name,
        "replicas": _replicas(application, given),
        "tags": _tags(application, given, further),
        **_program(application, {**further.get("environment", {}), **given.get("environment", {})}),
    }
    if application.image:
        document["image"] = application.image
    instance_type = given.get("instance_type") or further.get("instance_type") or application.instance_type
    if instance_type:
        document["instance_type"] = instance_type
    return parse_spec(document)


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
    "fallback_instance_types": "fallback_instance_types",
    "max_pending_seconds": "max_pending_seconds",
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
}


# What options and the application add to: of another kind in the file, nothing can be added.
_MAPPINGS = {"environment", "tags", "hyper_parameters", *(section for section, _ in _MEMBERS.values())}
_LISTS = {"metric_definitions", "input_data_config"}


def _mergeable(further: Mapping[str, Any]) -> dict[str, Any]:
    """`further` without what is left empty in it.

    Raises:
        OptionsError: a section of it is of a kind to which nothing can be added.
    """
    found = {name: value for name, value in further.items() if value is not None}
    for names_, kind, word in ((_MAPPINGS, Mapping, "a mapping"), (_LISTS, list, "a list")):
        for name in sorted(names_ & found.keys()):
            if not isinstance(found[name], kind):
                message = f"spec: {name}: found {found[name]!r}; write {word}."
                raise OptionsError(message)
    for name, value in found.get("environment", {}).items():
        if not isinstance(name, str) or not isinstance(value, str):
            message = f"spec: environment.{name}: found {value!r}; write text, in quotes."
            raise OptionsError(message)
    return found


def _plain_fields(given: Mapping[str, Any]) -> dict[str, Any]:
    return {spec_field: given[option] for option, spec_field in _PLAIN.items() if option in given}


def _sections(given: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def section(name: str) -> dict[str, Any]:
        return found.setdefault(name, dict(further.get(name) or {}))  # type: ignore[no-any-return]

    for option, (name, member) in _MEMBERS.items():
        if option in given:
            section(name)[member] = given[option]
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


def _failure_policy(application: Application, given: Mapping[str, Any]) -> dict[str, Any]:
    policy: dict[str, Any] = {}
    if application.min_replicas is not None and application.min_replicas < application.replicas:
        policy |= {"min_replicas": application.min_replicas, "on_replica_failure": "continue"}
    if "on_replica_failure" in given:
        policy["on_replica_failure"] = given["on_replica_failure"]
    if application.max_retries > 0 and application.each_replica:
        # What the user's code may have done; the other classes keep their budgets, which Muster has for them anyway.
        budget = {"max_reruns": application.max_retries}
        policy["reruns"] = {"user-code": budget, "unknown": budget, "timeout": budget}
    elif application.max_retries > 0:
        policy["rerun"] = {"on": ["failed"], "max": min(application.max_retries, names.RERUNS_MAX)}
    return policy


def _replicas(application: Application, given: Mapping[str, Any]) -> int:
    asked = int(given.get("instance_count", application.replicas))
    if application.replicas not in {1, asked} and asked != 1:
        message = (
            f"instance_count: found {asked} beside {application.replicas} replicas; leave it out: "
            "the component's replicas are the run's."
        )
        raise OptionsError(message)
    return max(asked, application.replicas)


def _tags(application: Application, given: Mapping[str, Any], further: Mapping[str, Any]) -> dict[str, str]:
    user = {"user": given["user"]} if "user" in given else {}
    own = {TAG_ROLE: re.sub(r"[^\w .:/=+\-@]", "_", application.role)[:256]}
    return {**further.get("tags", {}), **application.tags, **given.get("tags", {}), **user, **own}


def _program(application: Application, environment: Mapping[str, str]) -> dict[str, Any]:
    together = {**environment, **application.environment}
    # What CreateTrainingJob's Environment cannot hold is set by the shell: the rank, long values, line breaks.
    plain = {name: value for name, value in together.items() if _is_plain(value)}
    if len(plain) > ENVIRONMENT_MAX:
        plain = {}
    exported = {name: value for name, value in together.items() if name not in plain}
    arguments = shell_arguments(of_one_node(application.command), exported)
    return {"entrypoint": SHELL, "arguments": arguments, "environment": plain}


def _is_plain(value: str) -> bool:
    return len(value) <= _VALUE_MAX and value.isprintable() and "\ue000" not in value
