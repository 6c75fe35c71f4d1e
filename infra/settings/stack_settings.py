"""What a deployment chooses: the context keys of the CDK app, validated before anything is made."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from infra.settings.replica_defaults import read_defaults, refused
from infra.settings.scheduled_runs import ScheduledRun, read_schedules
from muster.contract.names import PREFIX_MAX
from muster.contract.spec.stack_defaults import StackDefaults

STACK_NAME = "Muster"
LOCAL_IMAGE = "muster-local/python"  # the only image of the embedded cloud

_Default = TypeVar("_Default")
_Value = TypeVar("_Value")


class Platform(StrEnum):
    """Where the functions run."""

    AWS = "aws"
    LOCAL = "local"


# CloudWatch Logs: PutRetentionPolicy takes these numbers of days and no others.
LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
# Step Functions: an execution has at most 25,000 history events. A re-arming takes 6 of them, and an execution may last
# a year (31,536,000 s): with a shorter period a long run would exceed that limit. Local runs are short.
REARM_SECONDS_MIN = {Platform.AWS: 7_600, Platform.LOCAL: 5}
REARM_SECONDS_MAX = 31_536_000  # Step Functions: a Standard execution lasts at most a year
SWEEP_HOURS_MAX = 168  # the sweep looks a week back (muster.contract.run.orphans)
CONCURRENT_REPLICAS_MAX = 1_000_000  # far above any account's quota; leave the key out for no limit
LAUNCHES_PER_SECOND_MAX = 1_000  # above any rate at which SageMaker takes CreateTrainingJob


@dataclass(frozen=True)
class StackSettings:
    """The choices of a deployment.

    `job_prefix` begins the names of all training jobs; `defaults` are for what specs leave out; `replica_role_arn` is a
    role for the replicas instead of the stack's own; `bucket_name` names the stack's bucket. `rearm_seconds` is how
    long an attempt waits for an event of its job before it checks the job itself. `sweep_hours` is the time between two
    sweeps, 0 for none. `schedules` start runs regularly. `notify_email` gets a mail at the end of each run.
    `launches_per_second` is the rate at which the account may call CreateTrainingJob, which SageMaker does not publish.
    `max_concurrent_replicas` limits the replicas of all runs together; runs beyond it wait in the run queue.
    `health_alarms` and `dashboard` are CloudWatch's, which charges accounts that have many.
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
        default, context = cls(), _Context(read)
        target = context.get("target", default.target, _platform, f"one of {', '.join(Platform)}")
        defaults, role_arn = read_defaults(read)
        days = ", ".join(map(str, LOG_RETENTION_DAYS))
        return cls(
            job_prefix=context.get(
                "job_prefix",
                default.job_prefix,
                _matching(rf"[a-zA-Z0-9]{{1,{PREFIX_MAX}}}"),
                f"1 to {PREFIX_MAX} letters and digits",
            ),
            defaults=defaults,
            replica_role_arn=role_arn,
            bucket_name=context.get(
                "bucket_name",
                default.bucket_name,
                _matching(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"),
                "a new bucket's name: 3 to 63 lower-case letters, digits and hyphens",
            ),
            target=target,
            rearm_seconds=context.whole(
                "rearm_seconds", default.rearm_seconds, REARM_SECONDS_MIN[target], REARM_SECONDS_MAX
            ),
            log_retention_days=context.get(
                "log_retention_days", default.log_retention_days, _retention_days, f"one of {days}"
            ),
            schedules=read_schedules(read("schedules")),
            notify_email=context.get(
                "notify_email",
                default.notify_email,
                _matching(r"[^@\s]{1,64}@[^@\s]{1,189}"),
                "one address, like team@example.com",
            ),
            sweep_hours=context.whole("sweep_hours", default.sweep_hours, 0, SWEEP_HOURS_MAX, " (never)"),
            launches_per_second=context.whole(
                "launches_per_second", default.launches_per_second, 1, LAUNCHES_PER_SECOND_MAX
            ),
            max_concurrent_replicas=context.whole(
                "max_concurrent_replicas", default.max_concurrent_replicas, 1, CONCURRENT_REPLICAS_MAX
            ),
            health_alarms=context.get("health_alarms", default.health_alarms, _switch, "true or false"),
            dashboard=context.get("dashboard", default.dashboard, _switch, "true or false"),
        )


class _Context:
    """Reads context keys, each of which has a default and a converter."""

    def __init__(self, read: Callable[[str], object]) -> None:
        self._read = read

    def get(
        self, key: str, default: _Default, convert: Callable[[object], _Value | None], allowed: str
    ) -> _Default | _Value:
        """The value of `key`; `convert` returns None for a value that is not allowed."""
        value = self._read(key)
        if value is None:
            return default
        converted = convert(value)
        if converted is None:
            raise refused(value, key, allowed)
        return converted

    def whole(self, key: str, default: _Default, least: int, most: int, meaning: str = "") -> _Default | int:
        """A whole number; `meaning` is what the least of them stands for."""

        def convert(value: object) -> int | None:
            number = _whole_number(value)
            return number if number is not None and least <= number <= most else None

        return self.get(key, default, convert, f"a whole number from {least}{meaning} to {most}")


def _matching(pattern: str) -> Callable[[object], str | None]:
    return lambda value: value if isinstance(value, str) and re.fullmatch(pattern, value) else None


def _platform(value: object) -> Platform | None:
    return next((platform for platform in Platform if platform.value == value), None)


def _retention_days(value: object) -> int | None:
    days = _whole_number(value)
    return days if days in LOG_RETENTION_DAYS else None


def _switch(value: object) -> bool | None:
    # The number 1 equals True and must not be taken for it.
    if not isinstance(value, bool | str):
        return None
    return {True: True, False: False, "true": True, "false": False}.get(value)


def _whole_number(value: object) -> int | None:
    """`value` as a whole number: the command line gives text, cdk.json a number, which jsii turns into a float."""
    if isinstance(value, bool):
        return None
    if isinstance(value, str):
        return int(value) if re.fullmatch(r"\d{1,10}", value) else None
    return int(value) if isinstance(value, int | float) and value == int(value) else None
