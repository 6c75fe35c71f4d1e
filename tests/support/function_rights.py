"""What each function may do with the objects of the stack's bucket, as the table in docs/security.md says.

tests/infra compares the table with the template, whose rights need the CDK. What a stack has only where its settings
ask for it is not in the table: the function of clusters, and what functions may do for places.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

from tests.memory import AwsError, Fault
from tests.memory.calls import Call

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "security.md"
_BUCKET = "s3:bucket"
_PREFIXES = re.compile(r"`s3:prefix StringLikeIfExists ([^`]*)`")
_ACTIONS = {
    "PutObject": "s3:PutObject",
    "GetObject": "s3:GetObject",
    "HeadObject": "s3:GetObject",
    "DeleteObject": "s3:DeleteObject",
    "ListObjectsV2": "s3:ListBucket",
}


@cache
def _rights() -> Mapping[tuple[str, str], list[str]]:
    """The patterns of keys, or of prefixes, by function and action."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split("|")[1:-1]]
        if len(cells) != 4 or f"`{_BUCKET}" not in cells[2]:
            continue
        role, actions, places, conditions = cells
        keys = [place.strip("`").removeprefix(f"{_BUCKET}/") for place in places.split("<br>")]
        for action in actions.split("<br>"):
            prefixes = [text for listed in _PREFIXES.findall(conditions) for text in listed.split(", ")]
            found[role.lower(), action.strip("`")] += prefixes if action == "`s3:ListBucket`" else keys
    return found


def may(function: str, operation: str, parameters: Mapping[str, Any]) -> bool:
    """Whether `function` may make this call of S3. One that is not in the table may make all."""
    if not any(name == function for name, _ in _rights()):
        return True
    key = parameters["Prefix"] if operation == "ListObjectsV2" else parameters["Key"]
    return any(fnmatchcase(key, pattern) for pattern in _rights().get((function, _ACTIONS[operation]), ()))


def rights_of(function: str) -> Fault:
    """S3 refuses what `function` may not do."""
    denied = AwsError("AccessDenied", f"{function} is not authorized", 403)

    def is_beyond(call: Call) -> bool:
        return call.service == "s3" and not may(function, call.operation, call.parameters)

    return Fault("*", denied, when=is_beyond, count=None)
