"""The page in a real browser: what is drawn, for few and for many replicas, by mouse, keyboard and screen reader."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from bench.browser import chromium
from bench.sample_run import sample_run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.attempt import Attempt
from muster.report.page_contents import PageInput, make_page
from muster.report.page_html import render
from muster.report.page_model import ReplicaView
from tests.support.waiting import wait_until

EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
Open = Callable[..., Page]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def show(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Open a run's page; the test fails if the page has an error, breaks its own policy or asks the network."""
    contexts: list[BrowserContext] = []
    troubles: list[str] = []

    def opened(page_input: PageInput, **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_bytes(render(make_page(page_input)))
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda message: troubles.append(message.text) if message.type == "error" else None)
        page.on("request", lambda request: None if request.url == path.as_uri() else troubles.append(request.url))
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert not troubles


@pytest.fixture(scope="module")
def small() -> PageInput:
    return sample_run(4, 30, reason="InternalServerError: We encountered an internal error.")


@pytest.fixture(scope="module")
def large() -> PageInput:
    return sample_run(200, 60, reason="InternalServerError: We encountered an internal error.")


def ink(page: Page, selector: str) -> dict[str, int]:
    """How often each colour is on a canvas."""
    script = """(canvas) => {
      const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), seen = {};
      for (let at = 0; at < data.length; at += 4) {
        if (data[at + 3] < 128) continue;
        const key = `${data[at]},${data[at + 1]},${data[at + 2]}`;
        seen[key] = (seen[key] ?? 0) + 1;
      }
      return seen;
    }"""
    found = page.locator(selector).first.evaluate(script)
    assert isinstance(found, dict)
    return found


def bars(page: Page, rank: int) -> list[tuple[str, float, float]]:
    """What is drawn of a replica: class, begin and width in thousandths of the run."""
    row = page.locator("table.replicas tbody tr").filter(has=page.locator(f'[data-focus="replica-{rank}"]'))
    script = (
        "(all) => all.map((one) => [one.getAttribute('class'), +one.getAttribute('x'), +one.getAttribute('width')])"
    )
    return [tuple(one) for one in row.locator("svg rect").evaluate_all(script)]


def test_verdict_and_summary_are_in_words(show: Open, small: PageInput) -> None:
    page = show(small)
    expect(page.locator("h1")).to_contain_text("sample succeeded")
    expect(page.locator("#verdict")).to_have_text(
        "The run succeeded: 4 of 4 replicas succeeded. 2 attempts were rerun (quota, infrastructure). "
        "All replicas hold the same parameters."
    )
    facts = page.locator("#facts")
    speed = ("30 of 30", "Speed", "7,500 tokens/s", "in the last 15 rounds; 13.8 million tokens so far")
    for text in ("Rounds", *speed, "Cost so far", "≤ $3.", "Utilisation", "93%"):
        expect(facts).to_contain_text(text)
    assert page.title() == "sample: succeeded"


def test_attempts_are_drawn_where_they_were_in_time(show: Open, small: PageInput) -> None:
    page = show(small)
    total = 150 + 30 * 60 + 60
    lost = small.replicas[2].attempts[0]
    plain, waited, rerun = (bars(page, rank) for rank in (0, 1, 2))
    assert [kind for kind, *_ in plain] == ["bar-waiting", "bar-loading", "bar-training", "bar-saving"]
    assert plain[2][1] == pytest.approx(90 / total * 1000, abs=1)
    assert plain[2][2] == pytest.approx((total - 110) / total * 1000, abs=1)
    # Refused for quota, then a wait, then a job like any other.
    assert [kind for kind, *_ in waited][:3] == ["bar-waiting", "bar-waiting", "bar-waiting"]
    assert waited[-1][0] == "bar-broken"
    [broken] = [bar for bar in rerun if bar[0] == "bar-broken"]
    assert lost.ended_at is not None
    away = (page.evaluate("Date.parse", lost.ended_at) - page.evaluate("Date.parse", small.plan.created_at)) / 1000
    assert broken[1] == pytest.approx(away / total * 1000 - 2, abs=1)
    assert [kind for kind, *_ in rerun].count("bar-training") == 2


