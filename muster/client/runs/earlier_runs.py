"""Runs of the stack from whose models another run starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from muster.client.runs.observer import read_result
from muster.contract.layout import RunLayout
from muster.contract.run.model_lookup import EarlierRun, Runs
from muster.contract.run.plan import Plan

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud


def earlier_runs(cloud: Cloud) -> Runs:
    """Looks a run up by its name. The look raises a `muster.ClientError` where AWS cannot be reached."""

    def earlier_run(name: str) -> EarlierRun | None:
        key = RunLayout(name).plan
        body = cloud.objects.read(key)
        return None if body is None else EarlierRun(Plan.from_json(body, key), read_result(cloud, name))

    return earlier_run
