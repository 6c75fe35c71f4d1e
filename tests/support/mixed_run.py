"""An invented run with replicas on both backends: training jobs, and jobs on a cluster to which everything happens."""

from dataclasses import replace
from datetime import timedelta

from bench.sample_run import sample_run
from muster.contract import timestamps
from muster.contract.run.attempt import Attempt, Transition
from muster.contract.run.cluster_job import ClusterJob
from muster.contract.run.plan import Plan
from muster.contract.spec.spec_reader import parse_spec
from muster.contract.timestamps import Timestamp
from muster.report.page_model import PageInput, ReplicaView

CLUSTER = "ml-cluster"
FIRST_ON_CLUSTER = 4


def mixed_run(replicas: int = 8, rounds: int = 60) -> PageInput:
    """The sample run, with the ranks from `FIRST_ON_CLUSTER` on a cluster: each waits for quota, one is restarted
    twice, and another is scaled from 1 to 2 instances and further."""
    run = sample_run(replicas, rounds)
    cluster = {"cluster": CLUSTER, "namespace": "hyperpod-ns-team-a", "queue": "hyperpod-ns-team-a-localqueue"}
    elastic = {"min_instances": 1, "max_instances": 4}
    ranks = f"{FIRST_ON_CLUSTER}-{replicas - 1}"
    document = {
        **run.plan.spec.model_dump(mode="json", exclude_unset=True),
        "overrides": {ranks: {"backend": "hyperpod", "hyperpod": {**cluster, "elastic": elastic}}},
    }
    plan = Plan.make(run.plan.run, run.plan.execution_arn, run.plan.created_at, run.plan.place, parse_spec(document))
    views = [view if view.rank < FIRST_ON_CLUSTER else _on_cluster(view, cluster) for view in run.replicas]
    return replace(run, plan=plan, replicas=views)


def _on_cluster(view: ReplicaView, cluster: dict[str, str]) -> ReplicaView:
    attempts = [_attempt(one, view.rank, cluster) for one in view.attempts]
    return view.model_copy(update={"attempts": tuple(attempts)})


def _attempt(attempt: Attempt, rank: int, cluster: dict[str, str]) -> Attempt:
    if attempt.launched_at is None or attempt.ended_at is None:
        return attempt
    began = timestamps.parse(attempt.launched_at)
    seconds = (timestamps.parse(attempt.ended_at) - began).total_seconds()

    def step(share: float, secondary: str, instances: int | None = None, message: str = "") -> Transition:
        at = Timestamp(timestamps.text(began + timedelta(seconds=share * seconds)))
        return Transition(at=at, secondary=secondary, instances=instances, message=message)

    steps = [step(0.0, "WaitingForQuota", message="the quota of team-a is in use"), step(0.04, "Pending")]
    steps.append(step(0.05, "Training", 1))
    restarts = 0
    if rank % 2 == 0:
        restarts = 2
        for at in (0.4, 0.6):
            steps += [step(at, "Restarting", message="NodeFault: node i-0 was lost"), step(at + 0.02, "Training", 1)]
    else:
        steps += [step(0.5, "Training", 2), step(0.8, "Training", 4)]
    job = ClusterJob(**cluster, instances=steps[-1].instances, least=1, most=4, restarts=restarts)
    return attempt.model_copy(update={"history": tuple(steps), "cluster": job})