def test_a_bar_says_what_it_shows_and_the_rounds_are_marked_in_it(show: Open, small: PageInput) -> None:
    page = show(small)
    spoken = page.get_by_role("img", name="Replica 2, succeeded")
    expect(spoken).to_have_count(1)
    label = spoken.get_attribute("aria-label") or ""
    assert "attempt 1 ended: infrastructure" in label
    assert "waits for a rerun after infrastructure 30 s" in label
    marks = page.locator("table.replicas tbody tr").nth(0).locator("line.tick")
    expect(marks).to_have_count(30)
    # A replica that was away for some rounds has no mark for them.
    assert 20 < page.locator("table.replicas tbody tr").nth(2).locator("line.tick").count() < 30
    expect(page.locator("thead svg.axis line.tick")).to_have_count(30)


def test_details_of_a_replica_hold_reasons_and_links_and_are_reached_by_keyboard(show: Open, small: PageInput) -> None:
    page = show(small)
    button = page.get_by_role("button", name="Replica 2, details")
    button.focus()
    page.keyboard.press("Enter")
    expect(button).to_have_attribute("aria-expanded", "true")
    expect(button).to_be_focused()
    attempts = page.get_by_role("table", name="Attempts of replica 2")
    expect(attempts).to_contain_text("Failed: infrastructure")
    expect(attempts).to_contain_text("InternalServerError: We encountered an internal error.")
    job = attempts.get_by_role("link", name="job").first
    expect(job).to_have_attribute(
        "href", "https://us-east-1.console.aws.amazon.com/sagemaker/home?region=us-east-1#/jobs/muster-sample-r2-a1"
    )
    logs = attempts.get_by_role("link", name="logs").first.get_attribute("href") or ""
    assert logs.endswith("TrainingJobs$3FlogStreamNameFilter$3Dmuster-sample-r2-a1$252F")
    page.keyboard.press("Enter")
    expect(attempts).to_have_count(0)


def test_metrics_are_drawn_per_rank_and_merged_and_can_be_read_as_a_table(show: Open, small: PageInput) -> None:
    page = show(small)
    chart = page.locator("#metric-chart")
    expect(chart.locator("canvas")).to_have_count(1)
    # Lines of four ranks and of their mean, which is in the colour of the text.
    drawn = ink(page, "#metric-chart canvas")
    for wanted in ("47,127,193", "212,115,28", "44,138,87", "194,69,107", "29,33,37"):
        assert drawn.get(wanted, 0) > 50, wanted
    loss = next(metric for metric in small.rounds.metrics if metric.name == "loss")
    chart.get_by_text("Show as a table").click()
    first, last = (chart.locator("table.figures tbody tr").nth(at) for at in (0, -1))
    expect(first.locator("th")).to_have_text("1")
    assert loss.mean[-1] is not None
    expect(last.locator("td").last).to_have_text(f"{loss.mean[-1]:.4g}")
    page.get_by_label("Metric", exact=True).select_option("accuracy")
    expect(chart).to_contain_text("accuracy by round")
    expect(chart.locator("div[role=img]")).to_have_attribute("aria-label", _starts("accuracy by round, last mean 0."))


def test_round_times_and_blocked_time_are_drawn(show: Open, small: PageInput) -> None:
    page = show(small)
    chart = page.locator("#round-chart")
    drawn = ink(page, "#round-chart canvas")
    assert drawn.get("47,127,193", 0) > 100  # a round's time
    assert drawn.get("199,122,18", 0) > 100  # of it blocked
    chart.get_by_text("Show as a table").click()
    row = chart.locator("table.figures tbody tr").nth(5).locator("td")
    expect(row.first).to_have_text("60")  # the table is made when it is opened
    cells = row.all_text_contents()
    assert 2 < float(cells[1]) < 7
    assert cells[2] in {"3", "4"}


