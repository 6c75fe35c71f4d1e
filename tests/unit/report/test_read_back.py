"""What SageMaker reports, on the page of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from muster.contract import timestamps
from muster.contract.aws.prices import SHIPPED_PRICES
from muster.contract.run.attempt import Attempt
from muster.contract.run.job_details import FinalMetric, JobDetails, JobProgress, PoolState, RuleVerdict, WarmPool
from muster.report.page_model import ReplicaView
from muster.report.read_back import kept_pools, progress_words, ranks_text, read_back_facts

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


def attempt(details: JobDetails | None, number: int = 1) -> Attempt:
    return Attempt(
        attempt=number, job=f"job-a{number}", instance_type="ml.g5.xlarge", billable_seconds=100, details=details
    )


def pool(minutes: int, state: PoolState = PoolState.AVAILABLE) -> JobDetails:
    return JobDetails(warm_pool=WarmPool(state=state, until=timestamps.text(NOW + timedelta(minutes=minutes))))


def facts(*attempts: tuple[Attempt, ...]) -> dict[str, tuple[str, str]]:
    views = [ReplicaView(rank=rank, state="succeeded", attempts=found) for rank, found in enumerate(attempts)]
    return {fact.label: (fact.value, fact.note) for fact in read_back_facts(views, SHIPPED_PRICES, NOW)}


def test_a_run_that_asked_for_nothing_has_no_line_more() -> None:
    assert facts((attempt(None),), (attempt(JobDetails(training_seconds=100)),)) == {}


def test_metrics_savings_and_pools_are_lines_of_the_summary() -> None:
    metrics = (FinalMetric(name="loss", value=0.5),)
    found = facts(
        (attempt(JobDetails(training_seconds=400, metrics=metrics)),), (attempt(pool(30)),), (attempt(pool(20)),)
    )
    assert found["Final metrics"] == ("loss 0.5", "as SageMaker read them from the logs")
    assert found["Spot"] == ("75% saved", "100 s billed of 400 s: 75% saved, about $0.1173 at on-demand prices")
    value, note = found["Warm pools"]
    assert value == "2"
    assert note.startswith(
        "2 ml.g5.xlarge are kept warm until 12:30 UTC and billed: $2.82 per hour. To end one now: aws "
    )


def test_rules_are_one_line_whose_issues_come_first() -> None:
    def verdict(rule: str, status: str) -> RuleVerdict:
        return RuleVerdict(tool="debugger", rule=rule, status=status)

    quiet = tuple(verdict(f"R{number}", "NoIssuesFound") for number in range(5))
    found = facts((attempt(JobDetails(rules=(*quiet, verdict("Overfit", "IssuesFound")))),))
    value, note = found["Rules"]
    assert value == "NoIssuesFound ×5, IssuesFound"
    assert note.startswith("debugger rule Overfit: IssuesFound in replica 0; debugger rule R0: NoIssuesFound")
    assert note.endswith("; and 3 more")


def test_a_pool_counts_until_its_end_and_only_that_of_the_last_attempt() -> None:
    assert kept_pools({0: [attempt(pool(-1))]}, NOW) == []
    assert kept_pools({0: [attempt(pool(5, PoolState.REUSED))]}, NOW) == []
    assert kept_pools({0: [attempt(pool(5)), attempt(None, 2)]}, NOW) == []
    assert [kept.rank for kept in kept_pools({3: [attempt(None), attempt(pool(5), 2)]}, NOW)] == [3]


def test_progress_and_many_ranks_in_words() -> None:
    assert progress_words(JobProgress(step=3, steps=10, epoch=1)) == "step 3 of 10, epoch 1"
    assert ranks_text([4]) == "replica 4"
    assert ranks_text(list(range(10))) == "replicas 0, 1, 2 and 7 more"
