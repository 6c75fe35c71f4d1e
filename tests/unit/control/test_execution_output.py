from __future__ import annotations

import json

import pytest

from bench.sample_run import sample_run
from muster.contract.names import REPLICAS_MAX
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.finish import Finished
from muster.control.reporting.execution_output import execution_output

PLAN = sample_run(2, 1).plan
RESULT_URI, PAGE_URI = "s3://bucket/control/sample/result.json", "s3://bucket/control/sample/report.html"
# Step Functions: a Fail state's error and cause.
ERROR_MAX, CAUSE_MAX = 256, 32_768


def attempt(number: int, reason: str = "") -> Attempt:
    return Attempt(
        attempt=number, job=f"job-a{number}", launched_at="t", status="Failed", secondary="Failed", reason=reason
    )


def result(verdict: Verdict, reason: str = "why", replicas: int = 2) -> Result:
    lost = ReplicaResult(rank=0, outcome=ReplicaOutcome.FAILED, attempts=(attempt(1, "x" * 1_024), attempt(2)))
    done = ReplicaResult(rank=1, outcome=ReplicaOutcome.SUCCEEDED, attempts=(attempt(1),), round=20)
    many = (lost, *(done.model_copy(update={"rank": rank}) for rank in range(1, replicas)))
    return Result(
        run=PLAN.run, verdict=verdict, reason=reason, settled_at="2026-05-04T03:10:00.000Z", replicas=many, reruns=1
    )


def test_the_output_of_a_run_that_succeeded_says_what_came_of_it_and_where_to_look():
    answer = execution_output(
        PLAN, Finished(result(Verdict.SUCCEEDED, "1 of 2 replicas succeeded"), PAGE_URI, None), RESULT_URI
    )
    links = answer.pop("links")
    assert answer == {
        "run": "sample",
        "verdict": "succeeded",
        "reason": "1 of 2 replicas succeeded",
        "replicas": 2,
        "succeeded": 1,
        "rounds": 20,
        "attempts": 3,
        "reruns": 1,
        "settled_at": "2026-05-04T03:10:00.000Z",
        "result": RESULT_URI,
        "page": PAGE_URI,
    }
    console = "https://us-east-1.console.aws.amazon.com"
    assert links["page"] == f"{console}/s3/object/bucket?region=us-east-1&prefix=control/sample/report.html"
    assert links["execution"].endswith(PLAN.execution_arn)
    assert links["logs"].endswith("$3Dmuster-sample-r")
    assert all(link.startswith(console) for link in links.values())


@pytest.mark.parametrize(("verdict", "error"), [("failed", "Muster.RunFailed"), ("stopped", "Muster.RunStopped")])
def test_the_cause_of_one_that_failed_says_why_first_and_then_where_to_look(verdict, error):
    answer = execution_output(
        PLAN, Finished(result(Verdict(verdict), "replica 0 was lost"), PAGE_URI, None), RESULT_URI
    )
    assert answer["error"] == error
    why, _, where = answer["cause"].partition("\n\n")
    assert why == "replica 0 was lost"
    assert where.startswith("1 of 2 replicas succeeded; attempts in total: 3.\n")
    for name in ("page", "result", "logs", "jobs"):
        assert f": {answer['links'][name]}\n" in where
    assert where.endswith("To continue from the last committed round: muster rerun sample")


def test_a_run_that_is_continued_names_its_continuation_and_one_without_a_page_has_no_link_to_it():
    answer = execution_output(PLAN, Finished(result(Verdict.FAILED), None, "sample-x2"), RESULT_URI)
    assert answer["continued_by"] == "sample-x2"
    assert answer["cause"].endswith("\nIt is continued by sample-x2.")
    assert "page" not in {*answer, *answer["links"]}
    assert "Page" not in answer["cause"]


def test_neither_a_long_reason_nor_many_replicas_reach_a_quota():
    answer = execution_output(
        PLAN, Finished(result(Verdict.FAILED, "é" * 40_000, REPLICAS_MAX), PAGE_URI, None), RESULT_URI
    )
    assert len(answer["error"]) <= ERROR_MAX
    assert len(answer["cause"]) <= CAUSE_MAX
    assert "Logs of the replicas: https://" in answer["cause"]
    # Input and output of a state: 262,144 bytes.
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < 262_144 / 2
