"""What a replica watches of itself round by round: its loss before it contributes, and its pace after the commit.

Both look at the commits of the last rounds, which are the same for all replicas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from muster.contract.run.commit import Commit
from muster.contract.spec.watch_rules import Rule, Watch
from muster.options.watch.replica.findings import Findings
from muster.options.watch.replica.round_rules import slow_process, slower_than_others, unusual_loss
from muster.replica.rounds.claims import Claim
from muster.replica.rounds.round import Rounds

_SUSPECT_MAX = 200  # a contribution's header


class SelfWatch:
    """Called by the first process of a replica, for all of them. Reports the beginning of a spell, once."""

    def __init__(self, rounds: Rounds, rules: Watch) -> None:
        self._stop, self._metrics = rounds.context.stops.asked, rounds.statistics.metrics
        self._rules = rules
        self.findings = Findings(rounds.context, rounds.statistics.progress, rules, rounds.seat.claim)
        self._met: set[Rule] = set()
        self._seconds: deque[tuple[float, ...]] = deque(maxlen=rules.slow.rounds)

    def judge_loss(self, recent: Sequence[Commit]) -> str | None:
        """Why the round is to be made without this replica, if it can be: its loss is unusual, and the rule says so.

        Raises:
            WatchError: the rule says restart or stop.
        """
        rule = self._rules.loss
        text = unusual_loss(rule, self._metrics.last(rule.metric), recent)
        self._met_or_not(Rule.LOSS, text)
        return None if text is None or rule.then != "exclude" else text[:_SUSPECT_MAX]

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
