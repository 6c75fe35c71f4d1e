"""The page in a real browser: what is drawn, for few and for many replicas, by mouse, keyboard and screen reader."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.sample_run import sample_run
from muster.contract.aws.failure_classes import FailureClass
from muster.contract.run.where import Where
from muster.contract.timestamps import seconds_between
from muster.report.page_contents import make_page
from muster.report.page_html import render
from muster.report.page_model import PageInput, ReplicaView
from tests.support.elastic_run import elastic_run
from tests.support.mixed_run import mixed_run
from tests.support.sample_sweeps import LOST, sample_sweep
from tests.support.waiting import wait_until

EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
Open = Callable[..., Page]


@pytest.fixture
def show(open_file: Open, tmp_path: Path) -> Open:
    """Open a run's page."""

    def shown(page_input: PageInput, **options: Any) -> Page:
        path = tmp_path / "report.html"
        path.write_bytes(_drawn(page_input))
        return open_file(path, **options)

    return shown


_pages: list[tuple[PageInput, bytes]] = []


def _drawn(page_input: PageInput) -> bytes:
    """The page, made once for each of the runs that several tests look at."""
    found = next((body for made, body in _pages if made is page_input), None)
    if found is None:
        found = render(make_page(page_input))
        _pages.append((page_input, found))
    return found


@pytest.fixture(scope="module")
def small() -> PageInput:
    return sample_run(4, 30, reason="InternalServerError: We encountered an internal error.")


@pytest.fixture(scope="module")
def large() -> PageInput:
    return sample_run(1_000, 30, reason="InternalServerError: We encountered an internal error.")


@pytest.fixture(scope="module")
def mixed() -> PageInput:
    return mixed_run(8, 20)


LINES = (
    *(f"step {step} loss 2.{step}" for step in range(35)),
    "Traceback (most recent call last):",
    '  File "/opt/ml/code/training.py", line 41, in train',
    "    loss = model(batch)",
    "ValueError: no data",
)


@pytest.fixture(scope="module")
def failed(small: PageInput) -> PageInput:
    """The same run, of which the last attempt of replica 2 has failed in the trainer."""
    reason = "training.py:41: ValueError: no data"
    replica = small.replicas[2]
    update = {"status": "Failed", "failure_class": FailureClass.USER_CODE, "reason": reason, "last_lines": LINES}
    attempts = (*replica.attempts[:-1], replica.attempts[-1].model_copy(update=update))
    replicas = list(small.replicas)
    replicas[2] = replica.model_copy(update={"state": "failed", "attempts": attempts})
    return replace(small, replicas=replicas, state="failed", reason="1 of 4 replicas failed", parameters_identical=None)


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


def bars(page: Page, rank: int) -> list[tuple[str, float, float, str]]:
    """What is drawn of a replica: the phase, its begin and its end in seconds of the run, and its words."""
    script = """async (rank) => {
      const model = new Model(await unpacked(document.getElementById("data").textContent));
      return segments(model, model.replicas[rank]).map((one) => [one.phase, one.from, one.to, one.what]);
    }"""
    return [tuple(one) for one in page.evaluate(script, rank)]


def test_a_run_that_succeeded_answers_its_questions_in_words(show: Open, small: PageInput) -> None:
    page = show(small)
    expect(page.locator("h1")).to_contain_text("sample succeeded")
    expect(page.locator("#verdict")).to_have_text(make_page(small).verdict)
    facts = page.locator("#facts")
    speed = ("30 of 30", "Speed", "7,500 tokens/s", "in the last 15 rounds; 13.8 million tokens so far")
    for text in ("Rounds", *speed, "Cost", "≤ $3.", "Utilisation", "93%"):
        expect(facts).to_contain_text(text)
    assert page.title() == "sample: succeeded"
    answers = page.locator(".answers")
    expect(answers.locator("dt:visible")).to_have_text(["Did it work?", "Where did the time go?"])
    expect(answers.locator("#time")).to_contain_text("Replica 3 was the last in 25 of 30 rounds")
    expect(answers.locator("#time")).not_to_contain_text("was training")  # the bar above says it
    shares = answers.get_by_role("img", name="Where the time of all replicas went").get_attribute("aria-label") or ""
    assert re.search(r"training 6\d%, waiting for other replicas 1\d%, exchanging \d%, saving \d%", shares)
    # It is no sweep, and none of its jobs is on a cluster.
    expect(page.locator("#sweep")).to_be_hidden()
    expect(page.locator("#legend")).not_to_contain_text("operator")