def test_many_replicas_have_an_overview_pages_and_filters(show: Open, large: PageInput) -> None:
    page = show(large)
    rows = page.locator("table.replicas tbody tr")
    expect(rows).to_have_count(50)
    drawn = ink(page, "#overview canvas")
    assert drawn["47,127,193"] > 100_000
    assert drawn["199,62,58"] > 150
    page.get_by_role("button", name="next").click()
    expect(rows.first).to_contain_text("50")
    expect(page.get_by_role("button", name="next")).to_be_focused()
    page.get_by_label("Show").select_option("rerun")
    reruns = sum(len(replica.attempts) > 1 for replica in large.replicas)
    expect(rows).to_have_count(reruns)
    page.get_by_label("Rank").fill("11")
    expect(rows).to_have_count(1)
    page.get_by_label("Rank").fill("9999")
    expect(page.locator("#replicas")).to_have_text("No replica matches.")
    page.locator("#overview canvas").click(position={"x": 300, "y": 150})
    expect(page.locator(":focus")).to_have_attribute("data-focus", "replica-150")


def test_the_map_of_many_ranks_shows_every_value_to_mouse_and_keyboard(show: Open, large: PageInput) -> None:
    page = show(large)
    canvas = page.locator("#metric-map canvas").first
    size = canvas.evaluate("(canvas) => [canvas.width, canvas.height]")
    assert size == [60, 200]
    # Empty where a lost replica took no part, else coloured: light for a great loss, dark for a small one.
    picture = "(canvas) => Array.from(canvas.getContext('2d').getImageData(0, 0, 60, 200).data)"
    data = canvas.evaluate(picture)
    empty = sum(data[at + 3] == 0 for at in range(0, len(data), 4))
    assert empty == sum(200 - members for members in large.rounds.members)
    assert sum(data[0:3]) > sum(data[59 * 4 : 59 * 4 + 3]) + 150
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    readout = page.locator("#metric-map .readout")
    expect(readout).to_contain_text("replica 1, round 3: loss ")
    canvas.hover(position={"x": 1, "y": 1})
    expect(readout).to_contain_text("replica 0, round 1: loss 2.")


def test_an_opened_replica_of_many_gets_a_line(show: Open, large: PageInput) -> None:
    page = show(large)
    assert ink(page, "#metric-chart canvas").get("47,127,193", 0) == 0
    page.get_by_role("button", name="Replica 3, details").click()
    assert ink(page, "#metric-chart canvas").get("47,127,193", 0) > 50
    expect(page.locator("#metric-chart .u-legend")).to_contain_text("replica 3")


def test_run_data_cannot_become_markup(show: Open, small: PageInput) -> None:
    attempt = Attempt(
        attempt=1,
        job=f"job{EVIL}",
        launched_at=small.plan.created_at,
        ended_at=small.made_at,
        status="Failed",
        failure_class=FailureClass.USER_CODE,
        reason=EVIL,
        instance_type=EVIL,
    )
    replica = ReplicaView(
        rank=0, state=EVIL, attempts=(attempt,), metrics={EVIL: 1.0}, problem=EVIL, checkpoint_uri=EVIL
    )
    metrics = tuple(metric.model_copy(update={"name": EVIL}) for metric in small.rounds.metrics[:1])
    rounds = small.rounds.model_copy(update={"metrics": metrics})
    page = show(replace(small, replicas=[replica], reason=EVIL, continued_by=EVIL, rounds=rounds))
    page.get_by_role("button", name="Replica 0, details").click()
    page.get_by_text("All data of this page").click()
    page.locator("#metric-chart").get_by_text("Show as a table").click()
    expect(page.get_by_role("table", name="Attempts of replica 0")).to_contain_text(EVIL)
    expect(page.locator("#verdict")).to_contain_text(EVIL)
    expect(page.locator("#metric option")).to_have_text(EVIL)
    assert page.evaluate("window.evil") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 6


