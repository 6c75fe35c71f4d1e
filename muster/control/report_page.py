"""The page of a settled run, written beside its result. The settlement stands without it, so it may fail."""

from __future__ import annotations

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.runtime.function import logger
from muster.control.runtime.time_budget import Deadline

# Of a function's time; a page of a thousand replicas and 500 rounds takes a few seconds.
_SECONDS = 90.0


def publish_page(run: ActiveRun, result: Result, deadline: Deadline) -> str | None:
    """Write the page, once; its URI, or None where there is none. At the `deadline` it goes without what was not read.

    Replicas write what it shows of rounds: whatever lies there must not keep a run from its end.
    """
    documents = run.documents
    key = documents.layout.page
    try:
        if not documents.store.count(key):
            # Drawing needs modules for which no cold start of a function should wait.
            from muster.control.report_input import drawn_page  # noqa: PLC0415

            page = drawn_page(run, result, Deadline.after(min(_SECONDS, deadline.remaining)))
            documents.store.create(key, page, "text/html; charset=utf-8")
    except Exception:
        logger.exception("page not written")
        return None
    return documents.store.uri(key)