def test_a_run_that_failed_says_why_and_shows_the_end_of_its_log(show: Open, failed: PageInput) -> None:
    page = show(failed)
    expect(page.locator(".answers dt:visible")).to_have_text(["Did it work?", "Why not?", "Where did the time go?"])
    why = "Replica 2: user-code: training.py:41: ValueError: no data. muster logs sample --rank 2 shows its log."
    expect(page.locator("#problems")).to_have_text(why)
    expect(page.locator("#problems code")).to_have_text("muster logs sample --rank 2")
    lines = page.locator("#evidence")
    text = lines.locator("pre")
    expect(text).to_be_visible()
    expect(text).to_contain_text('File "/opt/ml/code/training.py", line 41, in train')
    wait_until("its end", lambda: text.evaluate("(one) => one.scrollTop + one.clientHeight >= one.scrollHeight - 2"))
    expect(lines).to_contain_text("muster logs sample --rank 2")


def test_a_bar_is_divided_into_what_the_replica_did_and_says_so(show: Open, small: PageInput) -> None:
    page = show(small)
    plain, waited, rerun = (bars(page, rank) for rank in (0, 1, 2))
    assert [one[0] for one in plain[:5]] == ["capacity", "starting", "other", "loading", "training"]
    assert plain[1][1:3] == pytest.approx((40, 90))
    assert {one[0] for one in plain} == {
        *("capacity", "starting", "loading", "training", "waiting", "exchanging", "saving", "other")
    }
    # One after the other, without a gap.
    assert all(before[2] == pytest.approx(after[1], abs=0.01) for before, after in pairwise(plain))
    assert "round 2: waiting for replica 3" in {one[3] for one in plain}
    assert not any(one[0] == "waiting" and one[3].startswith("round 2:") for one in bars(page, 3))
    # Refused for quota, then a wait, then a job like any other.
    assert [one[0] for one in waited][:4] == ["capacity", "capacity", "broken", "capacity"]
    assert [one[3] for one in waited[1:4]] == ["waits for quota", "attempt 1 ended: quota", "waits for quota"]
    lost = small.replicas[2].attempts[0]
    [broken] = [one for one in rerun if one[0] == "broken"]
    assert broken[3] == "attempt 1 ended: infrastructure"
    assert lost.ended_at is not None
    assert broken[1] == pytest.approx(seconds_between(small.plan.created_at, lost.ended_at))
    wait = rerun[rerun.index(broken) + 1]
    assert (wait[0], wait[3]) == ("capacity", "waits for a rerun after infrastructure")
    assert wait[2] - wait[1] == pytest.approx(30)
    # It says so in its label and under the pointer.
    label = page.get_by_role("img", name="Replica 2, succeeded").get_attribute("aria-label") or ""
    assert "attempt 1 ended: infrastructure" in label
    first = page.locator("tbody canvas.bar").first
    assert ink(page, "tbody canvas.bar").get("47,127,193", 0) > 500
    [part] = [one for one in bars(page, 0) if one[3] == "round 7: waiting for replica 3"]
    box, total = first.bounding_box(), bars(page, 0)[-1][2]
    assert box is not None
    first.hover(position={"x": (part[1] + part[2]) / 2 / total * box["width"], "y": 12})
    expect(page.locator(".tip")).to_have_text(re.compile(r"^round 7: waiting for replica 3, \d+(\.\d)? s$"))
    expect(page.locator("thead canvas.bar")).to_have_attribute("data-rounds", "30")


