"""What is told of a run: events, messages about them to people, and the output of its execution."""

import json
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from bench.sample_run import sample_run
from muster.contract.names import REPLICAS_MAX
from muster.contract.run.attempt import Attempt
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.notify import SUBJECT_MAX, notification
from muster.control.reporting.announcements import announce_rerun
from muster.control.reporting.execution_output import execution_output
from muster.control.settle import Finished
from tests.memory import Fault
from tests.memory.harness import BUS, ControlHarness
from tests.support.control_steps import complete, launched


def test_only_a_rerun_that_was_decided_is_announced(harness: ControlHarness, caplog: pytest.LogCaptureFixture) -> None:
    harness.cloud.calls.inject(Fault("PutEvents", EndpointConnectionError(endpoint_url="https://events")))
    launched(harness)
    assert caplog.messages == ["event not sent"], "an event that cannot be sent is no error"
    announce_rerun(harness.plane.bus, harness.record(), job_prefix="muster")
    complete(harness)
    announce_rerun(harness.plane.bus, harness.record(), job_prefix="muster")
    launched(harness, 1, "two")
    [entry] = harness.cloud.events.entries
    assert (entry.bus, entry.source, entry.detail_type) == (BUS, "muster", "Replica Launched")


# --- messages to people ---------------------------------------------------------------------------


def test_a_message_says_what_happened_and_what_to_do() -> None:
    rows: list[tuple[str, dict[str, object], str, list[str]]] = [
        (
            "Run Failed",
            {"run": "one", "reason": "out of memory", "replicas": 4, "reruns": 2, "at": "t", "result": "s3://b/r"},
            "one failed",
            ["Reason: out of memory", "Replicas: 4", "Reruns of all replicas: 2", "Time: t"],
        ),
        (
            "Run Refused",
            {"request": "s3://bucket/inbox/a.yaml", "problems": ["replicas: 0", "image: none"]},
            "a run was refused",
            ["Requested by: s3://bucket/inbox/a.yaml", "- replicas: 0", "- image: none"],
        ),
    ]
    for detail_type, detail, subject, lines in rows:
        message = notification(detail_type, detail)
        assert message.subject == f"Muster: {subject}"
        assert message.text.startswith(f"{subject}.\n"), detail_type
        assert [line for line in lines if line not in message.text.splitlines()] == [], detail_type
    for detail_type in ("Quorum Lost", "Run Succeeded", "Run Failed", "Run Stopped", "Run Continued", "Run Refused"):
        subject = notification(detail_type, {"run": "r" * 200}).subject
        assert (len(subject) <= SUBJECT_MAX, subject.isascii(), "\n" in subject) == (True, True, False), detail_type


# --- the output of the execution ------------------------------------------------------------------

PLAN = sample_run(2, 1).plan
RESULT_URI, PAGE_URI = "s3://bucket/control/sample/result.json", "s3://bucket/control/sample/report.html"


def output(
    verdict: Verdict, reason: str, replicas: int = 2, page: str | None = PAGE_URI, continued_by: str | None = None
) -> dict[str, Any]:
    """The output of a run whose replica 0 has failed twice, and whose others have succeeded."""
    attempts = [
        Attempt(attempt=number, job=f"a{number}", launched_at="t", status="Failed", reason=reason)
        for number, reason in ((1, "x" * 1_024), (2, ""))
    ]
    done = ReplicaResult(rank=0, outcome=ReplicaOutcome.SUCCEEDED, attempts=tuple(attempts[:1]), round=20)
    lost = done.model_copy(update={"outcome": ReplicaOutcome.FAILED, "attempts": tuple(attempts), "round": None})
    every = (lost, *(done.model_copy(update={"rank": rank}) for rank in range(1, replicas)))
    result = Result(run=PLAN.run, verdict=verdict, reason=reason, settled_at="t", replicas=every, reruns=1)
    return dict(execution_output(PLAN, Finished(result, page, continued_by), RESULT_URI))


def test_the_output_of_a_run_that_succeeded_says_what_came_of_it_and_where_to_look() -> None:
    answer = output(Verdict.SUCCEEDED, "1 of 2 replicas succeeded")
    links = answer.pop("links")
    counts = {"replicas": 2, "succeeded": 1, "rounds": 20, "attempts": 3, "reruns": 1}
    places = {"result": RESULT_URI, "page": PAGE_URI}
    verdict = {"run": "sample", "verdict": "succeeded", "reason": "1 of 2 replicas succeeded"}
    assert answer == {**verdict, **counts, **places, "settled_at": "t"}
    console = "https://us-east-1.console.aws.amazon.com"
    assert links["page"] == f"{console}/s3/object/bucket?region=us-east-1&prefix=control/sample/report.html"
    assert links["execution"].endswith(PLAN.execution_arn)
    assert links["logs"].endswith("$3Dmuster-sample-r")


def test_the_cause_of_one_that_failed_says_why_first_and_then_where_to_look() -> None:
    for verdict, page, error, last in (
        (Verdict.FAILED, PAGE_URI, "Muster.RunFailed", "muster continue sample"),
        (Verdict.STOPPED, None, "Muster.RunStopped", "It is continued by sample-x2."),
    ):
        answer = output(verdict, "why", 2, page, "sample-x2" if page is None else None)
        assert answer["error"] == error
        reason, _, where = answer["cause"].partition("\n\n")
        assert (reason, where.endswith(last)) == ("why", True), verdict
        assert [link for name, link in answer["links"].items() if name != "execution" and link not in where] == []
        assert ("page" in answer) is ("page" in answer["links"]) is (page is not None)


def test_neither_a_long_reason_nor_many_replicas_reach_a_quota() -> None:
    answer = output(Verdict.FAILED, "é" * 40_000, REPLICAS_MAX)
    # Step Functions: a Fail state's error and cause, and half of a state's input and output.
    assert len(answer["error"]) <= 256
    assert len(answer["cause"]) <= 32_768
    assert answer["links"]["logs"] in answer["cause"]
    assert len(json.dumps(answer, ensure_ascii=False).encode()) < 262_144 / 2
