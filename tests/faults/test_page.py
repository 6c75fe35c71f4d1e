"""The page of a run is drawn from what its replicas wrote: nothing of that may cost the run its end."""

from __future__ import annotations

import json
import re

from muster.contract.document import canonical_json
from muster.contract.run.commit import Commit, Member
from tests.support.deployed import Deployed


def commit(run: str, number: int, **metrics: float) -> bytes:
    member = Member(rank=0, attempt=1, incarnation=1, epoch=1, weight=1.0, checksum="0" * 8, metrics=metrics)
    at = f"2026-05-04T03:00:{number:02}Z"
    return Commit(run=run, round=number, committed_at=at, count=1, members=(member,), epochs=(1,)).to_json()


def test_poisoned_commits_are_left_out_of_the_page_and_the_run_ends_as_it_did(stack: Deployed) -> None:
    run = stack.start(stack.gated("poisoned"), "poisoned")
    run.wait_for_status(0, 1, "Training")
    evil = "</script><script>alert(1)</script>"
    objects = {
        "00000001.json": commit(run.name, 1, loss=2.0),
        "00000002.json": b"",
        "00000003.json": b"{" * 1_000_000,
        "00000004.json": canonical_json({"metrics": "x" * 30_000_000}),
        "00000005.json": commit(run.name, 5, **{evil: 1.0, "loss": 1.0}),
        "../../elsewhere": b"x",
        "99999999.html": b"x",
    }
    for key, body in objects.items():
        stack.s3.put_object(Bucket=stack.bucket, Key=f"{run.layout.commits}{key}", Body=body)
    stack.open_gate("poisoned")
    output = json.loads(run.wait()["output"])
    assert (output["verdict"], output["page"]) == ("succeeded", f"s3://{stack.bucket}/{run.layout.page}")
    page = (run.document(run.layout.page) or b"").decode()
    assert evil not in page
    [block] = re.findall(r'id="data">(.*?)</script>', page)
    rounds = json.loads(block)["rounds"]
    assert rounds["numbers"] == [1, 5]
    assert [metric["name"] for metric in rounds["metrics"]] == [evil, "loss"]


def test_a_page_that_is_there_stays_and_one_that_cannot_be_written_changes_nothing(stack: Deployed) -> None:
    kept = stack.start(stack.gated("page-kept"), "page-kept")
    kept.wait_for_status(0, 1, "Training")
    stack.s3.put_object(Bucket=stack.bucket, Key=kept.layout.page, Body=b"somebody's", IfNoneMatch="*")
    stack.open_gate("page-kept")
    assert json.loads(kept.wait()["output"])["verdict"] == "succeeded"
    assert kept.document(kept.layout.page) == b"somebody's"
    # Settling again, as a repeated call does, finds the settlement and the page.
    again = stack.invoke("Settle", {"run": kept.name})
    assert (again["verdict"], again["page"]) == ("succeeded", f"s3://{stack.bucket}/{kept.layout.page}")
