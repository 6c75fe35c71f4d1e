"""The metrics of Muster's own that the stack's alarms and its dashboard read."""

from __future__ import annotations

NAMESPACE = "Muster"
SERVICE = "service"
"""The dimension of every metric: the function that counts, as Powertools names it."""
STACK_SERVICE = "muster"
"""Its value for what several functions count into one series, because an alarm reads one."""

REPLICA_LAUNCHED = "ReplicaLaunched"
RERUNS_WITHIN_HOUR = "RerunsWithinHour"
"""One value for each rerun: the how manieth of its replica within an hour."""


def function_service(name: str) -> str:
    """The value of the dimension for the function `name`."""
    return f"muster-{name}"
