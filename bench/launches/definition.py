"""The workflow's definition as it is deployed, and its parts that the models step through."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from muster.infra.workflow.workflow_definition import armed_definition

_FILE = Path(__file__).resolve().parents[2] / "statemachine" / "run.asl.json"


def definition(rearm_seconds: int) -> dict[str, Any]:
    """The whole definition."""
    return dict(armed_definition(_FILE, rearm_seconds))


def replica_machine(rearm_seconds: int) -> dict[str, Any]:
    """The child workflow of one replica."""
    machine: dict[str, Any] = definition(rearm_seconds)["States"]["Train the replicas"]["ItemProcessor"]
    return machine
