"""Names of runs for the shell to complete: quickly, or none."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from botocore.config import Config

from muster.client.aws.cloud import Cloud, open_session
from muster.client.aws.deployed_stack import DEFAULT_STACK
from muster.client.runs.run_list import list_runs
from muster.contract.errors import MusterError

_NAMES_MAX = 100  # one call: ListExecutions gives so many at once
# Somebody waits with a finger on the Tab key.
_HASTY = Config(connect_timeout=1, read_timeout=2, retries={"mode": "standard", "total_max_attempts": 1})


def run_names(options: Mapping[str, Any], beginning: str) -> list[str]:
    """The newest runs that begin so, of the stack that `options` of the command line name; none on any trouble."""
    try:
        session = open_session(options.get("profile"), options.get("region"))
        runs = list_runs(Cloud(options.get("stack") or DEFAULT_STACK, session, _HASTY), None, _NAMES_MAX)
    except MusterError:
        return []
    return [run.run for run in runs if run.run.startswith(beginning)]
