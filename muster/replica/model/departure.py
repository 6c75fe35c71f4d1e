"""How a replica leaves its run: it gives its rank up, and the last one to do so writes the run's model."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

from muster.contract.run.commit import Finish
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.model.model_folder import ModelFolder, Wishes
from muster.replica.parts.cut import Cut, window_elements
from muster.replica.parts.link import Link, by_first, collected
from muster.replica.rounds.replicated_state import Trained
from muster.replica.rounds.round import Rounds
from muster.replica.store.transport import Store


@dataclass(frozen=True)
class Result:
    """The global parameters after `round`.

    `checksum` is that of their raw bytes (SHA-256, float32), the same on all replicas.
    """

    round: int
    checksum: str


def result_of(cut: Cut, state: GlobalState, link: Link) -> Result:
    """The result, in all processes of the replica. Collective.

    Raises:
        GroupError: another process of the replica has ended.
    """
    checksum = hashlib.sha256()
    step = window_elements(cut.count, link.size)
    spans = [slice(start, min(start + step, cut.count)) for start in range(0, cut.count, step)]
    for values in collected(cut, state.parameters, spans, link):
        checksum.update(values.data)
    return Result(state.round, by_first(link, checksum.hexdigest))


class Departure:
    """The end of one replica's part in the run, which its front end or its trainer's return brings about."""

    def __init__(self, rounds: Rounds, results: Store | None) -> None:
        """`results`: where the run's model is written; None: nowhere."""
        self._rounds, self._results = rounds, results
        self.training: Trained | None = None
        """What this process trains; the front end sets it once it has joined the run."""
        self.has_left = False
        """Whether this replica's part in the run has ended."""
        self._wishes: Wishes | None = None
        self._end: Callable[[], object] = lambda: None
        self._how = "its trainer has finished"
        self._result: Result | None = None

    def leave_with(self, wishes: Wishes, end: Callable[[], object]) -> None:
        """What this process leaves, and the front end's call that ends its training and then calls `leave`."""
        self._wishes, self._end = wishes, end

    def leaves_no_model(self) -> None:
        """The trainer brings its own loop: it leaves no model, and need not take part in any round."""
        self._end = self._leave_without_model

    def _leave_without_model(self) -> None:
        self._rounds.statistics.progress.is_over = True
        if self._rounds.context.group.is_first:
            self.finish(self._how)
        self.has_left = True

    def leave(self) -> None:
        """End this replica's part in the run, once its model holds the global parameters: later calls do nothing.

        All processes of the replica call this, while they are connected. Gives the rank up, and writes the run's model
        if the other replicas have finished as well.

        Raises:
            FencedError: another process holds the rank.
            ParametersError, TrainerError: what the trainer wants of the model fails.
            RendezvousError, StoreDeniedError, StoreUnavailableError
        """
        rounds, training, wishes = self._rounds, self.training, self._wishes
        rounds.statistics.progress.is_over = True
        if self.has_left or self._results is None or training is None or wishes is None or training.packing is None:
            return
        last, context, seat = rounds.seen.last, rounds.context, rounds.seat
        how = f"the run ended with round {last.round}" if last is not None else self._how
        # Before anything else: the others may be waiting. If the rest fails, a rerun claims the rank again.
        by_first(context.link, lambda: self.finish(how))
        result = result_of(training.packing.cut, training.state, context.link)
        folder = ModelFolder(context, self._results, seat.given_up or seat.claim, result.round, result.checksum)
        folder.leave(wishes)
        self._result, self.has_left = result, True

    def returned(self, how: str) -> Result | None:
        """The trainer has returned: leave, if the front end has not. `how`: in words, for the others.

        Returns:
            None if the trainer has created no front end.
        """
        if not self.has_left:
            self._how = how
            self._end()
        return self._result

    def finish(self, how: str) -> None:
        """Report that the replica's trainer has finished, and give the rank up. `how`: in words, for the others.

        The first process of a group calls this, for all of them; later calls do nothing.

        Raises:
            FencedError: another process holds the rank.
        """
        context, seat, training = self._rounds.context, self._rounds.seat, self.training
        if context.on_early_finish is None or training is None or seat.given_up is not None:
            return
        seat.give_up(Finish(rank=seat.rank, run=context.trained_by, round=training.state.round, how=how))
