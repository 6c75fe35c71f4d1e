"""Jobs on HyperPod clusters as a backend of the client. What a call needs is imported when it is called."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from muster.client.backend_offers import ClientBackend
from muster.contract.backend import Backend

if TYPE_CHECKING:
    from muster.client.aws.cloud import Cloud
    from muster.client.aws.reported import Execution
    from muster.contract.run.plan import Plan
    from muster.contract.spec.spec import Spec
    from muster.options.hyperpod.client.cluster_logs import ClusterLogs


def _logs(cloud: Cloud, execution: Execution, ranks: Collection[int] | None) -> ClusterLogs:
    from muster.options.hyperpod.client.cluster_logs import ClusterLogs  # noqa: PLC0415

    return ClusterLogs.of_run(cloud, execution, ranks)


def _attempt_logs(cloud: Cloud, run: str, rank: int, cluster: str) -> ClusterLogs:
    from muster.options.hyperpod.client.cluster_logs import ClusterLogs  # noqa: PLC0415

    return ClusterLogs(cloud, run, {rank: cluster}, are_all=True)


def _request(plan: Plan, rank: int) -> dict[str, JsonValue]:
    from muster.options.hyperpod.contract.job_document import drafted_job  # noqa: PLC0415

    return drafted_job(plan, rank, attempt=1)


def _remarks(ranks: Iterable[Spec]) -> list[str]:
    """What the cost of replicas on clusters means, and what asks Kueue for something without a queue of Kueue's."""
    asked = [spec.hyperpod for spec in ranks if spec.backend is Backend.HYPERPOD]
    if not asked:
        return []
    words = "the instances of a cluster are paid for whether a job runs on them or not: the cost counts the hours for"
    paid = f"{words} which the run holds them, at the price of a training job"
    fields = [
        f"hyperpod.{field}"
        for field in ("priority", "topology")
        if any(one is not None and one.queue is None and getattr(one, field) is not None for one in asked)
    ]
    if not fields:
        return [paid]
    verb = "has" if len(fields) == 1 else "have"
    words = f"{' and '.join(fields)} {verb} no effect without hyperpod.queue"
    return [paid, f"{words}, unless the cluster gives jobs a queue by default"]


def _shortened() -> Mapping[str, str]:
    from muster.options.hyperpod.contract.pod_bootstrap import POD_COMMAND  # noqa: PLC0415

    # The program that starts Muster in a pod.
    return {POD_COMMAND[-1]: "<Muster's bootstrap: muster plan --json shows it>"}


OFFER = ClientBackend(Backend.HYPERPOD, _logs, _attempt_logs, _request, _remarks, _shortened)
