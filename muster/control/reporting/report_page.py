"""The page of a settled run, written beside its result. The settlement does not depend on it."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger
from muster.control.runtime.time_budget import TimeBudget

# A page of a thousand replicas and 500 rounds takes a few seconds.
PAGE_SECONDS = 90.0


def page_of(run: ActiveRun) -> str | None:
    """The URI of the run's page; None where it is not written yet, or S3 does not answer."""
    documents = run.documents
    try:
        return documents.store.uri(documents.layout.page) if documents.store.count(documents.layout.page) else None
    except Exception:
        logger.exception("page not looked up")
        return None


def publish_page(run: ActiveRun, result: Result, budget: TimeBudget) -> str | None:
    """Write the page, once; its URI. Data that cannot be read within the budget is left out.

    None where it cannot be drawn: it shows data that replicas wrote, and no such data may keep a run from its end.

    Raises:
        ClientError, BotoCoreError: S3 refused a read or the write; a later call may succeed.
    """
    documents = run.documents
    key = documents.layout.page
    try:
        # Imported here, because a cold start should not wait for the modules that draw the page.
        from muster.control.reporting.report_input import drawn_page  # noqa: PLC0415

        page = drawn_page(run, result, TimeBudget.of(min(PAGE_SECONDS, budget.remaining)))
    except (ClientError, BotoCoreError):
        raise
    except Exception:
        logger.exception("page not drawn")
        return None
    documents.store.create(key, page, "text/html; charset=utf-8")
    return documents.store.uri(key)