def test_replicas_are_sorted_and_found(show: Open, large: PageInput) -> None:
    page = show(large)
    rows = page.locator("table.replicas tbody tr")
    column = page.get_by_role("columnheader", name="was last")
    column.get_by_role("button").press("Enter")
    expect(column).to_have_attribute("aria-sort", "descending")
    expect(column.get_by_role("button")).to_be_focused()
    expect(rows.first).to_have_attribute("data-rank", "3")
    column.get_by_role("button").press("Enter")
    expect(column).to_have_attribute("aria-sort", "ascending")
    page.get_by_role("columnheader", name="replica").get_by_role("button").click()
    find = page.get_by_label("Find")
    find.fill("7, 998-2000")
    expect(rows).to_have_count(3)
    find.fill("InternalServer")
    expect(rows.first).to_have_attribute("data-rank", "2")
    # On a phone there are no headings to click.
    page = show(large, viewport={"width": 360, "height": 800})
    page.get_by_label("Sort by").select_option("last")
    expect(page.locator("table.replicas tbody tr").first).to_have_attribute("data-rank", "3")


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
    for name, end in (("job", "#/jobs/muster-sample-r2-a1"), ("logs", "NameFilter$3Dmuster-sample-r2-a1$252F")):
        href = attempts.get_by_role("link", name=name).first.get_attribute("href") or ""
        assert href.endswith(end), href
    page.keyboard.press("Enter")
    expect(attempts).to_have_count(0)


def test_metrics_are_drawn_per_rank_and_merged_and_can_be_read_as_a_table(show: Open, small: PageInput) -> None:
    page = show(small)
    assert [page.evaluate(f"niceTicks({top})") for top in (0.37, 31, 0)] == [[0, 0.1, 0.2, 0.3], [0, 10, 20, 30], [0]]
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


def test_a_chart_shows_how_updates_agree_and_what_the_codec_loses(show: Open, small: PageInput) -> None:
    expect(show(small).locator("#update-chart")).to_be_hidden()  # its replicas have not said it
    shares = {one.name: one for one in small.rounds.metrics if one.name in {"accuracy", "utilisation"}}
    names = {"accuracy": "update_cosine", "utilisation": "codec_error"}
    renamed = tuple(one.model_copy(update={"name": names[name]}) for name, one in shares.items())
    rounds = small.rounds.model_copy(update={"metrics": (*small.rounds.metrics, *renamed)})
    page = show(replace(small, rounds=rounds))
    chart = page.locator("#update-chart")
    expect(chart.locator("figcaption")).to_contain_text("(1: all alike) with its range over the replicas; and what the")
    drawn = ink(page, "#update-chart canvas")
    for wanted in ("29,33,37", "43,156,140"):
        assert drawn.get(wanted, 0) > 50, wanted
    chart.get_by_text("Show as a table").click()
    cells = chart.locator("table.figures tbody tr").last.locator("td")
    last = [shares["accuracy"].high, shares["accuracy"].low, shares["accuracy"].mean, shares["utilisation"].mean]
    expect(cells).to_have_text([f"{float(f'{values[-1]:.4g}'):g}" for values in last])


def test_rounds_show_where_the_time_went_and_who_was_last(show: Open, small: PageInput) -> None:
    page = show(small)
    chart = page.locator("#round-chart")
    drawn = ink(page, "#round-chart canvas")
    for wanted in ("47,127,193", "229,138,43", "43,156,140", "194,69,107"):  # the last one: the colour of replica 3
        assert drawn.get(wanted, 0) > 300, wanted
    canvas = chart.locator("canvas")
    canvas.focus()
    page.keyboard.press("Home")
    expect(chart.locator(".readout")).to_contain_text("round 1: 3 min 30 s, 4 replicas: training ")
    expect(chart.locator(".readout")).to_contain_text("launch ")
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".readout")).to_contain_text(" s, exchanging 3 s, saving 1.2 s, waiting for ")
    expect(chart.locator(".readout")).to_contain_text("; replica 3 was the last")
    chart.get_by_text("Show as a table").click()
    row = chart.locator("table.figures tbody tr").nth(5).locator("td")
    expect(row.nth(4)).to_be_visible()  # opening a table is an event of its own: the page fills it afterwards
    assert [float(cell) for cell in row.all_text_contents()][2:5] == [3.0, 1.2, 0.0]


