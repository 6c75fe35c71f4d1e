"""What a replica watches of itself round by round: loss and updates before it contributes, its pace after the commit.

All look at the commits of the last rounds, which are the same for all replicas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from muster.contract.run.commit import Commit
from muster.contract.spec.watch_rules import Rule, Watch
from muster.options.watch.replica.findings import Findings
from muster.options.watch.replica.round_rules import divergent, slow_process, slower_than_others, unusual_loss
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.round import Rounds

_SUSPECT_MAX = 200  # a contribution's header


class SelfWatch:
    """Called by the first process of a replica, for all of them. Reports the beginning of a spell, once."""

    def __init__(self, rounds: Rounds, rules: Watch) -> None:
        self._rounds, self._stop, self._rules = rounds, rounds.context.stops.asked, rules
        self.findings = Findings(rounds.context, rounds.statistics.progress, rules, rounds.seat.claim)
        self._met: set[Rule] = set()
        self._seconds: deque[tuple[float, ...]] = deque(maxlen=rules.slow.rounds)

    def judge_update(self, recent: Sequence[Commit]) -> str | None:
        """Why the round is to be made without this replica, if it can be: its loss is unusual, or its updates diverge,
        and the rule says so.

        Raises:
            WatchError: the rule says restart or stop.
        """
        loss, divergence, seat = self._rules.loss, self._rules.divergence, self._rounds.seat
        found = {
            Rule.LOSS: unusual_loss(loss, self._rounds.statistics.metrics.last(loss.metric), recent),
            Rule.DIVERGENCE: divergent(divergence, seat.rank, self._rounds.statistics.updates, recent),
        }
        for rule, text in found.items():
            self._met_or_not(rule, text)
        texts = [text for rule, text in found.items() if text is not None and self._rules.then(rule) == "exclude"]
        return texts[0][:_SUSPECT_MAX] if texts else None

    def judge_pace(self, claim: Claim, recent: Sequence[Commit], seconds: Sequence[float]) -> None:
        """See whether this replica is slow, or one of its processes. `seconds`: of each process; () if not known.

        Raises:
            WatchError: it is, and the rule says restart or stop.
        """
        rule = self._rules.slow
        self._seconds.append(tuple(seconds))
        text = slower_than_others(rule, (claim.rank, claim.epoch), recent) or slow_process(rule, list(self._seconds))
        self._met_or_not(Rule.SLOW, text)

    def _met_or_not(self, rule: Rule, text: str | None) -> None:
        is_new = text is not None and rule not in self._met
        self._met = self._met - {rule} if text is None else self._met | {rule}
        # A replica that is asked to stop saves what it has.
        if text is not None and is_new and self.findings.then(rule) != "ignore" and not self._stop.is_set():
            self.findings.act(rule, text)
