"""What the page of an elastic run says."""

from dataclasses import replace

import pytest

from muster.report.page_contents import make_page
from muster.report.page_html import render
from tests.support.elastic_run import NOW, at, elastic_run


def test_a_page_counts_the_replicas_that_are_wanted_and_no_time_of_parked_ones() -> None:
    page = make_page(elastic_run(10_000))
    begin = "The run is in progress: 6 of 8 wanted, 2 waiting for ml.p5.48xlarge, 9,992 parked, 43 rounds."
    assert page.verdict == f"{begin} 1 attempt was rerun (infrastructure)."
    facts = {fact.label: (fact.value, fact.note) for fact in page.facts}
    note = "2 waiting for ml.p5.48xlarge, 9,992 parked; 2 to 10,000 are allowed"
    assert facts["Replicas"] == ("6 of 8 wanted", note)
    assert page.problems == ("Replicas 6, 7: capacity.",), "those that are parked have no problem"
    # Of each of ten: the launches; of 6 and 7 from 4,200 s on; of 8 and 9 from 1,200 s to 3,000 s.
    assert page.split.launching == pytest.approx(2 * 1_200 + 2 * 1_800, abs=11 * 60 + 100)
    assert len(render(page)) < 200_000, "seats that nobody has ever had take no room"


def test_the_page_of_a_run_that_has_ended_says_how_many_succeeded_of_those_that_were_wanted() -> None:
    run = elastic_run()
    outcomes = ["succeeded"] * 5 + ["failed"] + ["parked"] * 4
    rows = [view.model_copy(update={"state": state}) for view, state in zip(run.replicas, outcomes, strict=True)]
    page = make_page(replace(run, state="succeeded", ended_at=at(NOW), replicas=rows))
    facts = {fact.label: (fact.value, fact.note) for fact in page.facts}
    assert facts["Replicas"] == ("5 of 6 succeeded", "26 parked; 2 to 32 are allowed")
