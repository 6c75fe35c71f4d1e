"""Reports what the rules have found: in the log, and as an object beside the commits, which clients and people read."""

from __future__ import annotations

from collections import Counter
from threading import Lock

from muster.contract.errors import MusterError
from muster.contract.exits import ReplicaExit
from muster.contract.run.finding import FINDINGS_MAX, TEXT_MAX, Finding, FindingDocument
from muster.contract.spec.watch_rules import Rule, Watch
from muster.replica.replica_errors import WatchError
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.statistics.progress import Progress
from muster.replica.store.transport import create_once
from muster.replica.wire import rendezvous_keys


class Findings:
    """Writes the findings of this process. Thread-safe."""

    def __init__(self, context: RoundContext, progress: Progress, rules: Watch, claim: Claim) -> None:
        self._context, self._progress, self.rules, self._claim = context, progress, rules, claim
        self._reported: Counter[Rule] = Counter()
        self._lock = Lock()

    def then(self, rule: Rule) -> str:
        """What follows when `rule` is met."""
        return self.rules.then(rule)

    def report(self, rule: Rule, text: str) -> None:
        """Write a finding. One that the store does not take is in the log only.

        `no_round` is the run's: the first replica that finds it after a round reports it.
        """
        shown = _printable(text)[:TEXT_MAX]
        round_, then, claim = self._progress.round, self.then(rule), self._claim
        finding = Finding(rule=rule, then=then, rank=claim.rank, attempt=claim.attempt, round=round_, text=shown)
        log.warning("event=watch rule=%s then=%s text=%r", rule, then, shown)
        with self._lock:
            self._reported[rule] += 1
            number = self._reported[rule]
        if number > FINDINGS_MAX:
            return
        run, process = self._context.trained_by or self._context.run, self._context.group.rank
        of_process = f"{claim.rank:05d}-{claim.epoch:06d}-{process:04d}-{number:02d}"
        key = rendezvous_keys.finding(rule, run, f"{round_:08d}" if rule is Rule.NO_ROUND else of_process)
        document = FindingDocument(run=run, finding=finding)
        try:
            create_once(self._context.store, key, document.to_json())
        except MusterError as error:
            log.warning("event=finding-not-stored reason=%r", str(error))

    def act(self, rule: Rule, text: str) -> None:
        """Report what a rule has found, and end the attempt where the spec says so.

        Raises:
            WatchError: the spec says restart or stop.
        """
        self.report(rule, text)
        if ends_attempt(self.then(rule)):
            raise WatchError(ReplicaExit[rule.name], text)


def _printable(text: str) -> str:
    """One line of characters that every terminal shows; paths of files may have others."""
    return "".join(one if one.isprintable() and one.isascii() else "?" for one in " ".join(text.split()))


def ends_attempt(then: str) -> bool:
    """Whether the attempt ends; the control plane then reruns the replica, or stops the run."""
    return then in {"restart", "stop"}
