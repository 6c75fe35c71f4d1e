"""The end of a run: one function for the workflow's last task, for an ended execution and for the sweep."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, TypeVar

from botocore.exceptions import BotoCoreError, ClientError
from pydantic import Field

from muster.contract.run.result import Result
from muster.control.active_run import ActiveRun
from muster.control.aws.aws_errors import patiently
from muster.control.control_plane import ControlPlane
from muster.control.ended_runs import enter_ended_run
from muster.control.reporting.announcements import announce_run_ended
from muster.control.run_result import write_result
from muster.control.runtime.clock import TimeBudget
from muster.control.runtime.function import RunRequest, count, logger
from muster.control.stop import stop_remaining

R = TypeVar("R")

_SHARE_FOR_JOBS = 0.5  # of the time budget
# A page of a thousand replicas and 500 rounds takes a few seconds.
PAGE_SECONDS = 90.0
# Of the workflow's task, for what is left after the result: eight minutes at most where each fails at once. The sweep
# does not look at an execution that has succeeded.
RETRIES_FOR_THE_REST = 8


class UnfinishedError(Exception):
    """A step after the result of a run failed; the function will be called again."""


class SettleRequest(RunRequest):
    """What the workflow's last task sends."""

    retry: Annotated[int, Field(ge=0)] = RETRIES_FOR_THE_REST
    """How often the task was tried before."""


@dataclass(frozen=True)
class Finished:
    """A run that has ended."""

    result: Result
    page_uri: str | None
    continued_by: str | None
    left: tuple[str, ...] = ()
    """What could not be done, each with its error. The result stands; a later call does the rest."""


@dataclass
class _Steps:
    """The steps after the result, each tried until the time is spent. None of them may change how the run ended."""

    budget: TimeBudget
    left: list[str] = field(default_factory=list)

    def answer(self, what: str, step: Callable[[], R]) -> R | None:
        """The answer of a step; None where it failed."""
        try:
            return patiently(step, self.budget)
        except Exception as error:
            logger.exception("a step after the result failed", extra={"step": what})
            count("RunEndIncomplete")
            self.left.append(f"{what}: {error}")
            return None

    def do(self, what: str, step: Callable[[], object]) -> bool:
        """Whether a step succeeded."""
        before = len(self.left)
        self.answer(what, step)
        return len(self.left) == before


def settle(plane: ControlPlane, run: ActiveRun, retry: int, budget: TimeBudget) -> Finished:
    """What the workflow's last task does, after `retry` tries before.

    Raises:
        UnfinishedError: a step after the result failed, and the next try comes soon.
        Exception: what `write_result` raises. No result was written.
    """
    finished = finish_run(plane, run, budget)
    if finished.left and retry < RETRIES_FOR_THE_REST:
        raise UnfinishedError("; ".join(finished.left))
    return finished


def finish_run(
    plane: ControlPlane, run: ActiveRun, budget: TimeBudget, *, verified: bool | None = None, cancelled: bool = False
) -> Finished:
    """Settle the run; free its place in the queue, announce and list its end, stop what is left, continue it.

    The page of the run is written last.

    The result is written first, and nothing that fails after it changes or hides it: the error is in `left`. Every step
    is idempotent. When nothing is left to do, the run is marked as finished; until then the sweep finds it again,
    unless its execution succeeded.

    `verified` says whether no job of the run is active, where the caller has checked that; otherwise jobs that are left
    are stopped here. No continuation is started while jobs may be active, because it would share their rendezvous.
    `cancelled`: a user has stopped the execution, so a continuation that was started meanwhile is stopped.

    Raises:
        Exception: what `write_result` raises. No result was written.
    """
    # Throttled calls of SageMaker must not use up the time for reading the manifests.
    plane.allow(TimeBudget.of(budget.remaining * _SHARE_FOR_JOBS))
    result = write_result(run, budget)
    steps = _Steps(plane.allow(TimeBudget.of(budget.remaining - PAGE_SECONDS)))
    queue = plane.queue
    if queue is not None:
        steps.do("leave the run queue", lambda: queue.leave(run.plan.execution_arn))
    page_uri = page_of(run)
    # Versions before the mark wrote the page after the announcement.
    if page_uri is None and not steps.answer("see whether its end was announced", run.documents.is_announced):
        announce_run_ended(plane.bus, run, result)
        steps.do("mark its end as announced", run.documents.mark_announced)
    if verified is None:
        verified = steps.do("stop the jobs that are left", lambda: stop_remaining(run, steps.budget))
    for service in run.backends.beside_training(run.plan.spec) if verified else ():
        verified = steps.do(service.clearing, partial(service.clear_up, run.plan, steps.budget)) and verified
    continued_by = None
    if verified:
        continued_by = steps.answer("continue the run", lambda: plane.continuation_start.start_next(run, result))
    if cancelled:
        # The workflow's last task may have started it during the cancellation.
        steps.do("stop its continuation", lambda: plane.continuation_start.stop_next(run, result))
    steps.do("list it among the runs that have ended", lambda: enter_ended_run(run, result, continued_by))
    page_uri = page_uri or steps.answer("write its page", lambda: publish_page(run, result, budget))
    if verified and not steps.left:
        steps.do("mark its end as complete", run.documents.mark_finished)
    return Finished(result, page_uri, continued_by, tuple(steps.left))


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