def test_a_run_over_places_says_where_each_attempt_was_and_links_what_is_at_home(show: Open, small: PageInput) -> None:
    wheres = [Where(place="oregon", spot=True, why="the first rung"), Where(why="its share")]
    replicas = [
        replica.model_copy(
            update={"attempts": tuple(one.model_copy(update={"where": where}) for one in replica.attempts)}
        )
        for replica, where in zip(small.replicas, [*wheres, *wheres], strict=True)
    ]
    page = show(replace(small, replicas=replicas))
    for rank, words, why in ((0, "in oregon, spot", "the first rung"), (1, "at home", "its share")):
        expect(page.locator(f"tr[data-rank='{rank}']")).to_contain_text(words)
        details = page.get_by_role("button", name=f"Replica {rank}, details")
        details.click()
        attempts = page.locator("table.attempts")
        expect(attempts).to_contain_text(f"{words}: {why}")
        expect(attempts.get_by_role("link", name="job")).to_have_count(rank)
        details.click()


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
    expect(page.locator("#pages")).to_contain_text(f"1–50 of {reruns}")
    page.get_by_label("Find").fill("11")
    expect(rows).to_have_count(1)
    page.get_by_label("Find").fill("9999")
    expect(page.locator("#replicas")).to_have_text("No replica matches.")
    page.locator("#overview canvas").click(position={"x": 300, "y": 180})
    expect(page.locator(":focus")).to_have_attribute("data-focus", "replica-500")


def test_the_map_of_many_ranks_shows_every_value_and_an_opened_one_gets_a_line(show: Open, large: PageInput) -> None:
    page = show(large)
    canvas = page.locator("#metric-map canvas").first
    size = canvas.evaluate("(canvas) => [canvas.width, canvas.height]")
    assert size == [30, 1000]
    # Empty where a lost replica took no part.
    drawn = sum(ink(page, "#metric-map canvas").values())
    assert drawn == sum(large.rounds.members)
    canvas.focus()
    for key in ("ArrowDown", "ArrowRight", "ArrowRight"):
        page.keyboard.press(key)
    readout = page.locator("#metric-map .readout")
    expect(readout).to_contain_text("replica 1, round 3: loss ")
    # A replica that is opened gets a line.
    assert ink(page, "#metric-chart canvas").get("47,127,193", 0) == 0
    page.get_by_role("button", name="Replica 3, details").click()
    assert ink(page, "#metric-chart canvas").get("47,127,193", 0) > 50
    expect(page.locator("#metric-chart .u-legend")).to_contain_text("replica 3")


def test_run_data_cannot_become_markup(show: Open, small: PageInput) -> None:
    update = {"job": f"job{EVIL}", "reason": EVIL, "instance_type": EVIL, "failure_class": FailureClass.USER_CODE}
    attempt = small.replicas[0].attempts[-1].model_copy(update={**update, "status": "Failed"})
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
    assert page.locator("script").count() == 10


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
    # The replicas, which the page stores as columns, are as they were.
    made = make_page(small).model_dump(mode="json", exclude_defaults=True)["replicas"]
    assert saved["replicas"] == json.loads(json.dumps(made))
    assert b"swordfish" not in render(make_page(small))


