"""Muster's own metrics that the stack's alarms and its dashboard read."""

from __future__ import annotations

NAMESPACE = "Muster"
SERVICE = "service"
"""The dimension of every metric: the function that counts. Powertools calls it so."""
STACK_SERVICE = "muster"
"""Its value where several functions count into one series, because an alarm reads one series."""

REPLICA_LAUNCHED = "ReplicaLaunched"
RERUNS_WITHIN_HOUR = "RerunsWithinHour"
"""One value for each rerun: how many reruns its replica has had within an hour."""


def function_service(name: str) -> str:
    """The value of the dimension for the function `name`."""
    return f"muster-{name}"
