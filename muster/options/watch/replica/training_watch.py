"""Watches a process from a thread of its own: whether its training loop hangs, and whether the run commits rounds.

The thread runs while the trainer computes or waits, because both leave the interpreter to other threads. A process that
holds it for ever, in native code, cannot watch itself: its peers ask it, and report that it does not answer.
"""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from threading import Event, Thread

from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit
from muster.contract.spec.watch_rules import Rule
from muster.options.watch.replica.findings import Findings, ends_attempt
from muster.options.watch.replica.inquiry import Inquiry, ProcessProgress, hang_text
from muster.replica.group.board import BoardError
from muster.replica.replica_errors import WatchError
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.statistics.progress import Progress

_LOOKS = 20  # in the time of the quickest rule: it is noticed late by a twentieth
_LOOK_MAX_SECONDS = 5.0
# An exchange waits for contributions, and then for their mean; each for `rendezvous.timeout_seconds` at most.
_WAITS_OF_EXCHANGE = 2
# A process that is idle for so large a share of the time when another one asks hangs with it.
_REPORTED_SHARE = 0.5
_STDERR = 2


class TrainingWatch:
    """The watch of this process."""

    def __init__(
        self, context: RoundContext, progress: Progress, findings: Findings, end: Callable[[WatchError], object]
    ) -> None:
        """`end` ends this process and its replica's attempt; called from another thread than the trainer's."""
        self._context, self._progress, self._findings, self._end = context, progress, findings, end
        self._rules = findings.rules
        self._inquiry = Inquiry(context.board, context.group, self._answer, self._is_reported)
        self._reported_at: float | None = None
        self._reported_round: int | None = None
        self._over = Event()

    def start(self) -> None:
        """Watch from now on, until `stop`."""
        self._inquiry.start()
        Thread(target=self._run, name="watch", daemon=True).start()

    def stop(self) -> None:
        """The trainer has returned."""
        self._over.set()

    def look(self) -> None:
        """Look once, and report what is found. A replica that is asked to stop, or has left the run, is left alone."""
        if self._is_left_alone:
            return
        if self._findings.then(Rule.HANG) != "ignore":
            self._look_for_hang()
        if self._findings.then(Rule.NO_ROUND) != "ignore" and self._context.group.is_first:
            self._look_for_round()

    @property
    def _is_left_alone(self) -> bool:
        return self._over.is_set() or self._context.stops.asked.is_set() or self._progress.is_over

    def _run(self) -> None:
        pause = min(
            _LOOK_MAX_SECONDS, self._rules.hang.after_seconds / _LOOKS, self._rules.no_round.after_seconds / _LOOKS
        )
        while not self._over.wait(pause):
            try:
                self.look()
            except MusterError as error:
                log.warning("event=watch-failed reason=%r", str(error))

    def _look_for_hang(self) -> None:
        progress = self._progress
        # Read first: what is noted meanwhile belongs to the next look.
        noted_at = progress.noted_at
        limit = self._rules.hang.after_seconds
        if progress.is_waiting:
            limit += _WAITS_OF_EXCHANGE * self._context.timeout_seconds
        # Before its first step a trainer loads models and data, for as long as it takes.
        is_known = self._reported_at == noted_at or self._inquiry.is_open
        if not progress.steps or progress.idle_seconds < limit or is_known:
            return
        try:
            answers = self._inquiry.ask()
            if answers is None:
                return
            # While the others were asked, the step, or the training, may have ended after all.
            is_hang = progress.noted_at == noted_at and not self._is_left_alone
            self._inquiry.conclude(is_hang=is_hang)
        except BoardError as error:
            log.warning("event=watch-failed reason=%r", str(error))
            answers, is_hang = {self._context.group.rank: self._answer()}, True
            self._is_reported()
        if is_hang:
            self._report(Rule.HANG, hang_text(self._context.group.size, answers))

    def _answer(self) -> ProcessProgress:
        """What this process says when it is asked. If it hangs as well, its stacks go to the log."""
        progress = self._progress
        if self._hangs_too:
            log.warning("event=stacks seconds=%d", progress.idle_seconds)
            faulthandler.dump_traceback(_STDERR)
        return ProcessProgress(progress.steps, round(progress.idle_seconds, 1), progress.is_waiting, progress.place())

    def _is_reported(self) -> None:
        """A hang of the replica was reported: this process does not report that it stands still for the same cause."""
        if self._hangs_too:
            self._reported_at = self._progress.noted_at

    @property
    def _hangs_too(self) -> bool:
        return self._progress.idle_seconds >= _REPORTED_SHARE * self._rules.hang.after_seconds

    def _look_for_round(self) -> None:
        progress = self._progress
        seconds = progress.seconds_without_round
        if seconds < self._rules.no_round.after_seconds or self._reported_round == progress.round:
            return
        self._reported_round = progress.round
        doing = progress.missing or f"this replica is {self._answer().words}"
        self._report(Rule.NO_ROUND, f"no round for {seconds:.0f} s; {doing}")

    def _report(self, rule: Rule, text: str) -> None:
        self._findings.report(rule, text)
        if ends_attempt(self._findings.then(rule)):
            self._end(WatchError(ReplicaExit[rule.name], text))
