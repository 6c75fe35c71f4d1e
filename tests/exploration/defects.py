"""Defects that are put into the replica's code, one at a time, to see that the exploration finds them.

Each replaces a piece of one function's source. The function object stays the same, so every importer runs the defect.
A piece that is not there exactly once is an error: a defect cannot silently stop being one.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from muster.replica.frontends import front_end, torchft_manager, torchft_states
from muster.replica.rounds import (
    agreement,
    claims,
    commit_store,
    contribution,
    exchange,
    initial_state,
    phase,
    quorum,
    reduced_shards,
    reduction,
    rendezvous,
    replicated_state,
    retention,
    snapshots,
    synchronizer,
    weighted_mean,
)
from muster.replica.store import missing_objects, s3_store
from tests.exploration.draws import explore_randomly
from tests.support.source_patch import replaced_once

SCHEDULES_MAX = 5_000


@dataclass(frozen=True)
class Defect:
    """In the source of `function`, `after` instead of `before`; schedules of one front end may find it."""

    name: str
    function: Callable[..., Any]
    before: str
    after: str
    front_end: str = "arrays"

    @contextmanager
    def put_back(self) -> Iterator[None]:
        """The code has the defect meanwhile."""
        sound_source = textwrap.dedent(inspect.getsource(self.function))
        source = replaced_once(sound_source, self.before, self.after, self.function.__qualname__)
        made: dict[str, Any] = {}
        exec(compile(source, self.name, "exec"), self.function.__globals__, made)  # noqa: S102 - our own source
        sound = self.function.__code__
        self.function.__code__ = made[self.function.__name__].__code__
        try:
            yield
        finally:
            self.function.__code__ = sound


def find(defect: Defect, seeds: Iterable[int]) -> tuple[int, str] | None:
    """The first schedule that breaks an invariant because of `defect`, and the invariant."""
    with defect.put_back():
        for seed in seeds:
            problems = explore_randomly(seed, defect.front_end).problems
            if problems:
                return seed, problems[0]
    return None


DEFECTS = (
    Defect(
        "members' newer claims are not looked at before a commit",
        agreement._Agreement._newer,
        "return newer_holder(self._context.store, rank, epoch)",
        "return newer_holder(self._context.store, rank, epoch) if rank not in self._arrived else None",
    ),
    Defect(
        "a rerun of an expected rank is not seen",
        agreement._Agreement._newer,
        "return newer_holder(self._context.store, rank, epoch)",
        "return newer_holder(self._context.store, rank, epoch) if not epoch else None",
    ),
    Defect(
        "a quorum waits on after the time-out",
        quorum.QuorumTally.decide,
        "if timed_out or not self.absent",
        "if not self.absent",
    ),
    Defect(
        "a renewed claim is taken for one's own",
        claims._succeed,
        "if found is None or found.nonce != nonce:",
        "if found is None:",
    ),
    Defect(
        "a contribution whose answer was lost is an error",
        contribution._contribute,
        'log.info("round=%d event=contribution-was-there", contribution.round)',
        "raise",
    ),
    Defect(
        "a finish is taken for a claim of another process",
        agreement._Agreement._note_holder,
        "if finish is None or finish.run != self._context.trained_by:",
        "if True:",
    ),
    Defect(
        "the next round forgets who has finished",
        agreement._Agreement.__init__,
        "self._previous.finished_in(context.trained_by)",
        "()",
    ),
    Defect(
        "a run that an early finish has ended trains on",
        rendezvous.Rendezvous._note,
        "self._last = commit",
        "pass",
    ),
    Defect(
        "a lost commit race is not noticed",
        commit_store.write_commit,
        "return read_commit(context, commit.round, commit.revision)",
        "return commit",
    ),
    Defect(
        "an amendment may leave fewer members than a round needs",
        commit_store.amended,
        "len(members) < needed_of(min_participants, len(commit.finished))",
        "False",
    ),
    Defect(
        "contributions that start from other parameters are averaged",
        quorum.QuorumTally._others,
        "if own != state",
        "if False",
    ),
    Defect(
        "the steps of a former process are taken for its successor's",
        exchange.Exchange._is_own,
        "(member.rank, member.epoch) == (self.rank, self.epoch)",
        "member.rank == self.rank",
        "diloco",
    ),
    Defect(
        "an eager replica whose round is deleted begins the next one",
        synchronizer.Synchronizer._renew,
        "if was_exchanging and (exchange is None or ",
        "if exchange is not None and (",
        "diloco",
    ),
    Defect(
        "what was given early is given again",
        synchronizer.Synchronizer._begin,
        "self._samples[fragment] = self._samples[fragment], 0.0",
        "self._samples[fragment] = self._samples[fragment], self._samples[fragment]",
        "diloco",
    ),
    Defect(
        "a rerun ends its first phase early",
        synchronizer.Synchronizer._begin_phase,
        "and not self._repeats()",
        "",
        "diloco",
    ),
    Defect(
        "a fragment weighs what was trained since the last exchange of any",
        synchronizer.Synchronizer._begin,
        "self._given_samples, self._samples[fragment] = self._samples[fragment], 0.0",
        "self._given_samples, self._samples = self._samples[fragment], [0.0] * len(self._samples)",
        "diloco",
    ),
    Defect(
        "a phase that was given is continued once more",
        synchronizer.Synchronizer._begin,
        "self._phases.discard()",
        "pass",
        "diloco",
    ),
    Defect(
        "a phase is continued without its weight",
        synchronizer.Synchronizer.resume,
        "self._samples, self._begun = phase.samples.tolist(), phase.begun",
        "self._begun = phase.begun",
        "diloco",
    ),
    Defect(
        "a phase is continued with the state of another process",
        front_end.DiLoCoFrontEnd._restore,
        "(phase.given, phase.epoch)",
        "(phase.given, None)",
        "diloco",
    ),
    Defect(
        "a phase is continued after its round",
        phase.StoredPhase.load,
        "phase.round == round_",
        "True",
        "diloco",
    ),
    Defect(
        "a replica that stops gives before its state is saved",
        rendezvous.Rendezvous._contributed,
        "with self.times.stage(Activity.SAVING):\n"
        "        jointly(self._context.link, lambda: update.before_giving(made.header.declined is None))\n"
        "    contribute(self._context, made)",
        "contribute(self._context, made)\n"
        "    with self.times.stage(Activity.SAVING):\n"
        "        jointly(self._context.link, lambda: update.before_giving(made.header.declined is None))",
        "diloco",
    ),
    Defect(
        "a process whose parameters have other bits trains on",
        rendezvous.Rendezvous.exchange,
        "None not in (commit.state, update.state) and commit.state != update.state",
        "False",
    ),
    Defect(
        "a process that loads is waited for",
        quorum.QuorumTally.claimed,
        "if not loads:",
        "if True:",
    ),
    Defect(
        "a void round is applied",
        replicated_state.ReplicatedState._apply,
        "if exchange.commit.void:",
        "if False:",
    ),
    Defect(
        "torchft applies a void round",
        torchft_manager.Manager.should_commit,
        "self._took_part and not self._is_void",
        "self._took_part",
        "torchft",
    ),
    Defect(
        "a contribution is given although its parts are not stored",
        contribution._store_part,
        "writer.close()",
        "pass",
        "groups",
    ),
    Defect(
        "the process that can encode its values contributes without the other",
        contribution._reason_to_decline,
        "(answer.declined for answer in answers if answer.declined)",
        "(answer.declined for answer in answers[1:] if answer.declined)",
        "groups",
    ),
    Defect(
        "what a process has made beyond its slice is not handed over",
        reduction._Reduction.complete,
        "link.size > 1 and self._position is not None",
        "False",
        "groups",
    ),
    Defect(
        "a process applies a revision that another one has rejected",
        reduction.reduced_mean,
        "answers = each(context.link, partial(_rejected_by, reduction, polling))",
        "answers = [_rejected_by(reduction, polling)]",
        "groups",
    ),
    Defect(
        "a process of a replica writes its snapshot shards without the others' values",
        snapshots.Snapshots._assembled,
        "zip(mine, link.swap(sends, counts), strict=True)",
        "zip(mine[:1], link.swap(sends, counts)[:1], strict=True)",
        "groups",
    ),
    Defect(
        "each process of a replica decides by itself whether a round is committed",
        rendezvous.Rendezvous._before_contributing,
        "commit = self._by_first(look)",
        "commit = look()",
        "groups",
    ),
    Defect(
        "a round is committed with one member too few",
        quorum.QuorumTally.decide,
        "if present < self.needed:",
        "if present < self.needed - 1:",
    ),
    Defect(
        "the mean adds this process's contribution first",
        weighted_mean.WeightedMean.runs,
        "members = self._commit.members\n",
        "members = tuple(sorted(self._commit.members, key=lambda member: self._mine is not None "
        "and member != self._mine.header.member))\n",
    ),
    Defect(
        "the weights are left out",
        weighted_mean.WeightedMean._add,
        "member.weight / average",
        "1.0",
    ),
    Defect(
        "a damaged shard is repaired in the threads that the repair needs",
        reduced_shards.ReducedShards.read,
        "return Look.DAMAGED",
        "self.repair(shard, sink)\n    return Look.READ",
    ),
    Defect(
        "no member takes over a late shard",
        reduction._Reduction.gather,
        "if timed_out or (self._is_maker(shard) and clock.monotonic() >= due[shard])",
        "if False",
    ),
    Defect(
        "a process that joins takes no shard over",
        reduction._Reduction._distance,
        "return members if self._position is None",
        "return 10**9 if self._position is None",
    ),
    Defect(
        "a header damaged in transit excludes its sender",
        contribution.read_contribution,
        "range(READ_TRIES)",
        "range(1)",
    ),
    Defect(
        "the newest snapshot is deleted, too",
        retention.Keeper._sweep,
        "(self._states.folder(place), limit),",
        "(self._states.folder(place), limit + 1),",
    ),
    Defect(
        "data are deleted before a snapshot covers them",
        retention.Keeper._sweep,
        "(keys.reduced_of(place), limit + 1),",
        "(keys.reduced_of(place), limit + 2),",
    ),
    Defect(
        "shards beyond the number of replicas are kept",
        retention.Keeper.keep,
        "self._states.shards(limit), self._reduced)",
        "self._states.shards(limit))",
        "torchft",
    ),
    Defect(
        "shards of rounds with fewer members are kept",
        reduced_shards.most_shards,
        "numbers = range(1, replicas + 1)",
        "numbers = [replicas]",
        "torchft",
    ),
    Defect(
        "a snapshot is sealed before its shards are there",
        snapshots.Snapshots.is_complete,
        "if not complete or self.missing(round_):",
        "if not complete:",
    ),
    Defect(
        "the initial state has no source of its own",
        initial_state._source,
        'return f"{rank:05d}-{epoch:06d}"',
        'return "shared"',
    ),
    Defect(
        "the wait for the initial parameters has no end",
        initial_state._arrived,
        "or polling.left_seconds <= 0",
        "and False",
    ),
    Defect(
        "a straggler keeps its place without a new state",
        replicated_state.ReplicatedState.advance,
        "self._apply(exchange)",
        "self.outer.apply(self.state, exchange.mean if exchange.took_part else exchange.mean * 0, "
        "self.packing.optimized)",
    ),
    Defect(
        "the state of the last round is waited for",
        torchft_states.TorchftStates.latest,
        "range(last, max(last - 2, -1), -1)",
        "(last,)",
        "torchft",
    ),
    Defect(
        "a round that torchft's state lacks is counted and not applied",
        torchft_manager.Manager._catch_up,
        "self._replay(exchange)",
        "self._round += 1",
        "torchft",
    ),
    Defect(
        "a stream that breaks is not continued",
        s3_store.S3ObjectStore.stream,
        "if broken == TRIES:",
        "if broken:",
    ),
    Defect(
        "a 409 is taken for an object",
        s3_store.S3ObjectStore._put,
        "raise GenericError(_first_line(error)) from None",
        "raise error",
    ),
    Defect(
        "an object that appears after a 403 is denied",
        missing_objects.MissingObjects.found,
        "answer = request()\n    self._has_read",
        "raise\n    self._has_read",
    ),
)
