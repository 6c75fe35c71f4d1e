"""`muster ui` in a real browser: the page follows the run, and leaves its reader where they are."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from muster.client.client_errors import UnreachableError
from tests.support.live_run import LiveRun, served
from tests.support.waiting import wait_until


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.new_page() as opened:
        yield opened


def test_a_live_page_follows_the_run_to_its_end_without_moving_its_reader(page: Page) -> None:
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    run = LiveRun(replicas=4, rounds=10)
    with served(run) as server:
        page.goto(server.url)
        page.wait_for_selector("html[data-ready]")
        expect(page.locator("#verdict")).to_contain_text("The run is in progress")
        page.get_by_label("Metric", exact=True).select_option("accuracy")
        button = page.get_by_role("button", name="Replica 2, details")
        button.press("Enter")
        run.go_on(12)
        expect(page.locator("#facts")).to_contain_text("12committed")
        expect(page.locator("thead canvas.bar")).to_have_attribute("data-rounds", "12")
        expect(button).to_be_focused()
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(page.get_by_label("Metric", exact=True)).to_have_value("accuracy")
        run.go_on(14, "succeeded")
        expect(page.locator("#state")).to_have_text("succeeded")
        # Said aloud to who does not see it.
        expect(page.get_by_role("status")).to_contain_text("The run succeeded")
        assert page.title() == "sample: succeeded"
    assert not errors


def test_a_live_page_says_what_keeps_it_from_news_and_keeps_what_it_shows(page: Page) -> None:
    run = LiveRun()
    with served(run) as server:
        page.goto(server.url)
        page.wait_for_selector("html[data-ready]")
        # It has asked before: after the trouble there is nothing new for it.
        wait_until("the second request", lambda: run.looks >= 2)
        run.trouble = UnreachableError("Nothing answers at https://states")
        expect(page.get_by_role("status")).to_contain_text("Nothing answers at https://states.")
        run.trouble = None
        expect(page.get_by_role("status")).to_contain_text("The run is in progress")
    expect(page.get_by_role("status")).to_contain_text("does not answer")
    expect(page.locator("table.replicas tbody tr")).to_have_count(2)
