"""This replica's seat: its right to its rank, which all processes of its group share. Claim, renew, give up."""

from __future__ import annotations

from functools import partial

from muster.contract.run.commit import Finish
from muster.replica.replica_errors import HistoryGoneError
from muster.replica.rounds.claims import Claim, announce, claim_rank, shared_claim, succeed_claim
from muster.replica.rounds.commit_store import read_commit
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.round_history import last_committed
from muster.replica.wire import rendezvous_keys


class Seat:
    """The claim of one rank, from the start of this process to its end."""

    def __init__(self, context: RoundContext, claim: Claim) -> None:
        self._context = context
        self.claim = claim
        """The present one. A seat that was given up keeps it: an exchange that still runs is fenced."""
        self.given_up: Claim | None = None
        """The one with which the seat was given up."""

    @classmethod
    def take(cls, context: RoundContext, rank: int, attempt: int) -> Seat:
        """Claim `rank` for this process's group; every process that held it before is fenced from now on.

        Raises:
            FencedError: a newer attempt holds it.
            HistoryGoneError: the rounds that this run continues are no longer stored.
            BoardError: the first process of the group cannot be reached.
        """
        claimed = partial(_claimed, context, rank, attempt)
        return cls(context, shared_claim(context.board, context.group, "first", claimed))

    @property
    def rank(self) -> int:
        """This replica's rank, from 0."""
        return self.claim.rank

    @property
    def epoch(self) -> int:
        """The number of the present claim."""
        return self.claim.epoch

    def ready(self, round_: int) -> None:
        """This process has loaded the run's state after `round_`: the others wait for it now. Raises as `renew`.

        All processes of the replica call this.
        """
        # A claim before the first round does not say that the process loads: that round may have waited for it in vain.
        if self.claim.loads or round_:
            self.renew(round_)

    def renew(self, round_: int) -> None:
        """Claim the rank again after `round_`, made without this process: the others then expect it again.

        All processes of the replica call this, after the same round.

        Raises:
            FencedError: another process has claimed the rank since.
            BoardError: the first process of the group cannot be reached.
        """
        context, old = self._context, self.claim

        def renewed() -> Claim:
            claim = succeed_claim(context.store, context.run, old)
            _let_find(context, claim, round_)
            return claim

        # The epoch makes the name new: a renewal has a later one than the claim before.
        self.claim = shared_claim(context.board, context.group, str(old.epoch + 1), renewed)

    def give_up(self, finish: Finish) -> None:
        """Give the rank up, because this replica has finished. The group's first process calls this, for all of them.

        Raises:
            FencedError: another process has claimed the rank since.
        """
        self.given_up = succeed_claim(self._context.store, self._context.run, self.claim, finish)


def _claimed(context: RoundContext, rank: int, attempt: int) -> Claim:
    last = last_committed(context.store)
    if last < context.rounds_before:
        # Its claims may be gone, too: a claim now would not fence the processes before.
        found = f"the run continues round {context.rounds_before}, and the last commit is that of round {last}"
        raise HistoryGoneError(context.store.uri(rendezvous_keys.COMMITS), found)
    commit = read_commit(context, last) if last else None
    claim = claim_rank(context.store, context.run, rank, attempt, commit)
    _let_find(context, claim, last)
    log.info("event=seated rank=%d attempt=%d incarnation=%d epoch=%d", rank, attempt, claim.incarnation, claim.epoch)
    return claim


def _let_find(context: RoundContext, claim: Claim, round_: int) -> None:
    if context.quorum.is_elastic:
        announce(context.store, claim, round_)
