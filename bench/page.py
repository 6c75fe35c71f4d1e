"""The pages of large runs in headless Chromium: their sizes, load times, and how smoothly they scroll."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from statistics import median

from playwright.sync_api import Browser

from bench.browser import chromium
from bench.sample_run import sample_run
from bench.table import Row
from muster.report.page_contents import make_page
from muster.report.page_html import render

RUNS = {(1_000, 500): 2.0, (10_000, 100): 6.0}
"""Replicas and rounds, and how many megabytes the page may have."""
_REPETITIONS = 5
_REASON = "InternalServerError: We encountered an internal error. Please try again."

# The longest time between two frames while the page is scrolled from its top to its end.
_SCROLL = """() => new Promise((done) => {
  let last = performance.now(), longest = 0, frames = 0;
  const step = (now) => {
    longest = Math.max(longest, now - last);
    last = now;
    frames += 1;
    scrollBy(0, 120);
    if (scrollY + innerHeight >= document.documentElement.scrollHeight - 1) done({longest, frames});
    else requestAnimationFrame(step);
  };
  requestAnimationFrame((now) => { last = now; requestAnimationFrame(step); });
})"""
# Tasks of more than 50 ms, which the browser reports to the page.
_LONG_TASKS = """
window.tasks = [];
new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((one) => one.duration)))
  .observe({type: "longtask", buffered: true});
"""
_FIRST_PAINT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def run() -> list[Row]:
    """Size, first paint, the time until all is drawn, and the longest frame while scrolling."""
    with tempfile.TemporaryDirectory() as folder, chromium() as browser:
        return [
            row
            for (replicas, rounds), most in RUNS.items()
            for row in _rows(browser, Path(folder), (replicas, rounds, most))
        ]


def _rows(browser: Browser, folder: Path, run: tuple[int, int, float]) -> list[Row]:
    replicas, rounds, most = run
    page_input = sample_run(replicas, rounds, reason=_REASON)
    began = time.perf_counter()
    body = render(make_page(page_input))
    made = time.perf_counter() - began
    path = folder / f"{replicas}.html"
    path.write_bytes(body)
    looks = [_look(browser, path) for _ in range(_REPETITIONS)]
    what = f"{replicas:,} replicas, {rounds} rounds"
    of = f"{what}; median of {_REPETITIONS}, headless Chromium"
    paint, drawn = (median(one[name] for one in looks) / 1000 for name in ("paint", "drawn"))
    return [
        Row("size of the page", len(body) / 1_000_000, "MB", f"<= {most:g}", note=what),
        Row("first contentful paint", paint, "s", "<= 1", note=of),
        Row("until all is drawn", drawn, "s", note=of),
        Row("longest frame while scrolling", max(one["longest"] for one in looks), "ms", "<= 100", note=what),
        Row("longest task while drawing", median(one["task"] for one in looks), "ms", note=of),
        Row("to make the page, once its data is read", made, "s", note=what),
    ]


def _look(browser: Browser, path: Path) -> dict[str, float]:
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(_LONG_TASKS)
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]")
        drawn = float(page.evaluate("performance.now()"))
        scrolled = page.evaluate(_SCROLL)
        return {
            "paint": float(page.evaluate(_FIRST_PAINT)),
            "drawn": drawn,
            "longest": float(scrolled["longest"]),
            "task": float(page.evaluate("Math.max(0, ...window.tasks)")),
        }
    finally:
        context.close()
