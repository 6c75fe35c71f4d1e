"""The quorum of one round: which ranks are expected, which have contributed, whether that is enough. Pure.

Expected are the members of the last round and every rank claimed since (by a rerun, a restart, or a straggler that was
left out and rejoins), once its process has loaded the run's state. A dead replica therefore delays the others by one
grace window, once. A replica that has finished is not expected, and counts towards the quorum: it has done its part.

Where seats come and go, a number says little: a run may also want a share of the expected. With less than that a round
waits as long as rounds usually take, and then does with the fewest that it may have.

All contributions to a round start from the same parameters. If some start from others, those of the majority count.
Where contributions say which shards of the data they have trained, none counts that has trained one again; its replica
has done its part as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, inf
from statistics import median

from muster.contract.run.commit import Commit, Exclusion, Finish, Member
from muster.contract.run.trained_data import DataProgress

# S3's creation times are in whole seconds, rounded down.
STORE_TIME_SECONDS = 1.0
# Of those who are absent when all others are there, at most so many are only late: the others are lost.
ARRIVES_SHARE = 0.5


class QuorumDecision(Enum):
    """What to do about a round."""

    WAIT = "wait"
    COMMIT = "commit"
    HOPELESS = "hopeless"


@dataclass(frozen=True)
class Quorum:
    """How many replicas must contribute, and for how long a quorum then waits for the others at most.

    Attributes:
        replicas: the seats of the run; each has a rank.
        min_participants: fewer contributions make no round.
        share: of the expected replicas; with fewer a round waits longer. None: `min_participants` are enough.
        start: in an elastic run, whose seats come and go, for how many the first round waits; None: all are taken.
    """

    replicas: int
    min_participants: int
    grace_seconds: float
    share: float | None = None
    start: int | None = None

    @property
    def is_elastic(self) -> bool:
        """Whether seats may be empty for as long as the run lasts."""
        return self.start is not None

    @property
    def first(self) -> range:
        """The ranks that the first round expects."""
        return range(self.replicas if self.start is None else self.start)

    def wanted(self, expected: int, finished: int) -> int:
        """For how many contributions of the `expected` ones a round waits longer than a grace window."""
        share = 0 if self.share is None else ceil(round(self.share * expected, 6))
        return max(share, needed_of(self.min_participants, finished))

    def patience_seconds(self, previous: Commit | None) -> float:
        """For how long a round waits at most for the wanted share: as rounds usually take, but no less than a grace."""
        return max(self.grace_seconds, usual_seconds(previous))


def needed_of(min_participants: int, finished: int) -> int:
    """How many contributions make a round after `finished` replicas have finished."""
    return max(1, min_participants - finished)


def usual_seconds(previous: Commit | None) -> float:
    """How long rounds took lately, by the commit of the last one; 0 where it is not known."""
    return 0.0 if previous is None or previous.pace is None else previous.pace.round_seconds


def worth_waiting(previous: Commit | None, absent: int, present: int) -> float:
    """For how many seconds it is worth while to wait for `absent` replicas.

    Whoever is left out loses what it has trained in a round, and whoever waits trains nothing meanwhile. Infinity where
    it is not known how long rounds take.
    """
    usual = usual_seconds(previous)
    return max(STORE_TIME_SECONDS, ARRIVES_SHARE * usual * absent / present) if usual and present else inf


def outliers(members: Sequence[Member], factor: float, needed: int) -> tuple[Exclusion, ...]:
    """The contributions whose norm is more than `factor` times the median of all; `needed` ones are left in any case.

    None of fewer than three: with two it is open which one is wrong.
    """
    norms = {member.rank: member.norm for member in members if member.norm is not None}
    if not factor or len(norms) < 3:
        return ()
    middle = median(norms.values())
    far = sorted((rank for rank, norm in norms.items() if norm > factor * middle), key=norms.__getitem__, reverse=True)
    reason = "the norm of its pseudo-gradient, {:.6g}, is more than {:g} times the median of the round, {:.6g}"
    return tuple(
        Exclusion(rank=rank, reason=reason.format(norms[rank], factor, middle))
        for rank in far[: max(0, len(members) - needed)]
    )


class QuorumTally:
    """What one replica has seen of a round so far."""

    def __init__(self, quorum: Quorum, grace_seconds: float, previous: Commit | None) -> None:
        self._quorum, self._previous = quorum, previous
        self.grace_seconds = grace_seconds
        self._patience_seconds = quorum.patience_seconds(previous)
        self._since: float | None = None  # when the fewest members were there
        self._wanted_since: float | None = None
        self._members: dict[int, Member] = {}
        self._excluded: dict[int, str] = {}
        self._states: dict[int, str] = {}
        self._suspects: dict[int, str] = {}
        self._finished: dict[int, Finish] = {}
        self._loading: set[int] = set()
        known = () if previous is None else previous.epochs
        self.epochs = [*known, *[0] * (quorum.replicas - len(known))]
        self._expected = set(quorum.first) if previous is None else previous.expected
        self._data = None if previous is None else previous.data_after

    @property
    def known_epochs(self) -> tuple[int, ...]:
        """The latest known claim of each rank; of an elastic run up to the last rank that has one."""
        ranks = max((rank for rank, epoch in enumerate(self.epochs) if epoch), default=0) + 1
        return tuple(self.epochs[:ranks] if self._quorum.is_elastic else self.epochs)

    def claimed(self, rank: int, epoch: int, *, loads: bool = False) -> None:
        """A newer process holds `rank`: its predecessor's contribution no longer counts, and its own is expected.

        A claim that says that it still `loads` also says that its predecessor is gone: neither is waited for.
        """
        if epoch <= self.epochs[rank]:
            return
        self.epochs[rank] = epoch
        if loads:
            self._loading.add(rank)
        else:
            self._loading.discard(rank)
            self._expected.add(rank)
        self._finished.pop(rank, None)
        self._members.pop(rank, None)
        self._states.pop(rank, None)
        self._suspects.pop(rank, None)
        self._excluded.pop(rank, None)

    def finished_with(self, epoch: int, finish: Finish) -> None:
        """The replica of `finish` gave its rank up with the claim `epoch`: nothing of it is expected any more."""
        self.claimed(finish.rank, epoch)
        self._expected.discard(finish.rank)
        self._finished[finish.rank] = finish

    def contributed(self, member: Member, state: str | None = None, suspect: str | None = None) -> None:
        """`member` made a usable contribution. `state`: the digest of the parameters that it starts from, if known.

        `suspect`: why the round is made without it, if enough others are left.
        """
        self._members[member.rank] = member
        if suspect is not None:
            self._suspects[member.rank] = suspect
        if state is not None:
            self._states[member.rank] = state

    def exclude(self, rank: int, reason: str) -> None:
        """The contribution of `rank` cannot be used."""
        self._members.pop(rank, None)
        self._excluded[rank] = reason

    @property
    def members(self) -> tuple[Member, ...]:
        """Usable contributions that start from the same parameters, by rank."""
        repeated = self._repeated()
        return tuple(member for member in self._usable() if member.rank not in repeated)

    @property
    def exclusions(self) -> tuple[Exclusion, ...]:
        """Contributions that do not count with their reasons, by rank."""
        state = self.state
        reasons = self._excluded | {
            rank: f"its parameters before the round have the digest {self._states[rank]}, "
            + ("and those of as many others another one" if state is None else f"those of most others {state}")
            for rank in self._others()
        }
        reasons |= self._repeated()
        return tuple(Exclusion(rank=rank, reason=reasons[rank]) for rank in sorted(reasons))

    @property
    def suspects(self) -> tuple[Exclusion, ...]:
        """The members that the round is made without, by rank: as many as the quorum leaves."""
        ranks = [member.rank for member in self.members if member.rank in self._suspects]
        spare = max(0, len(self.members) - self.wanted)
        return tuple(Exclusion(rank=rank, reason=self._suspects[rank]) for rank in ranks[:spare])

    @property
    def state(self) -> str | None:
        """The digest of the parameters from which most contributions start; None if none is known, or in a tie."""
        counted = Counter(self._states.values()).most_common(2)
        is_tied = len(counted) == 2 and counted[0][1] == counted[1][1]
        return counted[0][0] if counted and not is_tied else None

    @property
    def confirmed_state(self) -> str | None:
        """`state`, if at least two contributions start from it: one alone may be the one that is wrong."""
        state = self.state
        return state if list(self._states.values()).count(state or "") > 1 else None

    def is_unusable(self, rank: int) -> bool:
        """Whether the contribution of `rank` is unusable by itself, whatever the others'."""
        return rank in self._excluded

    def _others(self) -> set[int]:
        """The ranks whose contributions start from other parameters than the majority's; in a tie all of them."""
        state = self.state
        return {rank for rank, own in self._states.items() if own != state}

    def _usable(self) -> tuple[Member, ...]:
        """The contributions whose values can be averaged, by rank."""
        return tuple(self._members[rank] for rank in sorted(self._members.keys() - self._others()))

    @property
    def data(self) -> DataProgress | None:
        """The shards of the data that have counted before this round; None if no contribution names any."""
        if self._data is not None or all(member.data is None for member in self._members.values()):
            return self._data
        named = [member.data.shards for member in self._usable() if member.data is not None]
        return DataProgress(shards=named[0]) if named else None

    def _repeated(self) -> Mapping[int, str]:
        """The ranks that have trained shards again that count without them, each with what is said of it."""
        data = self.data
        return {} if data is None else data.left_out(self._usable(), self._quorum.replicas)

    @property
    def finished(self) -> tuple[Finish, ...]:
        """The replicas that have finished, by rank."""
        return tuple(self._finished[rank] for rank in sorted(self._finished))

    @property
    def needed(self) -> int:
        """How many contributions make this round, at least."""
        return needed_of(self._quorum.min_participants, len(self._finished) + len(self._repeated()))

    @property
    def wanted(self) -> int:
        """How many contributions make it without a longer wait for more."""
        wanted = self._quorum.wanted(len(self._expected), len(self._finished))
        return max(self.needed, wanted - len(self._repeated()))

    @property
    def open_ranks(self) -> list[int]:
        """The ranks that have not contributed; of an elastic run those that are expected: most seats may be empty."""
        ranks = sorted(self._expected) if self._quorum.is_elastic else range(self._quorum.replicas)
        return [r for r in ranks if r not in self._members and r not in self._excluded]

    @property
    def missing(self) -> list[int]:
        """The open ranks of which a contribution may come: their replicas have not finished."""
        return [rank for rank in self.open_ranks if rank not in self._finished]

    @property
    def absent(self) -> tuple[int, ...]:
        """The ranks that are expected and have not contributed, but for those whose new process still loads."""
        awaited = self._expected - self._loading
        return tuple(rank for rank in self.open_ranks if rank in awaited)

    @property
    def closes_at(self) -> float:
        """When the wait ends, once `decide` has seen a quorum; infinity before."""
        if self._since is None:
            return inf
        patient_until = self._since + self._patience_seconds
        if self._wanted_since is None:
            return patient_until
        return min(self._wanted_since, patient_until) + min(self.grace_seconds, self._worth_waiting())

    def _worth_waiting(self) -> float:
        """For how many seconds those who are there wait at most: together no longer than the absent ones would lose."""
        return worth_waiting(self._previous, len(self.absent), len(self.members))

    def decide(self, now: float, *, timed_out: bool = False) -> QuorumDecision:
        """What to do at `now` (seconds of a monotonic clock). After the time-out a quorum commits without waiting."""
        present = len(self.members)
        if present < self.wanted:
            self._wanted_since = None
        if present < self.needed:
            self._since = None
            if self._quorum.is_elastic and not self.exclusions:
                # Another seat may be taken.
                return QuorumDecision.WAIT
            coming = len(self.missing)
            # Who comes may decide between two states.
            tied = max(Counter(self._states.values()).values(), default=0) if coming and self.state is None else 0
            return QuorumDecision.HOPELESS if present + tied + coming < self.needed else QuorumDecision.WAIT
        if self._since is None:
            self._since = now
        if self._wanted_since is None and present >= self.wanted:
            self._wanted_since = now
        return QuorumDecision.COMMIT if timed_out or not self.absent or now >= self.closes_at else QuorumDecision.WAIT
