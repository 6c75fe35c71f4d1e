"""cfn-lint, which reads templates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from muster.infra.gate.finding import Finding
from muster.infra.gate.tools import run_for_json, venv_program

REGIONS = ("us-east-1", "eu-west-1", "us-gov-west-1", "cn-north-1")
"""The regions whose resource types and limits cfn-lint checks: two of the partition aws, one of each of the others."""

# The CDK ends a logical id with a digest of the construct's path.
_DIGEST = re.compile(r"(?<=[a-z0-9])[0-9A-F]{8}$")


def lint(templates: Sequence[Path]) -> list[Finding]:
    """What cfn-lint finds in the templates for all `REGIONS`: resource types, properties, values, and definitions.

    Raises:
        GateError: cfn-lint could not run.
    """
    command = [venv_program("cfn-lint"), "--format", "json", "--regions", *REGIONS, "--template", *map(str, templates)]
    # Its exit code counts the severities: 2 errors, 4 warnings, 8 information.
    return [
        Finding("cfn-lint", item["Rule"]["Id"], _place(item["Location"]["Path"] or []), item["Message"])
        for item in run_for_json(command, expected=range(16))
    ]


def _place(path: list[str | int]) -> str:
    """`Resources`, the logical id and so on as one path."""
    return "/".join(without_digest(str(part)) for part in path)


def without_digest(logical_id: str) -> str:
    """A logical id as the construct's path alone makes it."""
    return _DIGEST.sub("", logical_id)
