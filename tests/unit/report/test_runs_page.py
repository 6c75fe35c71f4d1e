"""The page of many runs: its file, its links, and that no data of a run becomes markup."""

from __future__ import annotations

import base64
import hashlib
import html
import re

from muster.client.runs.run_list import RunSummary
from muster.client.runs.runs_report import runs_page
from muster.report.runs_page import render_runs
from tests.support.sample_runs import STACK, sample_runs

EVIL = "</script><script>window.evil=1</script><!--<img src=x onerror='window.evil=1'>"


def page_of(runs: list[RunSummary], *, more: bool = False) -> str:
    return render_runs(runs_page(STACK, runs, more=more)).decode()


def test_the_file_allows_only_its_own_scripts_and_style_and_no_network() -> None:
    text = page_of(sample_runs(3))
    policy = html.unescape(re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)[0])
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert [f"'sha256-{digest}'" for digest in digests] == re.findall(r"script-src (.*?);", policy)[0].split()
    assert "connect-src" not in policy
    assert not re.search(r'(src|href)="(?!#)', text.split("<script", maxsplit=1)[0])


def test_no_text_of_a_run_can_become_markup() -> None:
    evil = sample_runs(2)[1].model_copy(update={"run": EVIL, "reason": EVIL})
    text = page_of([evil])
    assert "window.evil=1</script>" not in text
    assert "<!--" not in text
    assert text.count("</script>") == 3, "the data, and two scripts"


def test_a_run_that_has_ended_leads_to_its_page_and_another_one_to_its_execution() -> None:
    running, ended = runs_page(STACK, sample_runs(2), more=False).runs
    arn = "arn:aws:states:us-west-2:123456789012:execution:Muster:gpt-0000"
    assert (
        running.link
        == f"https://us-west-2.console.aws.amazon.com/states/home?region=us-west-2#/v2/executions/details/{arn}"
    )
    assert ended.link == (
        "https://us-west-2.console.aws.amazon.com/s3/object/muster-bucket?region=us-west-2"
        f"&prefix=control/{ended.run}/report.html"
    )


def test_a_thousand_runs_are_less_than_a_megabyte() -> None:
    assert len(page_of(sample_runs(1_000), more=True)) < 1_000_000
