"""Where the lines of a run's pods are: the log groups of its clusters, and what is said where there are none."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from muster.client.client_errors import NoClusterLogsError
from muster.contract import timestamps
from muster.contract.layout import RunLayout
from muster.contract.names import run_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from muster.client.aws.cloud import Cloud
    from muster.client.aws.reported import Execution
    from muster.client.runs.observer import Observer
    from muster.contract.run.attempt import Attempt

# A log agent delivers what it reads within seconds.
_DELIVERED_WITHIN = timedelta(minutes=2)


class ClusterLogs:
    """The clusters on which the asked replicas of a run are."""

    def __init__(self, cloud: Cloud, execution: Execution, ranks: Collection[int] | None) -> None:
        self._cloud = cloud
        self._run = run_name(execution.name)
        self._asked = {rank: name for rank, name in execution.clusters.items() if ranks is None or rank in ranks}
        every = range(execution.replicas) if ranks is None else ranks
        self.are_all = bool(self._asked) and all(rank in self._asked for rank in every)
        """Whether none of the asked replicas is a training job."""
        self._groups: set[str] | None = None

    def __bool__(self) -> bool:
        """Whether a replica that is asked for is on a cluster."""
        return bool(self._asked)

    def groups(self) -> Collection[str]:
        """The log groups of the clusters; empty while a spec names none and the run has no plan yet."""
        if self._groups is None:
            names = self._names()
            if names is None:
                return ()
            found = (self._cloud.clusters.log_group(name) for name in sorted(names))
            self._groups = {group for group in found if group is not None}
        return self._groups

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

    def missing(self, observer: Observer) -> NoClusterLogsError | None:
        """What to say where no line of a pod was found: that its cluster ships none, once one should have come."""
        if not self._asked:
            return None
        observer.look()
        return missing_logs(self._run, observer.attempts, self._asked, datetime.now(UTC))


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
