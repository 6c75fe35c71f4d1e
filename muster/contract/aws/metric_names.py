"""Muster's own metrics that the stack's alarms and its dashboard read."""

from __future__ import annotations

NAMESPACE = "Muster"
SERVICE = "service"
"""The dimension of every metric: who counts. Powertools calls it so.

Its value is the stack's job prefix where several functions count into one series, because an alarm reads one series. No
two stacks of an account have the same job prefix.
"""

REPLICA_LAUNCHED = "ReplicaLaunched"
RERUNS_WITHIN_HOUR = "RerunsWithinHour"
"""One value for each rerun: how many reruns its replica has had within an hour."""


def function_service(job_prefix: str, name: str) -> str:
    """The value of the dimension for what the function `name` alone counts."""
    return f"{job_prefix}-{name}"
