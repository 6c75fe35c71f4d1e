"""The page of a settled run, written beside its result. The settlement does not depend on it, so it may fail."""

from __future__ import annotations

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger
from muster.control.runtime.time_budget import TimeBudget

# A page of a thousand replicas and 500 rounds takes a few seconds.
_SECONDS = 90.0


def page_of(run: ActiveRun) -> str | None:
    """The URI of the run's page; None where it is not written yet, or S3 does not answer."""
    documents = run.documents
    try:
        return documents.store.uri(documents.layout.page) if documents.store.count(documents.layout.page) else None
    except Exception:
        logger.exception("page not looked up")
        return None


def publish_page(run: ActiveRun, result: Result, budget: TimeBudget) -> str | None:
    """Write the page, once; its URI, or None where that failed. Data that cannot be read within the budget is left out.

    The page shows data that replicas wrote, and no such data may prevent the settlement of a run.
    """
    documents = run.documents
    key = documents.layout.page
    try:
        # Imported here, because a cold start should not wait for the modules that draw the page.
        from muster.control.reporting.report_input import drawn_page  # noqa: PLC0415

        page = drawn_page(run, result, TimeBudget.of(min(_SECONDS, budget.remaining)))
        documents.store.create(key, page, "text/html; charset=utf-8")
    except Exception:
        logger.exception("page not written")
        return None
    return documents.store.uri(key)
