"""From the state of a run to the contents of its page."""

from __future__ import annotations

from collections.abc import Sequence

from muster.contract import timestamps
from muster.contract.layout import s3_uri
from muster.contract.names import run_job_prefix
from muster.contract.run.attempt import Attempt
from muster.contract.run.plan import Plan
from muster.contract.run.run_cost import instance_seconds, usd_of_each
from muster.contract.spec.private_values import without_values
from muster.contract.spec.rank_spec import uses_cluster
from muster.contract.spec.recipe_reference import RECIPE_FILE, recipe_folder
from muster.contract.text import shortened
from muster.report.links import console_links, object_link, with_clusters
from muster.report.page_model import Links, Page, PageInput, ReplicaView
from muster.report.read_back import read_back_facts
from muster.report.sweep import sweep_view
from muster.report.time_split import time_sentences, time_split
from muster.report.words import cluster_facts, facts, problems, verdict

# What many replicas wrote would be most of the page: the result holds it in full.
_REASONS_MAX = 200_000  # characters, all attempts together; and of all problems
_REASON_MIN = 120
_METRICS_MAX = 10_000  # of all replicas together; the charts have every rank's metrics


def make_page(run: PageInput) -> Page:
    """The page of a run. Pure."""
    plan, until = run.plan, run.ended_at or run.made_at
    replicas = _reduced(_shortened([_priced(replica, plan, until) for replica in run.replicas]))
    split = time_split(
        {replica.rank: replica.attempts for replica in replicas},
        run.rounds.time_use,
        (plan.created_at, until),
        ended=run.ended_at is not None,
        seats=run.seats,
    )
    return Page(
        run=plan.run,
        state=run.state,
        verdict=verdict(run, replicas),
        problems=tuple(problems(plan.run, replicas, ended=run.ended_at is not None)),
        time=tuple(time_sentences(split)),
        split=split,
        made_at=run.made_at,
        started_at=plan.created_at,
        ended_at=run.ended_at,
        facts=(
            *facts(run, replicas),
            *cluster_facts(replicas, _instance_seconds(replicas, plan, until)),
            *read_back_facts(replicas, plan.spec.prices, timestamps.parse(run.made_at)),
        ),
        links=_links(plan),
        replicas=tuple(replicas),
        rounds=run.rounds,
        egress_usd=run.egress_usd,
        sweep=sweep_view(plan.spec.sweep, replicas),
        seats=run.seats,
        plan={key: without_values(item) for key, item in plan.model_dump(mode="json", exclude_none=True).items()},
    )


def _links(plan: Plan) -> Links:
    links = console_links(plan.execution_arn, run_job_prefix(plan.place.job_prefix, plan.run))
    if uses_cluster(plan.spec):
        links = with_clusters(links, plan.execution_arn)
    recipe = plan.spec.recipe
    if recipe is None:
        return links
    # With `sweep` the ranks have recipes of their own: the first one stands for all.
    uri = s3_uri(plan.place.bucket, f"{recipe_folder(recipe.of_rank(0))}{RECIPE_FILE}")
    return links.model_copy(update={"recipe": object_link(plan.execution_arn, uri)})


def _priced(replica: ReplicaView, plan: Plan, until: str) -> ReplicaView:
    costs = usd_of_each(replica.attempts, plan.spec.of_rank(replica.rank), until)
    return replica.model_copy(update={"usd": tuple(None if usd is None else round(usd, 6) for usd in costs)})


def _instance_seconds(replicas: Sequence[ReplicaView], plan: Plan, until: str) -> float:
    """For how long the run has held instances of clusters, all of them together."""
    return sum(
        instance_seconds(attempt, plan.spec.of_rank(replica.rank).instance_count, until)
        for replica in replicas
        for attempt in replica.attempts
        if attempt.cluster is not None
    )


def _shortened(replicas: list[ReplicaView]) -> list[ReplicaView]:
    attempts = [attempt for replica in replicas for attempt in replica.attempts]
    if sum(len(attempt.reason) for attempt in attempts) <= _REASONS_MAX:
        return replicas
    most = max(_REASON_MIN, _REASONS_MAX // len(attempts))

    def cut(attempt: Attempt) -> Attempt:
        long = len(attempt.reason) > most
        return attempt.model_copy(update={"reason": shortened(attempt.reason, most)}) if long else attempt

    return [replica.model_copy(update={"attempts": tuple(map(cut, replica.attempts))}) for replica in replicas]


def _reduced(replicas: list[ReplicaView]) -> list[ReplicaView]:
    """The replicas with as many of their metrics, and as much of their problems, as a page has room for."""
    metrics = max(1, _METRICS_MAX // max(1, len(replicas)))
    problem = max(_REASON_MIN, _REASONS_MAX // max(1, len(replicas)))

    def reduced(replica: ReplicaView) -> ReplicaView:
        few = {name: float(f"{value:.6g}") for name, value in sorted(replica.metrics.items())[:metrics]}
        cut = None if replica.problem is None else shortened(replica.problem, problem)
        return replica.model_copy(update={"metrics": few, "problem": cut})

    return list(map(reduced, replicas))
