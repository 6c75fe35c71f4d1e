"""The page of a settled run, written beside its result. The settlement stands without it, so it may fail."""

from __future__ import annotations

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger
from muster.control.runtime.time_budget import TimeBudget

# Of a function's time; a page of a thousand replicas and 500 rounds takes a few seconds.
_SECONDS = 90.0


def page_of(run: ActiveRun) -> str | None:
    """The URI of the run's page; None while there is none."""
    documents = run.documents
    return documents.store.uri(documents.layout.page) if documents.store.count(documents.layout.page) else None


def publish_page(run: ActiveRun, result: Result, budget: TimeBudget) -> str | None:
    """Write the page, once; its URI, or None where that failed. What is not read within the budget is left out.

    Replicas write what the page shows of rounds: nothing that lies there may keep a run from its end.
    """
    documents = run.documents
    key = documents.layout.page
    try:
        # Drawing needs modules for which no cold start of a function should wait.
        from muster.control.report_input import drawn_page  # noqa: PLC0415

        page = drawn_page(run, result, TimeBudget.of(min(_SECONDS, budget.remaining)))
        documents.store.create(key, page, "text/html; charset=utf-8")
    except Exception:
        logger.exception("page not written")
        return None
    return documents.store.uri(key)
