"""A round as one process plays it; its seat is its replica's. Read it from `Rounds.play` down.

| step | what happens | in |
|---|---|---|
| claim | the newest claim of a rank holds it, and fences all processes before | `seat` |
| contribute | if the round is open and the seat still held: one object with the pseudo-gradient | `contribution` |
| wait | for whom the last commit expects, and newer claims that have loaded; a quorum waits a grace window | `quorum` |
| agree | the first commit that is created (If-None-Match) names the members, whose claims hold | `agreement` |
| reduce | members make shards of the weighted mean, and those of who is late; all read them | `reduction` |
| or gather | where it moves less: each reads all contributions, and two verdicts say that all could | `all_gather` |
| apply | the same outer step everywhere; members store a snapshot now and then | `replicated_state` |
| next | who was left out catches up, and renews its claim: the round after expects it | `seat` |

A contribution that cannot be used amends the commit; with too few left the round is void: its mean is zero. Left out is
who came too late, or whose former process counts. Whoever gave unusable data stays expected, but drops its steps too.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from muster.contract.run.commit import Commit
from muster.contract.run.time_use import Activity
from muster.replica.codecs.base import is_usable
from muster.replica.free_memory import give_back
from muster.replica.parts.link import by_first, each, jointly
from muster.replica.replica_errors import OtherStateError, RoundGoneError
from muster.replica.rounds.agreement import Agreement
from muster.replica.rounds.commit_store import read_commit, read_last_revision
from muster.replica.rounds.contribution import Contribution, contribute, look, make_contribution
from muster.replica.rounds.exchange import Exchange, Judge, LocalUpdate
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.round_mean import reduced_mean
from muster.replica.rounds.seat import Seat
from muster.replica.rounds.seen_rounds import SeenRounds
from muster.replica.rounds.update_sample import pulls
from muster.replica.statistics.statistics import Statistics


class Rounds:
    """The rounds of one process, one at a time, perhaps in a thread of its own. Each step blocks until it is done."""

    def __init__(self, context: RoundContext, seat: Seat, statistics: Statistics) -> None:
        self.context = context
        """Replaced when a front end connects the processes of the replica, and when it names its codec."""
        self.seat, self.statistics = seat, statistics
        self.seen = SeenRounds(context, seat, statistics.progress)
        self.judge: Judge | None = None

    def play(self, state: ReplicatedState, update: LocalUpdate) -> Exchange | None:
        """Contribute to the next round and apply the round's mean.

        A straggler that was left out applies all rounds committed meanwhile, drops its own local progress (which
        started from parameters that are no longer the run's: adding it would make this replica differ from its peers)
        and renews its claim, so that the round after expects it. None if it slept until its round's data was deleted
        (commits stay): the state is then that of the newest snapshot and the rounds after it.

        Raises:
            FencedError, StoppedError, RendezvousError, DivergedError
            WatchError: a rule of `watch` ends this replica.
        """
        exchange: Exchange | None = None
        try:
            exchange = self.exchange(state.round + 1, replace(update, state=state.digest()))
        except RoundGoneError:
            self._fall_forward(state)
        if exchange is not None:
            state.apply(exchange)
            if exchange.is_member:
                with self.statistics.times.stage(Activity.SAVING):
                    state.store(exchange.commit)
        if exchange is None or exchange.left_out:
            with self.statistics.times.stage(Activity.LOADING):
                self.catch_up(state)
                self.seat.renew(state.round)
            log.warning("event=left-out now=%d", state.round)
        give_back()
        return exchange

    def exchange(self, round_: int, update: LocalUpdate) -> Exchange:
        """Contribute to `round_`, the one after the last that this process saw, until its mean is known.

        Applies nothing to any state.

        Raises:
            OtherStateError: the contribution starts from other parameters than the members'; a rerun loads theirs.
            RoundGoneError: its data was deleted before this process has read it.
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        mine: Contribution | None = None
        polling, began = self.context.polling(), self.context.clock.monotonic()
        # A fenced process finds a commit all the same: it is fenced when it renews its claim.
        commit = look(self.context, self.seat.claim, round_)
        self.seen.latency = self.context.clock.monotonic() - began
        if commit is None:
            mine = self._contribute(round_, update)
            commit = self._agree(mine, polling)
        else:
            self._save_without_giving(commit, update)
        if None not in (commit.state, update.state) and commit.state != update.state:
            raise OtherStateError(round_, str(update.state), str(commit.state))
        try:
            exchange = self._reduce(commit, mine)
        except RoundGoneError:
            known = by_first(self.context.link, lambda: read_last_revision(self.context, round_))
            self._settle_residual(update, known or commit, mine)
            raise
        self._settle_residual(update, exchange.commit, mine)
        self._measure(exchange, mine)
        if self.judge is not None:
            seconds = () if mine is None else mine.seconds
            by_first(self.context.link, partial(self.judge.judge_pace, self.seat.claim, self.seen.commits, seconds))
        return exchange

    def give(self, round_: int, update: LocalUpdate) -> None:
        """Contribute to `round_` as `exchange`, but do not wait for its commit: this process ends.

        Raises:
            FencedError
        """
        commit = look(self.context, self.seat.claim, round_)
        if commit is None:
            self._contribute(round_, replace(update, leaves=self.context.quorum.is_elastic))
        else:
            self._save_without_giving(commit, update)

    def committed(self, round_: int) -> Exchange | None:
        """The result of `round_` for a process that did not contribute; None while the round is not committed."""
        commit = by_first(self.context.link, lambda: read_commit(self.context, round_))
        return None if commit is None else self._reduce(commit, None)

    def catch_up(self, state: ReplicatedState) -> None:
        """Apply every round that is committed by now."""
        while True:
            try:
                exchange = self.committed(state.round + 1)
            except RoundGoneError:
                self._fall_forward(state)
                continue
            if exchange is None:
                return
            state.apply(exchange)
            state.complete_snapshot(exchange.commit)

    def _fall_forward(self, state: ReplicatedState) -> None:
        state.skip()
        self.seen.remember(self.context, state.round)

    def _contribute(self, round_: int, update: LocalUpdate) -> Contribution:
        """Encode `update` (parts are stored unseen), let the trainer save its state, then store what others see."""
        if self.judge is not None:
            judged = partial(self.judge.judge_update, self.seen.commits)
            update = replace(update, suspect=by_first(self.context.link, judged))
        mine = make_contribution(self.context, self.seat.claim, round_, update, self.statistics.notes(round_))
        with self.statistics.times.stage(Activity.SAVING):
            jointly(self.context.link, lambda: update.before_giving(mine.header.declined is None))
        contribute(self.context, mine)
        return mine

    def _save_without_giving(self, commit: Commit, update: LocalUpdate) -> None:
        """The round was decided before this process could contribute."""
        update.before_giving(all(each(self.context.link, lambda: is_usable(update.gradient))))
        # Of a former process that counts, a rerun finds what that one has left.
        if update.residual is not None and commit.counted_claim(self.seat.rank) is None:
            update.residual.settle(commit.round, counts=False)

    def _settle_residual(self, update: LocalUpdate, commit: Commit, mine: Contribution | None) -> None:
        """Leave the residual as what counts has left it: this process's contribution, a former one's, or none."""
        if update.residual is None:
            return
        counted = commit.counted_claim(self.seat.rank)
        if counted is not None and (mine is None or counted != mine.header.member.epoch):
            update.residual.hand_over(commit.round, counted)
        elif mine is not None:
            update.residual.settle(commit.round, counts=counted is not None)

    def _measure(self, exchange: Exchange, mine: Contribution | None) -> None:
        """Log how the contribution compares with the others', and what the codec has lost of it."""
        if mine is None or mine.sample is None or exchange.left_out or exchange.commit.count != mine.header.count:
            return
        found = mine.sample.metrics(exchange, self.context.link)
        if self.context.group.is_first:
            pulled = pulls(exchange.commit, are_scaled=mine.sample.norm is not None)
            self.statistics.note_update(exchange.commit.round, found, mine.header.member.norm, pulled)

    def _agree(self, mine: Contribution, polling: Polling) -> Commit:
        """Wait for the round's commit, or make it: with all, or with a quorum after the grace window."""

        def agreed() -> Commit:
            return Agreement(self.context, self.seat.claim, mine, self.seen, self.statistics).reach(polling)

        began = self.context.clock.monotonic()
        with self.statistics.times.stage(Activity.WAITING):
            commit = by_first(self.context.link, agreed)
        self.seen.waited(self.context.clock.monotonic() - began)
        return commit

    def _reduce(self, commit: Commit, mine: Contribution | None) -> Exchange:
        """The mean of the members, and the last revision of the commit: members whose data are unusable are out."""
        self.seen.saw()
        # A time-out of its own: a commit may come when the one of the wait for it is over.
        commit, mean = reduced_mean(self.context, commit, mine, self.context.polling())
        self.seen.note(commit)
        if self.context.group.is_first:
            self.statistics.show_pace(self.seat.rank, commit)
        return Exchange(commit, mean, self.seat.rank, None if mine is None else mine.header.member.epoch)
