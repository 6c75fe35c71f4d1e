from __future__ import annotations

import json
import re

import boto3
import pytest
from moto import mock_aws

from bench.sample_run import sample_run
from muster.contract.run.commit import Commit, Member
from muster.contract.run.result import ReplicaOutcome, ReplicaResult, Result, Verdict
from muster.control.active_run import ActiveRun
from muster.control.aws.jobs import Jobs
from muster.control.aws.store import Store
from muster.control.documents import RunDocuments
from muster.control.report_page import publish_page
from muster.control.runtime.time_budget import TimeBudget

PLAN = sample_run(1, 1).plan
LAYOUT = PLAN.layout
RESULT = Result(
    run=PLAN.run,
    verdict=Verdict.SUCCEEDED,
    reason="1 of 1 replicas succeeded",
    settled_at="2026-05-04T03:10:00.000Z",
    replicas=(ReplicaResult(rank=0, outcome=ReplicaOutcome.SUCCEEDED),),
    reruns=0,
)


@pytest.fixture
def run(monkeypatch):
    for name in ("AWS_PROFILE", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="bucket")
        member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8)
        for number in range(1, 21):
            at = f"2026-05-04T03:01:{number:02}Z"
            commit = Commit(run=PLAN.run, round=number, committed_at=at, count=1, members=(member,), epochs=(1,))
            s3.put_object(Bucket="bucket", Key=f"{LAYOUT.commits}{number:08d}.json", Body=commit.to_json())
        jobs = Jobs(boto3.client("sagemaker", region_name="us-east-1"))
        yield ActiveRun(PLAN, RunDocuments(Store(s3, "bucket"), PLAN.run), jobs)


def rounds(run: ActiveRun) -> list[int]:
    stored = run.documents.store.get(LAYOUT.page)
    assert stored is not None
    [block] = re.findall(r'id="data">(.*?)</script>', stored.body.decode())
    return json.loads(block).get("rounds", {}).get("numbers", [])


def test_a_page_is_written_once_as_html(run):
    assert publish_page(run, RESULT, TimeBudget.of(60)) == f"s3://bucket/{LAYOUT.page}"
    assert rounds(run) == list(range(1, 21))
    head = run.documents.store.s3.head_object(Bucket="bucket", Key=LAYOUT.page)
    assert head["ContentType"] == "text/html; charset=utf-8"
    publish_page(run, RESULT.model_copy(update={"reason": "another"}), TimeBudget.of(60))
    assert b"another" not in run.documents.store.get(LAYOUT.page).body


def test_out_of_time_a_page_goes_without_its_rounds(run):
    assert publish_page(run, RESULT, TimeBudget.of(-1)) == f"s3://bucket/{LAYOUT.page}"
    assert rounds(run) == []


def test_a_page_that_cannot_be_written_is_no_error(run):
    nowhere = ActiveRun(PLAN, RunDocuments(Store(run.documents.store.s3, "nowhere"), PLAN.run), run.jobs)
    assert publish_page(nowhere, RESULT, TimeBudget.of(60)) is None
