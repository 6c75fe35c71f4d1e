"""The queue of runs in the bucket: compare-and-swap on its document, and a task token for each queued run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from muster.contract.layout import RunLayout
from muster.contract.run.run_queue import QUEUE_KEY, Queue, QueuedRun, QueueToken
from muster.control.aws.store import DocumentStore
from muster.control.aws.task_tokens import Tokens
from muster.control.runtime.parallel import PARALLEL, in_another_order, in_parallel


class RunQueue:
    """The queue of a stack that runs at most `cap` replicas at once. Queued runs wait for their task tokens."""

    def __init__(self, store: DocumentStore, tokens: Tokens, cap: int) -> None:
        self._store = store
        self._tokens = tokens
        self._cap = cap

    def must_wait(self, run: str, execution_arn: str) -> bool:
        """Whether the run may not launch its replicas yet. A run that is settled launches none, so it need not wait."""
        queue = self._store.document(Queue, QUEUE_KEY) or Queue()
        return not queue.is_admitted(execution_arn) and not self._is_settled(run)

    def join(self, queued: QueuedRun, token: QueueToken) -> bool:
        """Join the queue; whether the run is admitted at once. Otherwise its admission completes the token.

        The token is stored before the queue is read, so an admission in between finds it. A second call, after a
        time-out of the wait, repairs a lost one.
        """
        # The workflow waits for this call, and repeats it should it fail: it tells the run by itself.
        told = {queued.execution_arn} if self._keep(queued.run, token) else set()
        admitted = set[str]()
        runs = self._update(lambda before: before.asked(queued, self._cap).with_told(told), admitted)
        # A run that was stopped while this function was late has left the queue already, and no one would remove it.
        # A settlement writes the result before it leaves: either this look finds the result, or the leaving this run.
        if self._is_settled(queued.run):
            self.leave(queued.execution_arn)
            self._tokens.release(token.token)
            return True
        runs = self._without_settled(runs, admitted)
        is_admitted = runs.is_admitted(queued.execution_arn)
        if is_admitted:
            self._tell(queued)
        self._admit(runs, admitted)
        return is_admitted

    def leave(self, execution_arn: str) -> None:
        """Leave the queue after the settlement, and admit the next runs."""
        admitted = set[str]()
        runs = self._update(lambda before: before.without({execution_arn}, self._cap), admitted)
        self._admit(self._without_settled(runs, admitted), admitted)

    def _without_settled(self, runs: Queue, admitted: set[str]) -> Queue:
        """`runs` without those that were settled and could not leave. They matter only while another run waits.

        However many there are, this looks at who is next, at those that are `admitted` now, and at some others.
        """
        looked_at = set[str]()
        others = _some((queued for queued in runs.runs if queued.admitted), admitted)
        while (following := next((queued for queued in runs.runs if not queued.admitted), None)) is not None:
            now = (queued for queued in runs.runs if queued.execution_arn in admitted)
            unknown = [queued for queued in (following, *now, *others) if queued.execution_arn not in looked_at]
            settled = in_parallel(lambda queued: self._is_settled(queued.run), unknown)
            over = _arns(queued for queued, ended in zip(unknown, settled, strict=True) if ended)
            if not over:
                break
            looked_at, others = looked_at | _arns(unknown), []
            runs = self._update(partial(Queue.without, execution_arns=over, cap=self._cap), admitted)
        return runs

    def _is_settled(self, run: str) -> bool:
        return self._store.exists(RunLayout(run).result)

    def _admit(self, runs: Queue, admitted: set[str]) -> None:
        """Tell the runs that are `admitted` now, and some of those that another call has admitted and not told."""
        now = (queued for queued in runs.untold if queued.execution_arn in admitted)
        untold = [*now, *_some(runs.untold, admitted)]
        if untold:
            in_parallel(self._tell, untold)
            self._update(lambda before: before.with_told(_arns(untold)))

    def _tell(self, queued: QueuedRun) -> None:
        """Complete the task token of an admitted run. One that was completed before is ignored."""
        token = self._store.document(QueueToken, RunLayout(queued.run).queue_token)
        if token is not None:
            self._tokens.release(token.token)

    def _keep(self, run: str, token: QueueToken) -> bool:
        """Store the token. False: this call is late, and the token of a later call stays, for which alone is waited."""

        def change(before: QueueToken | None) -> QueueToken:
            if before is None:
                return token
            if token.armed_at and before.armed_at > token.armed_at:
                return before
            return before.model_copy(update={"token": token.token, "armed_at": token.armed_at})

        return self._store.change(QueueToken, RunLayout(run).queue_token, change).token == token.token

    def _update(self, change: Callable[[Queue], Queue], admitted: set[str] | None = None) -> Queue:
        """The queue after a `change`; the runs that are admitted by it are added to `admitted`."""
        newly = set[str]()

        def revised(found: Queue | None) -> Queue | None:
            nonlocal newly
            before = found or Queue()
            after = change(before)
            newly = _arns(after.untold) - _arns(before.untold)
            # S3's ETags follow from the bytes. Without a number, a write that takes effect late would find the ETag
            # that it expects if the same runs are in the queue again.
            return found if after == before else after.model_copy(update={"revision": before.revision + 1})

        after = self._store.change(Queue, QUEUE_KEY, revised)
        if admitted is not None:
            admitted |= newly
        return after or Queue()


def _arns(runs: Iterable[QueuedRun]) -> set[str]:
    return {queued.execution_arn for queued in runs}


def _some(runs: Iterable[QueuedRun], known: set[str]) -> list[QueuedRun]:
    """Of `runs` without the `known` ones as many as take the same time however many there are: others each time."""
    return in_another_order([queued for queued in runs if queued.execution_arn not in known])[:PARALLEL]