# Texts that lie on each other: of elements that hold text themselves, and none of which contains the other.
_OVERLAPS = """() => {
  const holds = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
  const shown = (one) => holds(one) && one.offsetParent && !one.closest(".skip, .u-legend");
  const boxes = [...document.querySelectorAll("body *")].filter(shown)
    .map((one) => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width && box.height);
  const found = [];
  boxes.forEach(([one, a], at) => boxes.slice(at + 1, at + 60).forEach(([other, b]) => {
    if (one.contains(other) || other.contains(one)) return;
    const across = Math.min(a.right, b.right) - Math.max(a.left, b.left);
    const down = Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top);
    if (across > 1 && down > 2) found.push([one.textContent.slice(0, 40), other.textContent.slice(0, 40)]);
  }));
  return found;
}"""


def test_nothing_is_wider_than_the_screen(
    show: Open, small: PageInput, failed: PageInput, large: PageInput, mixed: PageInput
) -> None:
    for width, run in product((360, 768, 1280), (small, failed, large, mixed)):
        page = show(run, viewport={"width": width, "height": 800})
        page.get_by_role("button", name="Replica 2, details").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        bar = page.locator("table.replicas tbody tr").first.locator("canvas").bounding_box()
        assert bar is not None
        assert bar["width"] > width * 0.4
        assert page.evaluate(_OVERLAPS) == [], width


TEXTS = [
    *("body", "#verdict", ".facts dt", "figcaption", ".legend", ".links a", ".replicas th", ".replicas th button.sort"),
    *(".answers dt", ".answers .legend b", "td .state-succeeded"),
]
_COLOURS = """(one) => {
  let under = one;
  while (getComputedStyle(under).backgroundColor === "rgba(0, 0, 0, 0)") under = under.parentElement;
  return [getComputedStyle(one).color, getComputedStyle(under).backgroundColor];
}"""


def test_text_stands_out_from_its_ground_and_follows_a_change_of_the_scheme(show: Open, small: PageInput) -> None:
    page = show(small)
    assert ink(page, "#metric-chart canvas").get("29,33,37", 0) > 50
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        is_dark = "getComputedStyle(document.body).backgroundColor === 'rgb(20, 23, 26)'"
        wait_until(scheme, lambda: page.evaluate(is_dark) == (scheme == "dark"))  # noqa: B023 - called at once
        for selector in TEXTS:
            text, under = page.locator(selector).first.evaluate(_COLOURS)
            # WCAG 2.2 AA: 4.5 to 1 for text.
            assert contrast(text, under) >= 4.5, (scheme, selector, text, under)
    # The charts are drawn anew in one of the next frames.
    wait_until("the dark chart", lambda: ink(page, "#metric-chart canvas").get("231,233,235", 0) > 50)


