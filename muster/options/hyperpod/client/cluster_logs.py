"""Where the lines of a run's pods are: the log groups of its clusters, and what is said where there are none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from muster.client.aws.error_translation import translated
from muster.client.client_errors import NoClusterLogsError
from muster.client.logs.log_lines import LogEvent, LogSource
from muster.contract import timestamps
from muster.contract.layout import RunLayout
from muster.contract.names import CLUSTER_LOG_GROUPS, run_name
from muster.options.hyperpod.contract.pod_log_lines import STREAMS, parse_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.client.aws.cloud import Cloud
    from muster.client.aws.reported import Execution
    from muster.client.logs.log_lines import LogQuery
    from muster.contract.run.attempt import Attempt

# A log agent delivers what it reads within seconds.
_DELIVERED_WITHIN = timedelta(minutes=2)


def log_group(cloud: Cloud, cluster: str) -> str | None:
    """The log group of the HyperPod cluster of this name; None where there is no such cluster."""
    with translated("ResourceNotFound", "ValidationException"):
        found = cloud.connection.sagemaker.describe_cluster(ClusterName=cluster)
        # arn:aws:sagemaker:REGION:ACCOUNT:cluster/ID, with an id that is not the name.
        return f"{CLUSTER_LOG_GROUPS}{cluster}/{found['ClusterArn'].rpartition('/')[2]}"
    return None


def read_pod_line(event: LogEvent) -> LogEvent:
    """An event of a node's stream, with the job and the text of the pod's line."""
    job, text = parse_line(event.message) or ("", "")
    return event._replace(job=job, message=text)


class ClusterLogs:
    """The logs of the replicas of `run` that are on the `asked` clusters."""

    def __init__(self, cloud: Cloud, run: str, asked: Mapping[int, str], *, are_all: bool) -> None:
        """`asked`: the clusters by rank. `are_all`: no training job is asked for."""
        self._cloud, self._run, self._asked = cloud, run, asked
        self.are_all = are_all
        self._groups: list[str] | None = None

    @classmethod
    def of_run(cls, cloud: Cloud, execution: Execution, ranks: Collection[int] | None) -> ClusterLogs:
        """Those of the asked replicas; None: all are."""
        asked = {rank: name for rank, name in execution.clusters.items() if ranks is None or rank in ranks}
        every = range(execution.replicas) if ranks is None else ranks
        are_all = bool(asked) and all(rank in asked for rank in every)
        return cls(cloud, run_name(execution.name), asked, are_all=are_all)

    def sources(self, query: LogQuery) -> Collection[LogSource]:
        """The log groups of the clusters; empty while a spec names none and the run has no plan yet."""
        if self._groups is None:
            names = self._names()
            if names is None:
                return ()
            found = (log_group(self._cloud, name) for name in sorted(names))
            self._groups = sorted({group for group in found if group is not None})
        # FilterLogEvents: a regular expression stands between per cent signs. A line contains the name of its job.
        return [LogSource(group, STREAMS, f"%{query.stream_prefix}%", read_pod_line) for group in self._groups]

    def _names(self) -> set[str] | None:
        if "" not in self._asked.values():
            return set(self._asked.values())
        from muster.contract.run.plan import Plan  # noqa: PLC0415

        body = self._cloud.objects.read(RunLayout(self._run).plan)
        if body is None:
            return None
        plan = Plan.from_json(body, "plan.json")
        sections = (plan.spec.of_rank(rank).hyperpod for rank in self._asked)
        return {section.cluster for section in sections if section is not None and section.cluster is not None}

    def missing(self, attempts: Callable[[], Mapping[int, Iterable[Attempt]]]) -> NoClusterLogsError | None:
        """What to say where no line of a pod was found: that its cluster ships none, once one should have come."""
        if not self._asked:
            return None
        return missing_logs(self._run, attempts(), self._asked, datetime.now(UTC))


def missing_logs(
    run: str, attempts: Mapping[int, Iterable[Attempt]], ranks: Iterable[int], now: datetime
) -> NoClusterLogsError | None:
    """The error for the first of `ranks` that has trained for long enough to have written something. Pure."""
    for rank in sorted(ranks):
        for attempt in attempts.get(rank, ()):
            began = next((step.at for step in attempt.history if step.secondary == "Training"), None)
            if attempt.cluster is None or began is None:
                continue
            until = now if attempt.ended_at is None else now + _DELIVERED_WITHIN
            if until - timestamps.parse(began) > _DELIVERED_WITHIN:
                return NoClusterLogsError(run, attempt.cluster.cluster, attempt.cluster.namespace)
    return None
