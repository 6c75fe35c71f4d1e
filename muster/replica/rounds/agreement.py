"""Commit: from the contributions in the bucket to one list of members that is the same for all replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from threading import Event
from typing import NoReturn

from muster.contract import timestamps
from muster.contract.run.commit import HOME, Commit, Exclusion
from muster.contract.run.round_values import DEFAULT_UNIT
from muster.contract.run.time_use import RoundTimes, TimeUse, time_use
from muster.contract.run.training_pace import pace_of
from muster.replica.replica_errors import DivergedError, RendezvousError, StoppedError
from muster.replica.rounds.all_gather import gathers
from muster.replica.rounds.claims import Claim, Holder, announced, check_claim, newer_holder, succeed_claim
from muster.replica.rounds.commit_store import read_commit, write_commit
from muster.replica.rounds.contribution import Contribution, Received, Unusable, judge, read_contribution
from muster.replica.rounds.grace_window import grace_window
from muster.replica.rounds.quorum import STORE_TIME_SECONDS, QuorumDecision, QuorumTally, outliers
from muster.replica.rounds.reduced_shards import shards_for
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.seen_rounds import SeenRounds
from muster.replica.statistics.statistics import Statistics
from muster.replica.store.transport import ObjectMissingError
from muster.replica.wire.blocks import CONNECTIONS, Blocks

CHECK_SECONDS = 1.0
CHECK_SECONDS_MIN = 0.1
# SageMaker kills a process 120 seconds after SIGTERM, and its state has to be saved.
LEAVING_SECONDS = 30.0
WAITING_LOGGED_SECONDS = 60.0


def commit_time(store_time: float, previous: float, since: float) -> float:
    """When a round is committed, by the store's clock and finer than this.

    Args:
        store_time: by the store's clock, up to STORE_TIME_SECONDS too early.
        previous: when the round before was committed.
        since: the seconds since then, by the process's own clock.
    """
    return min(max(previous + since, store_time), store_time + STORE_TIME_SECONDS)


class Agreement:
    """One round as one contributor sees it."""

    def __init__(
        self, context: RoundContext, claim: Claim, mine: Contribution, seen: SeenRounds, statistics: Statistics
    ) -> None:
        """`mine`: what this process has contributed under `claim`; `seen`: the rounds before."""
        self._context = context
        self._statistics = statistics
        self._claim = claim
        self._mine = mine
        self._round = mine.round
        self._blocks = Blocks(mine.header.count, context.codec, mine.header.exact)
        quorum = context.quorum
        grace = grace_window(quorum, seen.commits)
        self._seen = seen
        self._previous = seen.commits[-1] if seen.commits else None
        self._tally = QuorumTally(quorum, grace, self._previous)
        self._damaged: set[tuple[int, int]] = set()
        self._arrived: dict[int, float] = {}
        self._own_arrival: float | None = None
        self._looks = 0
        # The ranks whose claim the present look has found to hold.
        self._held: set[int] = set()
        # The look that has found each contribution. This process's own came before its second look.
        self._look_of = {claim.rank: 1}
        self._contributed_at = context.clock.monotonic()
        for finish in () if self._previous is None else self._previous.finished_in(context.trained_by):
            self._tally.finished_with(self._tally.epochs[finish.rank], finish)
        self._tally.claimed(claim.rank, claim.epoch)
        answer = judge(mine.header, len(mine.body), self._blocks)
        self._note(claim.rank, Received(answer, 0.0, mine.header.state, mine.header.suspect))

    def reach(self, polling: Polling) -> Commit:
        """As `_reached`. A process of an elastic run that is stopped meanwhile tells the others that it leaves."""
        try:
            return self._reached(polling)
        except StoppedError:
            if self._context.quorum.is_elastic:
                self._say_that_it_leaves()
            raise

    def _say_that_it_leaves(self) -> None:
        """Claim the rank for whoever comes next, once the round is committed: before, the contribution would not count.

        Without the commit nothing is said, and the others wait for this process once.
        """
        context, clock = self._context, self._context.clock
        until, never = clock.monotonic() + LEAVING_SECONDS, Event()
        while read_commit(context, self._round) is None:
            if clock.monotonic() >= until or clock.wait(never, CHECK_SECONDS_MIN):
                return
        succeed_claim(context.store, context.run, self._claim, loads=True)
        log.info("event=leaves round=%d", self._round)

    def _reached(self, polling: Polling) -> Commit:
        """Wait for the round's commit, or make it as soon as the quorum allows. The first commit counts.

        The last to contribute sees all others and commits at once. The check is repeated from time to time, in case the
        last contributor died or some never contribute.

        Raises:
            FencedError, StoppedError
            RendezvousError: no quorum before the time-out, or none possible any more.
            DivergedError: no quorum is possible because this process's own contribution is unusable.
        """
        clock = self._context.clock
        polling.reset(self._seen.expected_wait)
        logged_at = clock.monotonic()
        while True:
            timed_out = polling.left_seconds <= 0
            commit = self._check_quorum(timed_out)
            if commit is None and timed_out:
                commit = read_commit(self._context, self._round)
            now = clock.monotonic()
            again = max(now + CHECK_SECONDS_MIN, min(now + CHECK_SECONDS, self._tally.closes_at))
            while commit is None and clock.monotonic() < again and (timed_out or polling.left_seconds > 0):
                polling.pause(self._what_is_missing, until=again)
                commit = read_commit(self._context, self._round)
            if commit is not None:
                return commit
            check_claim(self._context.store, self._claim)
            self._statistics.progress.missing = self._what_is_missing()
            if clock.monotonic() - logged_at >= WAITING_LOGGED_SECONDS:
                logged_at = clock.monotonic()
                self._suspect(self._tally.absent)
                self._check_own()
                log.info("event=waiting seconds=%d %s", logged_at - self._contributed_at, self._what_is_missing())

    def _check_quorum(self, timed_out: bool) -> Commit | None:
        self._look()
        decision = self._tally.decide(self._context.clock.monotonic(), timed_out=timed_out)
        while (decision is QuorumDecision.COMMIT and not self._all_claims_hold()) or (
            decision is QuorumDecision.HOPELESS and self._note_newer(item.rank for item in self._tally.exclusions)
        ):
            # A member was superseded: the others may still be enough, and after the time-out there is no later check.
            # Or a new process holds the rank of an unusable contribution: it may make a usable one.
            decision = self._tally.decide(self._context.clock.monotonic(), timed_out=timed_out)
        self._held.clear()
        if decision is QuorumDecision.COMMIT:
            self._exclude_what_can_be_spared()
            return self._commit()
        if decision is QuorumDecision.HOPELESS:
            commit = read_commit(self._context, self._round)
            return self._raise_hopeless() if commit is None and (timed_out or not self._may_be_repeated) else commit
        return None

    @property
    def _may_be_repeated(self) -> bool:
        """Whether a replica believes that it has contributed, and will contribute again: its object is damaged.

        It waits for a commit that cannot come. Who did not wait with it would be rerun in vain until it notices.
        """
        return any((item.rank, self._tally.epochs[item.rank]) in self._damaged for item in self._tally.exclusions)

    def _check_own(self) -> None:
        """Return if this process's contribution is in the bucket as it was stored, or deleted with its round.

        Raises:
            RendezvousError: it is damaged. The rerun contributes again.
        """
        found = self._read(self._claim.rank, self._claim.epoch)
        if found is not None and isinstance(found.answer, Unusable) and found.answer.is_damaged:
            message = (
                f"The contribution of this replica to round {self._round} has been damaged: {found.answer.reason}."
            )
            raise RendezvousError(message)

    def _commit(self) -> Commit | None:
        """Make the commit. If it is another process's, that one has reported the ranks that it misses."""
        proposal = self._proposal()
        if proposal is None:
            return read_commit(self._context, self._round)
        # Those at home have seen all of it sooner. A look is one way there, and an attempt in vain three.
        is_behind = self._context.place != HOME and any(member.place == HOME for member in proposal.members)
        if is_behind and (stored := read_commit(self._context, self._round)) is not None:
            return stored
        commit = write_commit(self._context, proposal)
        if commit is proposal:
            # The control plane reads no amendments: whom one has left out is reported now.
            late = () if self._previous is None or not self._previous.revision else self._previous.absent
            self._suspect({*commit.absent, *late} - {member.rank for member in commit.members})
        return commit

    def _suspect(self, ranks: Iterable[int]) -> None:
        """Report ranks that are expected and have not contributed."""
        self._context.suspicions.report(self._context.pool, self._round, sorted(ranks))

    def _look(self) -> None:
        """Look for the contributions that have not arrived yet, and for newer claims of ranks without one.

        Also of a rank that is not expected: it may have claimed its rank before the last commit, and loaded since. The
        first look of a process that may be the last finds all that a commit needs, so that it commits with its next
        request: it looks for all claims beside the contributions, and for its own. Others would look in vain.
        """
        if self._context.quorum.is_elastic:
            self._note_announced()
        known = [(rank, self._tally.epochs[rank]) for rank in self._tally.open_ranks]
        own = self._own_checks()
        # More requests than connections would take the time of two looks, also for all those that look in vain.
        if self._looks or not self._seen.is_near or len(own) + 2 * len(known) > CONNECTIONS:
            self._look_in_turn(known)
            return
        looks: list[Callable[[], object]] = [
            *own,
            *(partial(self._read, *place) for place in known),
            *(partial(self._newer, *p) for p in known),
        ]
        found = self._context.side_by_side(_done, looks)[len(own) :]
        received, holders = found[: len(known)], found[len(known) :]
        claimed = [
            (rank, holder.epoch)
            for (rank, _), holder in zip(known, holders, strict=True)
            if isinstance(holder, Holder) and not holder.finish
        ]
        theirs = dict(zip(claimed, self._context.side_by_side(lambda place: self._read(*place), claimed), strict=True))
        for (rank, _), contribution, holder in zip(known, received, holders, strict=True):
            self._note_found(rank, contribution)
            if isinstance(holder, Holder):
                self._note_holder(rank, holder)
                self._note_found(rank, theirs.get((rank, holder.epoch)))
        self._held = {rank for (rank, _), holder in zip(known, holders, strict=True) if holder is None}
        self._held.add(self._claim.rank)
        self._looks += 2

    def _note_announced(self) -> None:
        """One listing shows the new claims of all ranks."""
        for claim in announced(self._context.store, self._round - 1):
            if claim.rank != self._claim.rank and claim.rank < self._context.quorum.replicas:
                self._tally.claimed(claim.rank, claim.epoch, loads=claim.loads)

    def _look_in_turn(self, known: list[tuple[int, int]]) -> None:
        """Look for contributions by ranks and epochs, and for a newer claim only where there is none."""
        found = self._context.side_by_side(lambda place: self._look_for(*place), known)
        for (rank, _), (holder, received) in zip(known, found, strict=True):
            if holder is not None:
                self._note_holder(rank, holder)
            self._note_found(rank, received)
        self._looks += 2

    def _look_for(self, rank: int, epoch: int) -> tuple[Holder | None, Received | None]:
        """The new holder of `rank` if there is one, and the contribution."""
        if (received := self._read(rank, epoch)) is not None:
            return None, received
        holder = self._newer(rank, epoch)
        return holder, None if holder is None or holder.finish else self._read(rank, holder.epoch)

    def _note_found(self, rank: int, received: object) -> None:
        if isinstance(received, Received):
            self._arrived[rank] = received.at
            self._look_of[rank] = self._looks
            self._note(rank, received)

    def _newer(self, rank: int, epoch: int) -> Holder | None:
        return newer_holder(self._context.store, rank, epoch)

    def _note_holder(self, rank: int, holder: Holder) -> None:
        """A newer process holds `rank`, or the replica has finished. A finish of another run says nothing about this.

        The run before this one in its lineage has ended, and this run will launch the replica as well.
        """
        finish = holder.finish
        if finish is None or finish.run != self._context.trained_by:
            self._tally.claimed(rank, holder.epoch, loads=holder.loads)
            return
        self._tally.finished_with(holder.epoch, finish)
        log.warning(
            "round=%d event=finished rank=%d last_round=%d on_early_finish=%s needed=%d reason=%r",
            self._round,
            rank,
            finish.round,
            self._context.on_early_finish,
            self._tally.needed,
            finish.how,
        )

    def _read(self, rank: int, epoch: int) -> Received | None:
        """A contribution; none of a rank without a claim."""
        if not epoch:
            return None
        return read_contribution(self._context, self._round, rank, epoch, self._blocks)

    def _note(self, rank: int, received: Received) -> None:
        answer = received.answer
        if isinstance(answer, Unusable):
            log.warning("round=%d event=excluded rank=%d reason=%r", self._round, rank, answer.reason)
            self._tally.exclude(rank, answer.reason)
            if answer.is_damaged:
                self._damaged.add((rank, self._tally.epochs[rank]))
        else:
            self._tally.contributed(answer, received.state, received.suspect)

    def _all_claims_hold(self) -> bool:
        """Whether every member still holds its rank: a superseded process must not be committed.

        Also looks when this process's own contribution came, for the proposal that follows. What this look has found
        already is not looked for again.
        """
        own = [] if self._claim.rank in self._held else self._own_checks()
        return not self._note_newer([m.rank for m in self._tally.members if m.rank not in self._held], own)

    def _own_checks(self) -> list[Callable[[], object]]:
        """Whether this process still holds its rank, and when its contribution came."""
        return [partial(check_claim, self._context.store, self._claim), self._look_for_own]

    def _look_for_own(self) -> None:
        try:
            self._own_arrival = self._context.store.read(self._mine.key, 0, 1).created_at
        except ObjectMissingError:
            self._own_arrival = None

    def _note_newer(self, ranks: Iterable[int], aside: Sequence[Callable[[], object]] = ()) -> bool:
        """Look for newer claims of other ranks than this process's own; whether there is one. `aside` is done beside
        that."""
        epochs = self._tally.epochs
        others = [rank for rank in ranks if rank != self._claim.rank]
        looks: list[Callable[[], object]] = [*aside, *(partial(self._newer, rank, epochs[rank]) for rank in others)]
        holders = self._context.side_by_side(_done, looks)[len(aside) :]
        for rank, holder in zip(others, holders, strict=True):
            if isinstance(holder, Holder):
                self._note_holder(rank, holder)
        return any(holders)

    def _exclude_what_can_be_spared(self) -> None:
        """Leave out what its own replica finds suspect, and then outliers, as far as the quorum allows."""
        tally = self._tally
        self._exclude(tally.suspects)
        self._exclude(outliers(tally.members, self._context.outlier_factor, tally.wanted))

    def _exclude(self, exclusions: Iterable[Exclusion]) -> None:
        for item in exclusions:
            log.warning("round=%d event=excluded rank=%d reason=%r", self._round, item.rank, item.reason)
            self._tally.exclude(item.rank, item.reason)

    def _proposal(self) -> Commit | None:
        """The commit that this process would make; None if it was suspended until the round's data was deleted."""
        members = self._tally.members
        if self._own_arrival is None:
            return None
        self._arrived[self._claim.rank] = self._own_arrival
        arrivals = sorted(self._arrived[member.rank] for member in members)
        expected, previous = self._statistics, self._previous
        commit = Commit(
            run=self._context.run,
            round=self._round,
            committed_at=timestamps.text(datetime.fromtimestamp(self._committed_at(), UTC)),
            count=self._blocks.count,
            exact=self._blocks.exact,
            members=members,
            excluded=self._tally.exclusions,
            excluded_before=() if self._previous is None else self._previous.excluded,
            excluded_total=len(self._tally.exclusions)
            + (0 if self._previous is None else self._previous.excluded_total),
            absent=self._tally.absent,
            arrivals=tuple(round(at - arrivals[0], 3) for at in arrivals),
            grace_seconds=round(self._tally.grace_seconds, 3),
            finished=self._tally.finished,
            epochs=self._tally.known_epochs,
            state=self._tally.confirmed_state,
            fragments=self._context.fragments,
            shards=shards_for(self._blocks, members),
            gathers=self._context.places is None and gathers(self._blocks, len(members)),
            unit=expected.unit or (DEFAULT_UNIT if previous is None else previous.unit),
            expected_rounds=expected.rounds or (None if previous is None else previous.expected_rounds),
            # Creation times are in whole seconds: of the same second, the one that was found later came later.
            last=max(members, key=lambda member: (self._arrived[member.rank], self._look_of[member.rank])).rank,
            data=self._tally.data,
        )
        rounds = [earlier.timed for earlier in (*self._seen.commits, commit)]
        pace = pace_of(rounds, len(commit.epochs), self._context.rounds_before)
        before = 0.0 if self._round == 1 else None if previous is None else previous.samples
        samples = None if before is None else before + commit.counted
        own: dict[str, object] = {"pace": pace, "samples": samples, "time_use": self._time_use(commit)}
        if (places := self._context.places) is not None:
            before = 0.0 if self._own_previous is None else self._own_previous.crossed_bytes or 0.0
            own["crossed_bytes"] = before + places.crossed(commit, self._context.codec)
            own["mean"] = places.far and places.far.name
        return commit.model_copy(update=own)

    @property
    def _own_previous(self) -> Commit | None:
        """The commit before this one, if it is of this run: what a run before has spent is shown with that one."""
        previous = self._previous
        return None if previous is None or previous.round <= self._context.rounds_before else previous

    def _time_use(self, commit: Commit) -> TimeUse:
        previous = self._own_previous
        times = RoundTimes(
            spent=[member.time for member in commit.members],
            waited_for=commit.waited_for,
            waited_before=None if previous is None else previous.waited_for,
        )
        use = None if previous is None else previous.time_use
        # Another replica wrote it: with more ranks than there are, each commit would be as large from now on.
        return time_use(use and use.of_replicas(self._context.quorum.replicas), times)

    def _committed_at(self) -> float:
        """The store's time now: the time of this process's contribution, and the seconds since then."""
        now = self._context.clock.monotonic()
        store_time = self._arrived[self._claim.rank] + now - self._contributed_at
        if self._previous is None:
            return store_time
        previous = timestamps.parse(self._previous.committed_at).timestamp()
        return commit_time(store_time, previous, now - self._seen.seen_at)

    def _raise_hopeless(self) -> NoReturn:
        excluded = self._tally.exclusions
        reasons = "; ".join(f"rank {item.rank}: {item.reason}" for item in excluded)
        message = f"Round {self._round} can no longer reach {self._tally.needed} participants ({reasons})."
        own = self._tally.is_unusable(self._claim.rank)
        raise DivergedError(message) if own else RendezvousError(message)

    def _what_is_missing(self) -> str:
        ranks = ", ".join(str(rank) for rank in self._tally.missing)
        present, needed = len(self._tally.members), self._tally.needed
        reasons = "".join(f"; rank {item.rank} does not count: {item.reason}" for item in self._tally.exclusions)
        return f"round {self._round} has {present} of at least {needed} participants; missing: rank {ranks}{reasons}."


def _done(action: Callable[[], object]) -> object:
    return action()
