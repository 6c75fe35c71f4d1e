"""References to secrets in an environment: texts that stand for values which only the container reads.

`secretsmanager:NAME-or-ARN`, with `#key` for one value of a secret that is a JSON object, and `ssm:/path/name` for a
parameter of Systems Manager. Free of dependencies: a container reads this before anything is installed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.contract.spec.spec_fields import SpecFields

ALLOWED = "secretsmanager:NAME, secretsmanager:ARN, each with #key for one value of a JSON object, or ssm:/path/name"
_HEADS = ("secretsmanager:", "ssm:")
# CreateSecret: Name. The ARN ends with a hyphen and six characters that Secrets Manager has added to the name.
_NAME = r"[a-zA-Z0-9/_+=.@!-]{1,512}"
_SECRET_ARN = rf"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:[0-9]{{12}}:secret:{_NAME}-[a-zA-Z0-9]{{6}}"
# PutParameter: Name.
_PARAMETER = r"/?[a-zA-Z0-9_.-]+(/[a-zA-Z0-9_.-]+)*"
SOURCE = rf"(secretsmanager:({_SECRET_ARN}|{_NAME})|ssm:{_PARAMETER})"
"""The pattern of what a reference names as a whole, without a key: so the settings of a stack name it."""


@dataclass(frozen=True)
class SecretReference:
    """What a reference names.

    Attributes:
        service: `secretsmanager` or `ssm`.
        name: the name or the ARN of the secret, or the name of the parameter.
        key: of the secret's JSON object; empty for all of it.
    """

    service: str
    name: str
    key: str = ""

    @property
    def source(self) -> str:
        """The reference without its key."""
        return f"{self.service}:{self.name}"

    @property
    def region(self) -> str:
        """That of an ARN; empty for a name, which is one of the container's region."""
        return self.name.split(":")[3] if self.name.startswith("arn:") else ""


def is_reference(value: str) -> bool:
    """Whether a value of an environment is a reference, right or wrong."""
    return value.startswith(_HEADS)


def read_reference(value: str) -> SecretReference | None:
    """The reference; None if it has another form than `ALLOWED` says."""
    source, _, key = value.partition("#")
    service, _, name = source.partition(":")
    has_key = "#" in value
    if re.fullmatch(SOURCE, source) is None or (has_key and (service == "ssm" or not key)):
        return None
    return SecretReference(service, name, key)


def references(spec: SpecFields) -> dict[str, str]:
    """The references of a spec, right or wrong, by their fields: also those of single ranks."""
    values: dict[str, object] = {f"environment.{name}": value for name, value in spec.environment.items()}
    for ranks, override in spec.overrides.items():
        values |= {f"overrides.{ranks}.environment.{name}": value for name, value in override.environment.items()}
    for name, swept in spec.sweep.items():
        if name.startswith("environment."):
            values |= {f"sweep.{name}.{rank}": value for rank, value in enumerate(swept)}
    return {field: value for field, value in values.items() if isinstance(value, str) and is_reference(value)}
