"""A sweep from plan to page: what each replica does is its own, and nothing of one is taken for that of another."""

import json
from typing import Any

import pytest

from muster.client.cli.status_table import status_lines
from muster.client.runs.live_page import PageSource
from muster.client.runs.observer import Observer
from muster.client.runs.run_state import RunState
from muster.client.runs.status_text import headline
from muster.contract.errors import SpecError
from muster.contract.layout import RunLayout
from muster.contract.run.finding import Finding, FindingDocument, findings_of
from muster.contract.run.result import ReplicaOutcome, Verdict
from muster.contract.run.run_document import Manifest, RunDocument
from muster.contract.spec.watch_rules import Rule
from muster.control.plan import make_plan
from muster.control.run_result import write_result
from tests.memory.harness import RUN, SPEC, ControlHarness, budget
from tests.support.control_steps import Row, complete, fail, finished, found
from tests.support.memory_client import client_of
from tests.support.round_commits import commit_of, member

RATES = [0.1, 0.2, 0.4]
SWEEP: dict[str, Any] = {"replicas": 3, "sweep": {"kwargs.optimizer.lr": RATES, "kwargs.seed": [1, 2, 3]}}
ROUNDS = (3, 5, 2)


def put(harness: ControlHarness, key: str, body: bytes) -> None:
    harness.cloud.client("s3").put_object(Bucket=harness.cloud.bucket, Key=key, Body=body)


def commit(harness: ControlHarness, rank: int, round_: int) -> None:
    """A round of a replica of the sweep, in which it is rank 0."""
    metrics = {"loss": RATES[rank] / round_, "tokens": 9}
    when = {"round": round_, "committed_at": f"2026-11-21T09:00:{round_:02}Z", "epochs": (1,), "expected_rounds": 5}
    document = commit_of([member(0, weight=8.0, metrics=metrics)], run=RUN, samples=8.0 * round_, **when)
    put(harness, RunLayout(RUN).of_rank(rank).commit(round_), document.to_json())


def launched(harness: ControlHarness) -> None:
    harness.executions.start(RUN, json.dumps({**SPEC, **SWEEP}))
    make_plan(harness.plane, harness.deployment, harness.plan_request(**SWEEP))
    for rank, rounds in enumerate(ROUNDS):
        harness.arm(rank)
        for round_ in range(1, rounds + 1):
            commit(harness, rank, round_)
    finding = Finding(rule=Rule.HANG, then="report", rank=0, attempt=1, round=2, text="of 2")
    key = f"{RunLayout(RUN).of_rank(2).commits}{findings_of(RUN)}hang-00000-000001-0000-01.json"
    put(harness, key, FindingDocument(run=RUN, finding=finding).to_json())


def ended(harness: ControlHarness) -> None:
    """Replica 0 fails for good; the others succeed, each with its own parameters."""
    launched(harness)
    fail(harness)
    for rank in (1, 2):
        uri = f"s3://{harness.cloud.bucket}/output/{RUN}/r{rank}/model/"
        manifest = Manifest(checkpoint_s3_bucket=uri, round=ROUNDS[rank], checksum=str(rank) * 64)
        put(harness, f"output/{RUN}/{harness.job(rank)}/manifest.json", manifest.to_json())
        complete(harness, rank)


def document_of(harness: ControlHarness, run: str, rank: int) -> RunDocument:
    return RunDocument.from_json(found(harness.plane.store.get(f"runs/{run}/r{rank}/document.json")).body, "document")


def test_a_lost_replica_ends_no_other_and_each_result_is_its_own(harness: ControlHarness) -> None:
    ended(harness)
    assert found(harness.answer(0))["next"] == "fail"  # the replica, not the run
    result = write_result(harness.plane.runs.require(RUN), budget())
    assert (result.verdict, result.reason) == (Verdict.SUCCEEDED, "2 of 3 replicas succeeded")
    assert [replica.outcome for replica in result.replicas] == [
        ReplicaOutcome.FAILED, ReplicaOutcome.SUCCEEDED, ReplicaOutcome.SUCCEEDED,
    ]  # fmt: skip
    assert [replica.round for replica in result.replicas] == [None, 5, 2]
    assert result.replicas[2].checkpoint_uri == f"s3://{harness.cloud.bucket}/output/{RUN}/r2/model/"
    # Their parameters differ because they must, there is no round of the run, and no model of it is missing.
    assert (result.parameters_identical, result.committed_rounds) == (None, None)
    assert (result.model, result.model_problem) == (None, None)
    assert [(one.rank, one.text) for one in result.findings] == [(2, "of 2")]


