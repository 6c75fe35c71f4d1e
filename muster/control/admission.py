"""Joining and leaving the run queue: compare-and-swap on its document, and a task token for each queued run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from muster.contract.layout import RunLayout
from muster.contract.names import RUN_MAX
from muster.contract.run.run_queue import QUEUE_KEY, Queue, QueuedRun, QueueToken
from muster.control.aws.store import Store
from muster.control.aws.task_tokens import Token, Tokens
from muster.control.documents import RunDocuments
from muster.control.runtime import clock

if TYPE_CHECKING:
    from muster.control.control_plane import ControlPlane


class AdmitRequest(BaseModel):
    """What the workflow sends."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    run: Annotated[str, Field(min_length=1, max_length=RUN_MAX)]
    token: Token


def admit(plane: ControlPlane, request: AdmitRequest) -> bool:
    """Put a run into the queue, or admit it at once where there is none; whether it may launch its replicas now."""
    # Not by plane.runs, which needs a client of SageMaker.
    plan = RunDocuments(plane.store, request.run).require_plan()
    if plane.queue is None:
        plane.tokens.release(request.token)
        return True
    queued = QueuedRun(
        run=plan.run, execution_arn=plan.execution_arn, replicas=plan.spec.replicas, asked_at=clock.now()
    )
    return plane.queue.join(queued, request.token)


class RunQueue:
    """The queue of a stack that runs at most `cap` replicas at once. Queued runs wait for their task tokens."""

    def __init__(self, store: Store, tokens: Tokens, cap: int) -> None:
        self._store = store
        self._tokens = tokens
        self._cap = cap

    def is_admitted(self, execution_arn: str) -> bool:
        """Whether the run may launch its replicas."""
        return self._read()[0].is_admitted(execution_arn)

    def join(self, queued: QueuedRun, token: str) -> bool:
        """Join the queue; whether the run is admitted at once. Otherwise its admission completes the token.

        The token is stored before the queue is read, so an admission in between finds it. A second call, after a
        time-out of the wait, repairs a lost one.
        """
        self._keep(queued.run, token)
        runs = self._update(lambda before: before.asked(queued, self._cap))
        if not runs.is_admitted(queued.execution_arn) and (over := self._over(runs)):
            runs = self._update(lambda before: before.without(over, self._cap))
        self._admit(runs)
        return runs.is_admitted(queued.execution_arn)

    def leave(self, execution_arn: str) -> None:
        """Leave the queue after the settlement, and admit the next runs."""
        self._admit(self._update(lambda before: before.without({execution_arn}, self._cap)))

    def _over(self, runs: Queue) -> set[str]:
        """Runs that are settled and still in the queue."""
        return {
            queued.execution_arn
            for queued in runs.runs
            if queued.admitted and RunDocuments(self._store, queued.run).result() is not None
        }

    def _admit(self, runs: Queue) -> None:
        """Complete the tokens of all admitted runs. A token that was completed before is ignored, so none is missed."""
        for queued in runs.runs:
            if queued.admitted:
                found = self._store.get(RunLayout(queued.run).queue_token)
                if found is not None:
                    token = QueueToken.from_json(found.body, RunLayout(queued.run).queue_token).token
                    self._tokens.release(token)

    def _keep(self, run: str, token: str) -> None:
        key = RunLayout(run).queue_token
        for _ in self._store.attempts(self._store.uri(key)):
            found = self._store.get(key)
            if found is None:
                stored = self._store.create(key, QueueToken(token=token).to_json())
            else:
                before = QueueToken.from_json(found.body, self._store.uri(key))
                stored = self._store.replace(key, before.model_copy(update={"token": token}).to_json(), found.etag)
            if stored:
                return

    def _update(self, change: Callable[[Queue], Queue]) -> Queue:
        for _ in self._store.attempts(self._store.uri(QUEUE_KEY)):
            before, etag = self._read()
            after = change(before)
            body = after.to_json()
            if after == before or (
                self._store.create(QUEUE_KEY, body) if etag is None else self._store.replace(QUEUE_KEY, body, etag)
            ):
                return after
        raise AssertionError  # attempts() ends by raising

    def _read(self) -> tuple[Queue, str | None]:
        found = self._store.get(QUEUE_KEY)
        if found is None:
            return Queue(), None
        return Queue.from_json(found.body, self._store.uri(QUEUE_KEY)), found.etag