def test_every_control_has_a_name_and_every_section_a_heading(show: Open, large: PageInput) -> None:
    page = show(large)
    tree = page.locator("body").aria_snapshot()
    for line in ('heading "Replicas over time" [level=2]', 'heading "Metrics"', 'combobox "Show"', 'textbox "Find"'):
        assert line in tree
    unnamed = page.locator("button, select, input, a, canvas[role]").evaluate_all(
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
    expect(page.locator("#facts")).to_contain_text("Cost")
    expect(page.locator("#time")).to_contain_text("of the time of all replicas was training")
    # What only a script fills is no empty box.
    expect(page.locator("#rounds, #metrics").and_(page.locator(":visible"))).to_have_count(0)
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


def test_a_sweep_is_side_by_side(show: Open) -> None:
    page = show(sample_sweep(4, 20))
    section = page.locator("#sweep")
    heads = [text.replace(" ▲", "") for text in section.locator("thead th").all_inner_texts()]
    assert heads == ["replica", "lr", "schedule", "seed", "accuracy", "loss", "state", "attempts", "time", "cost"]
    rows = section.locator("tbody tr")
    assert [cell.strip() for cell in rows.nth(1).locator("th, td").all_inner_texts()][1:3] == ["0.0002", "cosine"]
    assert section.locator(".best").count() == 2
    assert rows.nth(LOST).locator("td").nth(3).inner_text() == "–"
    expect(page.locator("#metric-chart .u-legend")).to_contain_text("2: lr 0.0004, schedule linear, seed 2")
    expect(page.locator("#metric-chart .u-legend")).not_to_contain_text("weighted mean")
    expect(page.locator("#rounds")).to_be_hidden()
    for _ in range(2):
        section.get_by_role("button", name="lr").click()
    assert [row.get_attribute("data-rank") for row in rows.all()] == ["3", "2", "1", "0"]
    # What is missing comes last in both directions.
    for _ in range(2):
        section.get_by_role("button", name="loss").click()
        assert rows.last.get_attribute("data-rank") == str(LOST)


def test_a_large_sweep_begins_with_the_best_and_fits_every_screen(show: Open) -> None:
    page = show(sample_sweep(64, 20, text=f"{EVIL} {'long' * 40}"), viewport={"width": 390, "height": 844})
    rows = page.locator("#sweep tbody tr")
    assert rows.count() == 64
    assert "★" in rows.first.inner_text()
    expect(page.locator("#metric-chart figcaption")).to_contain_text("12 of 64 replicas")
    assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    assert not page.evaluate("window.evil")


def test_a_mixed_run_shows_what_happens_to_its_jobs_on_a_cluster(show: Open, mixed: PageInput) -> None:
    page = show(mixed)
    row = page.locator('tr[data-rank="5"]')
    expect(row).to_contain_text("on ml-cluster")
    row.get_by_role("button").click()
    details = page.locator("tr.details")
    expect(details).to_contain_text("on ml-cluster, namespace hyperpod-ns-team-a, queue hyperpod-ns-team-a-localq")
    expect(page.locator('tr[data-rank="0"]')).not_to_contain_text("on ml-cluster")
    scaled = re.compile(r"trains on 2 instances, trains on 4 inst")
    expect(row.locator("canvas")).to_have_attribute("aria-label", scaled)
    restarted = page.locator('tr[data-rank="4"] canvas')
    expect(restarted).to_have_attribute("aria-label", re.compile("restarted by the operator: NodeFault"))
    expect(page.locator("#legend")).to_contain_text("restarted by the operator")
    link = details.get_by_role("link", name="cluster").first
    expect(link).to_have_attribute("href", re.compile("#/cluster-management/ml-cluster$"))
    expect(page.get_by_role("link", name="The cluster ml-cluster")).to_be_visible()


def test_the_seats_of_an_elastic_run_are_drawn_read_and_never_one_row_each(show: Open) -> None:
    page = show(elastic_run(10_000))
    seats = page.locator("#seats")
    expect(seats.locator("#seat-groups li")).to_have_text(
        [
            "6 training (0-5)",
            "2 waiting for ml.p5.48xlarge (6-7), next look 04:50 UTC",
            "9,992 parked, not wanted (8-9999)",
        ]
    )
    expect(page.locator("#replicas tbody tr")).to_have_count(10)
    chart = seats.locator("#seats-chart canvas")
    chart.focus()
    page.keyboard.press("End")
    for _ in range(10):
        page.keyboard.press("ArrowLeft")
    expect(seats.locator(".readout")).to_have_text("1 h 10 min: 8 wanted, 5 took part in round 34, 5-7 open")
    seats.locator("#seats-chart summary").click()
    expect(seats.locator("#seats-chart tbody tr")).to_have_count(3)
    expect(seats.locator("#value-chart figcaption")).to_contain_text("In round 43, a dollar paid for 124k tokens.")
    label = page.locator('#replicas tr[data-rank="5"] canvas').get_attribute("aria-label")
    assert label is not None
    assert "ended" not in label, "a seat that was closed did not fail"
    assert show(elastic_run(), viewport={"width": 390, "height": 800}).evaluate(
        "document.documentElement.scrollWidth <= innerWidth"
    )


def test_a_run_of_a_fixed_number_shows_no_seats(show: Open, small: PageInput) -> None:
    expect(show(small).locator("#seats")).to_be_hidden()