def test_the_documents_are_written_out_when_opened_and_can_be_saved(
    show: Open, small: PageInput, tmp_path: Path
) -> None:
    page = show(small)
    assert page.locator("pre").count() == 0
    page.get_by_text("The plan", exact=True).click()
    expect(page.locator("#plan pre")).to_contain_text('"trainer": "training:train"')
    expect(page.locator("#plan pre")).to_contain_text('"API_KEY": "(text, not shown)"')
    page.get_by_text("All data of this page").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="Save sample.json").click()
    download.value.save_as(tmp_path / "saved.json")
    saved = json.loads((tmp_path / "saved.json").read_text(encoding="utf-8"))
    assert saved["replicas"][2]["attempts"][0]["failure_class"] == "infrastructure"
    assert b"swordfish" not in render(make_page(small))


@pytest.mark.parametrize("width", [360, 768, 1280])
@pytest.mark.parametrize("size", ["small", "large"])
def test_nothing_is_wider_than_the_screen(show: Open, request: pytest.FixtureRequest, size: str, width: int) -> None:
    page = show(request.getfixturevalue(size), viewport={"width": width, "height": 800})
    page.get_by_role("button", name="Replica 2, details").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    bar = page.locator("table.replicas tbody tr").first.locator("svg").bounding_box()
    assert bar is not None
    assert bar["width"] > width * 0.45


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(show: Open, small: PageInput, scheme: str) -> None:
    page = show(small, color_scheme=scheme)
    for selector in (
        "body",
        "#verdict",
        ".facts dt",
        "figcaption",
        ".legend",
        ".links a",
        ".replicas th",
        "td .state-succeeded",
    ):
        foreground, ground = page.locator(selector).first.evaluate(
            """(one) => {
              let under = one;
              while (getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)") under = under.parentElement;
              return [getComputedStyle(one).color, getComputedStyle(under).backgroundColor];
            }"""
        )
        # WCAG 2.2 AA: 4.5 to 1 for text.
        assert contrast(foreground, ground) >= 4.5, (selector, foreground, ground)


def test_a_page_follows_a_change_of_the_colour_scheme(show: Open, small: PageInput) -> None:
    page = show(small)
    assert ink(page, "#metric-chart canvas").get("29,33,37", 0) > 50
    page.emulate_media(color_scheme="dark")
    page.wait_for_function("getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 26)'")
    # The charts are drawn anew in one of the next frames.
    wait_until("the dark chart", lambda: ink(page, "#metric-chart canvas").get("231,233,235", 0) > 50)


def test_every_control_has_a_name_and_every_section_a_heading(show: Open, large: PageInput) -> None:
    page = show(large)
    tree = page.locator("body").aria_snapshot()
    for line in ('heading "Replicas over time" [level=2]', 'heading "Metrics"', 'combobox "Show"', 'textbox "Rank"'):
        assert line in tree
    unnamed = page.locator("button, select, input, a, canvas[role], svg[role]").evaluate_all(
        """(all) => all.filter((one) =>
          !(one.getAttribute("aria-label") || one.textContent.trim() || one.labels?.length)).length"""
    )
    assert unnamed == 0
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the timeline")


def test_without_javascript_the_verdict_is_still_there(
    show: Open, small: PageInput, browser: Browser, tmp_path: Path
) -> None:
    show(small)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "report.html").as_uri())
    expect(page.locator("#verdict")).to_contain_text("The run succeeded: 4 of 4 replicas succeeded.")
    expect(page.locator("#facts")).to_contain_text("Cost so far")
    context.close()


def contrast(foreground: str, ground: str) -> float:
    """WCAG's ratio of the relative luminances of two colours `rgb(…)`."""

    def luminance(colour: str) -> float:
        channels = [int(part) / 255 for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(foreground), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _starts(text: str) -> Any:
    return re.compile(f"^{re.escape(text)}")
