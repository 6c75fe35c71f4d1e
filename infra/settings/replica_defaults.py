"""The defaults that a deployment sets for specs: the context keys `replica_*`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from muster.contract.errors import ConfigurationError, Problem, SpecError
from muster.contract.spec.spec import Spec
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.spec.stack_defaults import StackDefaults

# Lambda: a function's environment has at most 4,096 bytes; a quarter of it is for the other variables.
DEFAULTS_BYTES_MAX = 3_000
# Context key -> the spec's field for which it is the default; it has the same limits.
_FIELDS = {
    "replica_image": "image",
    "replica_instance_type": "instance_type",
    "replica_role_arn": "role_arn",
    "replica_vpc": "vpc_config",
    "replica_kms_key_arn": "volume_kms_key_id",
    "replica_tags": "tags",
}
_JSON_KEYS = ("replica_vpc", "replica_tags")
_KMS_KEY_ARN = re.compile(r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[a-zA-Z0-9-]+")
_SHOWN_MAX = 60


def read_defaults(read: Callable[[str], object]) -> tuple[StackDefaults, str | None]:
    """The defaults that a context gives, and the ARN of a role to use instead of one that the stack makes.

    Raises:
        ConfigurationError: a value cannot be used; the first one, in one line.
    """
    given = {key: _value(key, value) for key in _FIELDS if (value := read(key)) is not None}
    spec = _as_spec(given)
    key = spec.volume_kms_key_id
    if key is not None and not _KMS_KEY_ARN.fullmatch(key):
        # Roles may use this one key, and a policy can name a key by its ARN only.
        allowed = "the key's ARN: arn:aws:kms:region:123456789012:key/id"
        raise refused(key, "replica_kms_key_arn", allowed)
    defaults = StackDefaults(
        image=spec.image, instance_type=spec.instance_type, vpc_config=spec.vpc_config, kms_key_id=key, tags=spec.tags
    )
    size = len(defaults.to_json())
    if size > DEFAULTS_BYTES_MAX:
        allowed = f"all defaults together in {DEFAULTS_BYTES_MAX:,} bytes (they have {size:,}), a limit of Lambda"
        raise refused(spec.tags, "replica_tags", allowed)
    return defaults, spec.role_arn


def refused(value: object, key: str, allowed: str) -> ConfigurationError:
    """The error of a context key, in one line."""
    shown = repr(value) if len(repr(value)) <= _SHOWN_MAX else f"{repr(value)[:_SHOWN_MAX]}…"
    message = f"The context key {key} is {shown}; allowed: {allowed}. Set it with -c {key}=... or in cdk.json."
    return ConfigurationError(message)


def _value(key: str, value: object) -> object:
    """cdk.json gives a mapping as an object, the command line as JSON."""
    if key not in _JSON_KEYS or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise refused(value, key, "a mapping, on the command line as JSON") from None


def _as_spec(given: Mapping[str, object]) -> Spec:
    """A spec that has the defaults as its own fields, so that they are validated like a spec."""
    fields = {_FIELDS[key]: value for key, value in given.items()}
    # An instance type with local disks takes no key. As defaults both are valid: they apply to different replicas.
    apart = {"instance_type": fields.pop("instance_type", None)} if "volume_kms_key_id" in fields else {}
    try:
        spec = _parse(fields)
        return spec.model_copy(update={"instance_type": _parse(apart).instance_type}) if apart else spec
    except SpecError as error:
        raise _translated(error.problems[0], given) from None


def _parse(fields: Mapping[str, object]) -> Spec:
    return parse_spec({"replicas": 1, "entrypoint": ["-"], **{k: v for k, v in fields.items() if v is not None}})


def _translated(problem: Problem, given: Mapping[str, object]) -> ConfigurationError:
    top, _, rest = problem.field.partition(".")
    key = next(key for key, field in _FIELDS.items() if field == top)
    said = "; ".join(part for part in (problem.allowed, problem.remedy) if part)
    return refused(given[key], key, f"{rest}: {said}" if rest else said)
