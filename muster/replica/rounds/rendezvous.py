"""One process's place among the replicas: its claim of a rank, and the exchange of one round after another."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from muster.contract.run.commit import Commit, Finish, Resumed
from muster.contract.run.round_values import ROUND_MAX, UNIT
from muster.contract.run.time_use import Activity
from muster.contract.spec.policies import OnEarlyFinish
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import is_usable
from muster.replica.errors import FencedError, HistoryGoneError, OtherStateError, ParametersError, RunEndedError
from muster.replica.metrics import Metrics
from muster.replica.model.model_folder import ModelFolder, Wishes
from muster.replica.parts.link import Link, by_first, each, jointly
from muster.replica.parts.packing import Packing
from muster.replica.rounds.agreement import Recent, agree
from muster.replica.rounds.background import Background
from muster.replica.rounds.claims import Claim, claim_rank, give_up_claim, is_superseded, renew_claim, shared_claim
from muster.replica.rounds.commit_store import read_commit, read_last_revision
from muster.replica.rounds.contribution import Contribution, Notes, contribute, make_contribution
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.grace import ROUNDS_SEEN
from muster.replica.rounds.reduction import reduced_mean
from muster.replica.rounds.result import Result, result_of
from muster.replica.rounds.round_context import RoundContext, log
from muster.replica.rounds.round_history import last_committed
from muster.replica.rounds.run_options import Setting, agree_on_options
from muster.replica.store.checkpoints import KEPT, Checkpoints
from muster.replica.time_account import TimeAccount
from muster.replica.watching.self_watch import SelfWatch
from muster.replica.wire import keys
from muster.replica.wire.binary_format import object_bytes

T = TypeVar("T")

WAITS_SEEN = 3  # the shortest of the last waits says before when no look is worth while


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a process trains and leaves as its result.

    Attributes:
        state: the global state, which advances round by round.
        packing: the trainer's own arrays; None where it keeps them to itself.
        exchanges: the exchange that runs beside the training loop.
    """

    state: GlobalState
    packing: Packing | None = None
    exchanges: Background[Exchange | None] = field(default_factory=Background)


