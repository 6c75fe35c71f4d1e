"""What a deployment chooses: the context keys of the CDK app, checked before anything is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum

from infra.replica_defaults import read_defaults, refused
from infra.schedules import ScheduledRun, read_schedules
from muster.contract.names import PREFIX_MAX
from muster.contract.spec.stack_defaults import StackDefaults

STACK_NAME = "Muster"
LOCAL_IMAGE = "muster-local/python"  # the embedded cloud has no other


class Platform(StrEnum):
    """Whose Python runs the functions."""

    AWS = "aws"
    LOCAL = "local"


# CloudWatch Logs: PutRetentionPolicy takes these numbers of days and no others.
LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
# Step Functions: an execution has at most 25,000 history events. A re-arming takes 6 of them, and an execution may last
# a year (31,536,000 s): below this a long run would die of its own history. Local runs are short.
REARM_SECONDS_MIN = {Platform.AWS: 7_600, Platform.LOCAL: 5}
REARM_SECONDS_MAX = 31_536_000  # Step Functions: a Standard execution lives at most a year
SWEEP_HOURS_MAX = 168  # the sweep looks a week back (muster.contract.run.orphans)
CONCURRENT_REPLICAS_MAX = 1_000_000  # far above what an account gets; leave the key out for no cap
LAUNCHES_PER_SECOND_MAX = 1_000  # above any rate at which SageMaker takes CreateTrainingJob


@dataclass(frozen=True)
class StackSettings:
    """The choices of a deployment.

    `rearm_seconds` is how long an attempt waits for its job's event before it looks for itself; `defaults` are for what
    specs leave out, and `replica_role_arn` is a role to run them under instead of the stack's own; `bucket_name` names
    the stack's bucket; `sweep_hours` is the time between two looks for what has outlived its run, 0 for none;
    `schedules` start runs by the clock; `notify_email` is told how runs end; `launches_per_second` is the rate at which
    the account may call CreateTrainingJob, which SageMaker does not publish; `max_concurrent_replicas` caps the
    replicas of all runs together, which then queue up; `health_alarms` and `dashboard` are CloudWatch's, which cost
    something in an account that has many.
    """

    job_prefix: str = "muster"
    defaults: StackDefaults = field(default_factory=StackDefaults)
    replica_role_arn: str | None = None
    bucket_name: str | None = None
    target: Platform = Platform.AWS
    rearm_seconds: int = 21_600
    log_retention_days: int = 90
    sweep_hours: int = 6
    schedules: tuple[ScheduledRun, ...] = ()
    notify_email: str | None = None
    launches_per_second: int = 10
    max_concurrent_replicas: int | None = None
    health_alarms: bool = True
    dashboard: bool = True

    @classmethod
    def from_context(cls, read: Callable[[str], object]) -> StackSettings:
        """The settings that a CDK context gives; `read` returns None for a key that is not set.

        Raises:
            ConfigurationError: a value cannot be used; the first one, in one line.
        """
        default = cls()
        target = _target(read("target"), default.target)
        defaults, role_arn = read_defaults(read)
        return cls(
            job_prefix=_job_prefix(read("job_prefix"), default.job_prefix),
            defaults=defaults,
            replica_role_arn=role_arn,
            bucket_name=_bucket_name(read("bucket_name")),
            target=target,
            rearm_seconds=_rearm_seconds(read("rearm_seconds"), default.rearm_seconds, REARM_SECONDS_MIN[target]),
            log_retention_days=_log_retention_days(read("log_retention_days"), default.log_retention_days),
            schedules=read_schedules(read("schedules")),
            notify_email=_notify_email(read("notify_email")),
            sweep_hours=_sweep_hours(read("sweep_hours"), default.sweep_hours),
            launches_per_second=_launches_per_second(read("launches_per_second"), default.launches_per_second),
            max_concurrent_replicas=_max_concurrent_replicas(read("max_concurrent_replicas")),
            health_alarms=_switch("health_alarms", read("health_alarms"), default=default.health_alarms),
            dashboard=_switch("dashboard", read("dashboard"), default=default.dashboard),
        )


def _job_prefix(value: object, default: str) -> str:
    if value is None:
        return default
    if not isinstance(value, str) or not re.fullmatch(rf"[a-zA-Z0-9]{{1,{PREFIX_MAX}}}", value):
        raise refused(value, "job_prefix", f"1 to {PREFIX_MAX} letters and digits")
    return value


def _bucket_name(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", value):
        raise refused(value, "bucket_name", "a new bucket's name: 3 to 63 lower-case letters, digits and hyphens")
    return value


def _target(value: object, default: Platform) -> Platform:
    if value is None:
        return default
    known = {platform.value: platform for platform in Platform}
    if not isinstance(value, str) or value not in known:
        raise refused(value, "target", f"one of {', '.join(known)}")
    return known[value]


def _rearm_seconds(value: object, default: int, least: int) -> int:
    if value is None:
        return default
    seconds = _whole_number(value)
    if seconds is None or not least <= seconds <= REARM_SECONDS_MAX:
        raise refused(value, "rearm_seconds", f"a whole number from {least} to {REARM_SECONDS_MAX}")
    return seconds


def _log_retention_days(value: object, default: int) -> int:
    if value is None:
        return default
    days = _whole_number(value)
    if days is None or days not in LOG_RETENTION_DAYS:
        raise refused(value, "log_retention_days", f"one of {', '.join(map(str, LOG_RETENTION_DAYS))}")
    return days


def _sweep_hours(value: object, default: int) -> int:
    if value is None:
        return default
    hours = _whole_number(value)
    if hours is None or not 0 <= hours <= SWEEP_HOURS_MAX:
        raise refused(value, "sweep_hours", f"a whole number from 0 (never) to {SWEEP_HOURS_MAX}")
    return hours


def _launches_per_second(value: object, default: int) -> int:
    if value is None:
        return default
    rate = _whole_number(value)
    if rate is None or not 1 <= rate <= LAUNCHES_PER_SECOND_MAX:
        raise refused(value, "launches_per_second", f"a whole number from 1 to {LAUNCHES_PER_SECOND_MAX}")
    return rate


def _max_concurrent_replicas(value: object) -> int | None:
    if value is None:
        return None
    replicas = _whole_number(value)
    if replicas is None or not 1 <= replicas <= CONCURRENT_REPLICAS_MAX:
        raise refused(value, "max_concurrent_replicas", f"a whole number from 1 to {CONCURRENT_REPLICAS_MAX}")
    return replicas


def _notify_email(value: object) -> str | None:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"[^@\s]{1,64}@[^@\s]{1,189}", value):
        raise refused(value, "notify_email", "one address, like team@example.com")
    return value


def _switch(key: str, value: object, *, default: bool) -> bool:
    if value is None:
        return default
    known = {True: True, False: False, "true": True, "false": False}
    # The number 1 would be found as True.
    if not isinstance(value, bool | str) or value not in known:
        raise refused(value, key, "true or false")
    return known[value]


def _whole_number(value: object) -> int | None:
    """`value` as a whole number: the command line gives text, cdk.json a number (jsii turns it into a float)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\d{1,10}", value) else None
    return int(value) if isinstance(value, int | float) and value == int(value) else None