def test_a_look_sees_the_rounds_of_each_replica(harness: ControlHarness) -> None:
    launched(harness)
    observer = Observer(client_of(harness.cloud), RUN)
    status = observer.look()
    assert status.state is RunState.RUNNING
    assert [replica.round for replica in status.replicas] == list(ROUNDS)
    assert [replica.values for replica in status.replicas] == [
        {"kwargs.optimizer.lr": rate, "kwargs.seed": rank + 1} for rank, rate in enumerate(RATES)
    ]
    assert (status.round, status.samples, status.expected_rounds) == (None, 8.0 * sum(ROUNDS), 5)
    assert [(one.rank, one.text) for one in status.findings] == [(2, "of 2")]
    assert "rounds 2 to 5" in headline(status)
    heading, *rows = [line.text for line in status_lines(status, 100, None)][1:5]
    assert heading.split()[:4] == ["rank", "lr", "seed", "attempt"]
    assert [row.split()[:3] for row in rows] == [["0", "0.1", "1"], ["1", "0.2", "2"], ["2", "0.4", "3"]]
    commits = [(one.members[0].rank, one.round) for one in observer.new_commits()]
    assert commits == [(rank, round_) for rank, last in enumerate(ROUNDS) for round_ in range(1, last + 1)]
    commit(harness, 2, 3)
    assert observer.look().replicas[2].round == 3
    assert [(one.members[0].rank, one.round) for one in observer.new_commits()] == [(2, 3)]
    source = PageSource(client_of(harness.cloud), RUN)
    assert source.look().rounds.members == (3, 3, 3, 1, 1)
    before = source.tag
    commit(harness, 0, 4)
    assert source.look().rounds.members == (3, 3, 3, 2, 1)
    assert source.tag != before


def test_a_rule_that_stops_a_run_stops_one_replica_of_a_sweep(harness: ControlHarness) -> None:
    harness.plan(**SWEEP, watch={"hang": {"after_seconds": 600, "then": "stop"}})
    harness.arm(1)
    fail(harness, "AlgorithmError: [hang] no step for 600 s, exit code: 76", rank=1)
    decision = found(harness.record(1).decision)
    assert (decision.lost, decision.stops_run) == (True, False)


def test_a_continuation_has_the_same_values(harness: ControlHarness) -> None:
    ended(harness)
    for rank, rate in enumerate(RATES):
        document = document_of(harness, RUN, rank)
        assert document.kwargs == {"optimizer": {"lr": rate}, "seed": rank + 1}
        assert (document.replicas, document.sweep_rank) == (1, rank)
    assert harness.plane.store.get(f"runs/{RUN}/document.json") is None
    finished(harness)
    other = {"kwargs.seed": [4, 5, 6], "kwargs.optimizer.lr": RATES}
    with pytest.raises(SpecError, match=f"resume_from: {RUN} has other values in its sweep"):
        harness.plan("two", **{**SWEEP, "sweep": other}, resume_from=RUN)
    harness.plan("three", **SWEEP, resume_from=RUN)
    document = document_of(harness, "three", 1)
    assert document.rendezvous_uri.endswith(f"/rendezvous/{RUN}/r1/")
    assert document.results_uri.endswith("/output/three/r1/")
    assert [document_of(harness, "three", rank).rounds_before for rank in range(3)] == list(ROUNDS)


def test_a_sweep_is_not_continued_where_rounds_of_one_replica_were_deleted(row: Row) -> None:
    for rank, round_ in ((0, 3), (1, 5), (2, 1)):
        with row((rank, round_)) as harness:
            ended(harness)
            finished(harness)
            gone = RunLayout(RUN).of_rank(rank).commit(round_)
            harness.plane.store.s3.delete_object(Bucket="bucket", Key=gone)
            with pytest.raises(SpecError, match=f"the rounds of {RUN} were deleted"):
                harness.plan("two", **SWEEP, resume_from=RUN)