class Rendezvous:
    """This process's place among the replicas: the first argument of every front end. One per process."""

    def __init__(self, context: RoundContext, claim: Claim, metrics: Metrics) -> None:
        """The latest value of each of the `metrics` is sent with every contribution."""
        self._context = context
        self._claim = claim
        self.metrics = metrics
        self.times = TimeAccount(context.clock.monotonic)
        self._recent: deque[Commit] = deque(maxlen=ROUNDS_SEEN)
        self._waits: deque[float] = deque(maxlen=WAITS_SEEN)
        self._seen_at = context.clock.monotonic()
        self._training: Trained | None = None
        self._last: Commit | None = None
        self._wishes: Wishes | None = None
        self._end: Callable[[], object] = lambda: None
        self._how = "its trainer has finished"
        self._given_up: Claim | None = None
        self._result: Result | None = None
        self._has_left = False
        self.resumed: Resumed | None = None
        """The stored inner state with which this process has begun, if it is none of a round."""
        self.watch = SelfWatch.of(context, claim, metrics)

    @classmethod
    def open(cls, context: RoundContext, rank: int, attempt: int, metrics: Metrics) -> Rendezvous:
        """Claim `rank` for this process's group; every process that held it before is fenced from now on.

        Raises:
            FencedError: a newer attempt holds it.
            HistoryGoneError: the rounds that this run continues are no longer stored.
            BoardError: the first process of the group cannot be reached.
        """
        claim = shared_claim(context.board, context.group, "first", lambda: cls._claimed(context, rank, attempt))
        return cls(context, claim, metrics)

    @staticmethod
    def _claimed(context: RoundContext, rank: int, attempt: int) -> Claim:
        last = last_committed(context.store)
        if last < context.rounds_before:
            # Its claims may be gone, too: a claim now would not fence the processes before.
            found = f"the run continues round {context.rounds_before}, and the last commit is that of round {last}"
            raise HistoryGoneError(context.store.uri(keys.COMMITS), found)
        commit = read_commit(context, last) if last else None
        known = 0 if commit is None else commit.epochs[rank]
        claim = claim_rank(context.store, context.run, rank, attempt, known, loads=last > 0)
        log.info(
            "event=seated rank=%d attempt=%d incarnation=%d epoch=%d", rank, attempt, claim.incarnation, claim.epoch
        )
        return claim

    @property
    def rank(self) -> int:
        """This replica's rank, from 0."""
        return self._claim.rank

    @property
    def incarnation(self) -> int:
        """The number of this process within its attempt, from 1."""
        return self._claim.incarnation

    @property
    def world_size(self) -> int:
        """The number of replicas in the run."""
        return self._context.quorum.replicas

    @property
    def training(self) -> Trained | None:
        """What this process trains, with its current state; None before `enter`."""
        return self._training

    @property
    def epoch(self) -> int:
        """The number of this process's current claim."""
        return self._claim.epoch

    def counted(self, round_: int) -> int | None:
        """The claim of this replica's contribution that counts in `round_`, the last round that this process has seen.

        None if none counts; also for any other round.
        """
        commit = self._recent[-1] if self._recent else None
        if commit is None or commit.void or commit.round != round_:
            return None
        return next((member.epoch for member in commit.members if member.rank == self.rank), None)

    def checkpoints(self, folder: Path | None, kind: str, kept: int = KEPT) -> Checkpoints | None:
        """This process's own states of one kind, the large ones as often as the run saves them; None without a folder.

        The processes of a replica may share the folder: those of a group have its rank and size in their files' names.
        """
        group = self._context.group
        named = kind if group.size == 1 else f"{kind}-p{group.rank}of{group.size}"
        return None if folder is None else Checkpoints(folder, named, self._context.checkpoint_rounds, kept, self)

    @property
    def context(self) -> RoundContext:
        """The store and the run's rules."""
        return self._context

    @property
    def claim(self) -> Claim:
        """This process's current claim of its rank."""
        return self._claim

    @property
    def recent(self) -> tuple[Commit, ...]:
        """The commits of the last rounds that this process has seen, oldest first."""
        return tuple(self._recent)

    def check_not_ended(self) -> None:
        """Return if the run has another round.

        Raises:
            RunEndedError: a replica has finished, the others have ended their round, and by the run's rule it is the
                last one (`on_early_finish: stop`).
        """
        if self._last is not None:
            raise RunEndedError(self._last.round, self._last.finished_in(self._context.trained_by))

    @property
    def has_ended(self) -> bool:
        """Whether `check_not_ended` raises."""
        return self._last is not None

    def expect(self, rounds: int | None, unit: str | None) -> None:
        """What the trainer says about its training; None leaves as it is what was said before.

        Raises:
            ParametersError: a number of rounds or a unit that is not allowed.
        """
        problems = []
        if rounds is not None and (
            isinstance(rounds, bool) or not isinstance(rounds, int) or not 1 <= rounds <= ROUND_MAX
        ):
            problems.append(f"rounds is {rounds!r}; allowed: 1 to {ROUND_MAX:,}, the rounds of the whole run")
        if unit is not None and (not isinstance(unit, str) or re.fullmatch(UNIT, unit) is None):
            problems.append(f"unit is {unit!r}; allowed: at most 20 lower-case letters, such as tokens")
        if problems:
            message = f"What the trainer expects is invalid: {'; '.join(problems)}."
            raise ParametersError(message)
        expected = self._context.expected
        expected.rounds, expected.unit = rounds or expected.rounds, unit or expected.unit

    @property
    def rounds_left(self) -> int:
        """How many rounds follow by what the trainer has said; 0 if it has not, or if the run has ended."""
        expected = self._context.expected.rounds
        if expected is None or self._training is None or self.has_ended:
            return 0
        return max(0, expected - self._training.state.round)

    def leave_with(self, wishes: Wishes, end: Callable[[], object]) -> None:
        """What this process leaves, and the front end's call that ends its training and then calls `leave`."""
        self._wishes, self._end = wishes, end

    def leaves_no_model(self) -> None:
        """The trainer brings its own loop: it leaves no model, and need not take part in any round."""
        self._end = self._leave_without_model

    def _leave_without_model(self) -> None:
        self._context.progress.is_over = True
        if self._context.group.is_first:
            self.finish(self._how)
        self._has_left = True

    def leave(self) -> None:
        """End this replica's part in the run, once its model holds the global parameters: later calls do nothing.

        All processes of the replica call this, while they are connected. Gives the rank up, and writes the run's model
        if the other replicas have finished as well.

        Raises:
            FencedError: another process holds the rank.
            ParametersError, TrainerError: what the trainer wants of the model fails.
            RendezvousError, StoreDeniedError, StoreUnavailableError
        """
        context, training, wishes = self._context, self._training, self._wishes
        context.progress.is_over = True
        if self._has_left or context.results is None or training is None or wishes is None or training.packing is None:
            return
        how = f"the run ended with round {self._last.round}" if self._last is not None else self._how
        # Before anything else: the others may be waiting. If the rest fails, a rerun claims the rank again.
        self._by_first(lambda: self.finish(how))
        result = result_of(training.packing.cut, training.state, context.link)
        folder = ModelFolder(context, context.results, self._given_up or self._claim, result.round, result.checksum)
        folder.leave(wishes)
        self._result, self._has_left = result, True

    def returned(self, how: str) -> Result | None:
        """The trainer has returned: leave, if the front end has not. `how`: in words, for the others.

        Returns:
            None if the trainer has created no front end.
        """
        if not self._has_left:
            self._how = how
            self._end()
        return self._result

    def finish(self, how: str) -> None:
        """Report that the replica's trainer has finished, and give the rank up. `how`: in words, for the others.

        The first process of a group calls this, for all of them; later calls do nothing.

        Raises:
            FencedError: another process holds the rank.
        """
        context, training = self._context, self._training
        if context.on_early_finish is None or training is None or self._given_up is not None:
            return
        finish = Finish(rank=self.rank, run=context.trained_by, round=training.state.round, how=how)
        # An exchange that may still be running keeps the old claim, and so is fenced.
        self._given_up = give_up_claim(context.store, context.run, self._claim, finish)

    @property
    def has_left(self) -> bool:
        """Whether this replica's part in the run has ended."""
        return self._has_left

    def agree(self, codec: str, settings: Mapping[str, Setting]) -> None:
        """Use `codec` from now on, and check that this process trains like the run; raises as `agree_on_options`."""
        factor, fragments = float(settings.get("outlier_factor", 0.0)), int(settings.get("fragments", 1))
        self._context = replace(self._context, codec=codec_named(codec), outlier_factor=factor, fragments=fragments)
        self._by_first(lambda: agree_on_options(self._context, settings))

    def refuse_second_join(self) -> None:
        """Return if this process has not entered yet.

        Raises:
            ParametersError: it has.
        """
        if self._training is not None:
            message = (
                "This process has already joined the rendezvous: put all parameters into one DiLoCo, and train with "
                "one Trainer."
            )
            raise ParametersError(message)

    def enter(self, trained: Trained) -> None:
        """Take part from the round after `trained.state.round` on. `agree` comes first.

        Raises:
            ParametersError: this process has entered before.
        """
        self.refuse_second_join()
        self._training = trained
        self.remember(trained.state.round)

    def ready(self) -> None:
        """This process has loaded the run's state: the others wait for it from now on. Raises as `rejoin`.

        All processes of the replica call this.
        """
        if self._claim.loads:
            self.rejoin()

    def connect(self, link: Link) -> None:
        """Use `link` to the other processes of this replica from now on."""
        self._context = replace(self._context, link=link)

    def remember(self, round_: int) -> None:
        """Restart the record of recent commits at `round_`: the next round expects that round's members."""
        self._recent.clear()
        self._seen_at = self._context.clock.monotonic()
        if round_ and (commit := self._by_first(lambda: read_last_revision(self._context, round_))) is not None:
            self._note(commit)

    def exchange(self, round_: int, update: LocalUpdate) -> Exchange:
        """Contribute to `round_`, the one after the last that this process saw; blocks until its mean is known.

        Applies nothing to any state. May run in a thread of its own, one exchange at a time.

        Raises:
            OtherStateError: the contribution starts from other parameters than the round's members.
            FencedError, StoppedError, RendezvousError, DivergedError
        """
        mine: Contribution | None = None
        polling = self._context.polling()
        began = self._context.clock.monotonic()
        commit = self._before_contributing(round_, update)
        latency = self._context.clock.monotonic() - began
        if commit is None:
            made = mine = self._contributed(round_, update)
            recent = Recent(tuple(self._recent), self._seen_at, tuple(self._waits), latency)
            began = self._context.clock.monotonic()
            with self.times.stage(Activity.WAITING):
                commit = self._by_first(lambda: agree(self._context, self._claim, made, recent, polling))
            self._waits.append(self._context.clock.monotonic() - began)
        else:
            self._too_late(round_, update)
        if None not in (commit.state, update.state) and commit.state != update.state:
            raise OtherStateError(round_, str(update.state), str(commit.state))
        exchange = self._exchanged(commit, mine)
        if mine is not None and update.residual is not None:
            update.residual.settle(round_, counts=exchange.took_part)
        if self.watch is not None:
            seconds = () if mine is None else mine.seconds
            self._by_first(partial(self.watch.judge_pace, self._claim, self.recent, seconds))
        return exchange

    def give(self, round_: int, update: LocalUpdate) -> None:
        """Contribute to `round_` as `exchange`, but do not wait for its commit: this process ends.

        Raises:
            FencedError
        """
        if self._before_contributing(round_, update) is None:
            self._contributed(round_, update)
        else:
            self._too_late(round_, update)

    def _before_contributing(self, round_: int, update: LocalUpdate) -> Commit | None:
        """The round's commit; if there is none, this process may contribute `update`, whose upload is prepared.

        Raises:
            FencedError: a newer process holds the rank.
        """
        context, claim = self._context, self._claim

        def look() -> Commit | None:
            commit, superseded = context.both(
                lambda: read_commit(context, round_),
                lambda: is_superseded(context.store, claim.rank, claim.epoch),
            )
            if commit is None and superseded:
                raise FencedError(claim.rank, claim.attempt, claim.incarnation)
            return commit

        key = keys.contribution(round_, claim.rank, claim.epoch)
        if context.link.size == 1:
            context.store.expect_upload(key, object_bytes(update.gradient.size, context.codec, update.exact))
        commit: Commit | None = None
        contributes = False
        try:
            commit = self._by_first(look)
            contributes = commit is None
        finally:
            if not contributes:
                context.store.forget_upload(key)
        return commit

    def _contributed(self, round_: int, update: LocalUpdate) -> Contribution:
        if self.watch is not None:
            update = replace(update, suspect=self._by_first(partial(self.watch.judge_loss, self.recent)))
        notes = Notes(*self.metrics.sent(round_), self.times.take(), self.resumed)
        made = make_contribution(self._context, self._claim, round_, update, notes)
        with self.times.stage(Activity.SAVING):
            jointly(self._context.link, lambda: update.before_giving(made.header.declined is None))
        contribute(self._context, made)
        return made

    def _too_late(self, round_: int, update: LocalUpdate) -> None:
        update.before_giving(all(each(self._context.link, lambda: is_usable(update.gradient))))
        if update.residual is not None:
            update.residual.settle(round_, counts=False)

    def committed(self, round_: int) -> Exchange | None:
        """The result of `round_` for a process that did not contribute; None while the round is not committed."""
        commit = self._by_first(lambda: read_commit(self._context, round_))
        return None if commit is None else self._exchanged(commit, None)

    def rejoin(self) -> None:
        """Renew the claim after a round without this process: the others then expect it again.

        All processes of the replica call this, after the same round.

        Raises:
            FencedError: another process has claimed the rank since.
            BoardError: the first process of the group cannot be reached.
        """
        context, old = self._context, self._claim
        # The epoch makes the name new: a renewal has a later one than the claim before.
        name = str(old.epoch + 1)
        renew = partial(renew_claim, context.store, context.run, old)
        self._claim = shared_claim(context.board, context.group, name, renew)

    def _by_first(self, action: Callable[[], T]) -> T:
        """What the first process of the replica does; the others get the result, or raise the same error."""
        return by_first(self._context.link, action)

    def _exchanged(self, commit: Commit, mine: Contribution | None) -> Exchange:
        self._seen_at = self._context.clock.monotonic()
        # A time-out of its own: a commit may come when the one of the wait for it is over.
        commit, mean = reduced_mean(self._context, commit, mine, self._context.polling())
        self._note(commit)
        self._show_pace(commit)
        return Exchange(commit, mean, self.rank, None if mine is None else mine.header.member.epoch)

    def _note(self, commit: Commit) -> None:
        """The next round expects the members of `commit`. If it is the last one, the trainer is asked to return:
        now, or by a front end after the same inner step in all processes of the replica.

        The commit decides, so all replicas that are left end with the same round, late and restarted ones included.
        """
        self._recent.append(commit)
        self._context.progress.committed(commit.round)
        if self._context.on_early_finish is OnEarlyFinish.STOP and commit.finished_in(self._context.trained_by):
            self._last = commit
            if not self._context.stops_at_steps.is_set():
                self._context.trainer_stop.set()
            log.warning("round=%d event=run-ended on_early_finish=stop", commit.round)

    def _show_pace(self, commit: Commit) -> None:
        """Log the rates of this replica and of the run, as `tokens_per_second` and `run_tokens_per_second`."""
        if commit.pace is None or not self._context.group.is_first:
            return
        own = commit.pace.by_rank[self.rank] if self.rank < len(commit.pace.by_rank) else None
        rates = {} if own is None else {f"{commit.unit}_per_second": own}
        self.metrics.show({**rates, f"run_{commit.unit}_per_second": commit.pace.samples_per_second})
