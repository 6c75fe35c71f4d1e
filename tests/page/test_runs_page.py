"""The page of many runs in a real browser: figures, charts, filter, order, three widths, light and dark."""

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from muster.client.runs.run_list import RunSummary
from muster.client.runs.run_state import RunState
from muster.client.runs.runs_page import render_runs, runs_page
from tests.support.sample_runs import STACK, sample_runs

EVIL = "</script><script>window.evil=1</script><img src=x onerror='window.evil=1'>"
SAMPLE = sample_runs(260)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "runs.html"
    evil = SAMPLE[-1].model_copy(update={"run": "evil", "reason": EVIL})
    path.write_bytes(render_runs(runs_page(STACK, [*SAMPLE[:-1], evil], more=True)))
    return path


@pytest.fixture
def page(open_file: Callable[..., Page], file: Path) -> Page:
    return open_file(file)


def names(page: Page) -> list[str]:
    return page.locator(".runs tbody a").all_inner_texts()


def fact(page: Page, label: str) -> str:
    return page.locator(f"#facts div:has(dt:text-is('{label}')) dd").inner_text()


def ended(runs: list[RunSummary], *states: RunState) -> list[RunSummary]:
    return [run for run in runs if run.state in states]


def test_figures_and_charts_follow_the_filter(page: Page) -> None:
    assert page.locator("#summary").inner_text().startswith("260 runs since 2026-09-18 in us-west-2; older ones")
    succeeded, failed = (ended(SAMPLE, state) for state in (RunState.SUCCEEDED, RunState.FAILED))
    assert fact(page, "Succeeded").startswith(f"{round(100 * len(succeeded) / 259)} %\n{len(succeeded)} of 259 ")
    assert fact(page, "Cost") == f"${sum(run.usd or 0 for run in SAMPLE):,.2f}"
    assert page.locator("#times circle").count() == 260
    days = {run.started_at[:10] for run in SAMPLE[1:]}
    assert page.locator("#cost svg").get_attribute("aria-label").startswith("Cost by day: ")  # type: ignore[union-attr]
    assert page.locator("#cost rect").count() >= len(days)

    page.get_by_label("State").select_option("failed")
    assert page.locator("#times circle").count() == len(failed)
    assert set(page.locator("#cost rect").evaluate_all("all => all.map((one) => one.getAttribute('class'))")) == {
        "bar-failed"
    }
    assert fact(page, "Cost") == f"${sum(run.usd or 0 for run in failed):,.2f}"
    page.get_by_label("Failure").select_option("spot")
    spot = [run for run in failed if any(one.failure_class == "spot" for one in run.failures)]
    assert names(page) == [run.run for run in spot]
    reruns = sum(one.reruns for run in spot for one in run.failures)
    assert fact(page, "Reruns").startswith(f"{reruns}\nspot ×")
    page.get_by_label("Name or reason").fill("NO ROWS")
    assert names(page) == [run.run for run in spot]
    page.get_by_label("Name or reason").fill("nothing has this")
    expect(page.locator("#summary")).to_have_text("No run meets these conditions.")
    assert page.evaluate("window.evil") is None


def test_the_table_sorts_by_each_column_by_mouse_and_keyboard(page: Page) -> None:
    assert names(page)[:2] == ["gpt-0000", "gpt-0001"]
    cost = page.get_by_role("button", name="Cost")
    cost.click()
    dearest = sorted((run for run in SAMPLE[1:-1]), key=lambda run: -(run.usd or 0))
    assert names(page)[0] == dearest[0].run
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Cost")
    page.keyboard.press("Enter")  # the heading keeps the focus
    assert names(page)[0] == dearest[-1].run
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Cost")
    assert len(names(page)) == 200
    page.get_by_role("button", name="Show 60 more of 60").click()
    assert len(names(page)) == 260
    assert names(page)[-1] == "gpt-0000", "what is not known comes last"


def test_the_page_fits_every_width_in_both_colours(page: Page) -> None:
    for width in (390, 820, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        grounds = []
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            grounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert len(set(grounds)) == 2
        chart = page.locator("#cost svg").bounding_box()
        assert chart is not None
        assert chart["width"] <= width
