"""The warm pools that the jobs of a run keep: instances without a job, which are billed."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from pydantic import Field

from muster.contract import timestamps
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.document import Document
from muster.contract.timestamps import Timestamp
from muster.report.figures import dollars
from muster.report.read_back import Attempts, end_pool_command, kept_pools

_SHOWN_MAX = 20  # in a status; each has a line of its own in a result


class KeptInstances(Document):
    """A warm pool that is kept now."""

    rank: int
    attempt: int
    job: str
    instance_type: str | None
    instances: int
    until: Timestamp = Field(description="when it ends, unless a job takes it or it is ended")
    kept_seconds: int | None = Field(description="billed so far, per instance; none where not known")
    usd_per_hour: float | None = Field(description="of all its instances, on demand; none where it has no price")
    end_command: str = Field(description="the command that ends it")


def kept_instances(
    attempts: Attempts, now: datetime, listed: Mapping[str, int | None] | None = None
) -> tuple[KeptInstances, ...]:
    """The pools that are kept at `now`, by rank. Pure.

    `listed` are the jobs that have one, as SageMaker says, with the seconds that it has billed; None: it was not asked,
    and what was known at the end of the jobs counts.
    """
    found = []
    for pool in kept_pools(attempts, now):
        if listed is not None and pool.attempt.job not in listed:
            continue
        found.append(
            KeptInstances(
                rank=pool.rank,
                attempt=pool.attempt.attempt,
                job=pool.attempt.job,
                instance_type=pool.attempt.instance_type,
                instances=pool.instances,
                until=timestamps.text(pool.until),
                kept_seconds=None if listed is None else listed[pool.attempt.job],
                usd_per_hour=pool.usd_per_hour(SHIPPED_PRICES),
                end_command=end_pool_command(pool.attempt.job),
            )
        )
    return tuple(found)


def pool_lines(pools: tuple[KeptInstances, ...]) -> list[str]:
    """A line for each pool, the first ones of many, with what it costs and how to end it."""
    lines = []
    for pool in pools[:_SHOWN_MAX]:
        cost = "" if pool.usd_per_hour is None else f" at {dollars(pool.usd_per_hour)} per hour"
        so_far = "" if pool.kept_seconds is None else f", {pool.kept_seconds:,} s so far"
        until = f"{timestamps.parse(pool.until):%H:%M:%S} UTC"
        kind = f"{pool.instances} {pool.instance_type or 'instances'}"
        lines += [
            f"replica {pool.rank} keeps {kind} warm until {until}, billed{cost}{so_far}; end it now with:",
            f"  {pool.end_command}",
        ]
    if len(pools) > _SHOWN_MAX:
        lines.append(f"and {len(pools) - _SHOWN_MAX} more warm pools: see `muster status --json`")
    return lines
