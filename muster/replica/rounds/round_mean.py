"""From a commit to the weighted mean, with the same bytes on every replica, or to an amendment of the commit."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from muster.contract.run.commit import Commit, Exclusion
from muster.replica.parts.link import by_first, each
from muster.replica.replica_errors import RoundGoneError
from muster.replica.rounds.all_gather import AllGather, gathered_ranges
from muster.replica.rounds.commit_store import amended, read_commit, write_commit
from muster.replica.rounds.contribution import Contribution
from muster.replica.rounds.reduced_shards import ReducedShards
from muster.replica.rounds.reduction import Reduction
from muster.replica.rounds.round_context import Polling, RoundContext, log
from muster.replica.rounds.weighted_mean import Rejection
from muster.replica.store.read_ahead import ByteRange
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats


def reduced_mean(
    context: RoundContext, commit: Commit, mine: Contribution | None, polling: Polling
) -> tuple[Commit, Floats]:
    """The weighted mean of a committed round, and the commit (or its last amendment) that it belongs to.

    Of the mean this process gets the elements that it holds. They lie in one of the context's buffers and are valid
    until the next round's are computed. All processes of the replica get theirs of the same revision, or none does.

    A member computes its own shards, then those whose owner is late. A process that is not a member (it replays the
    round) computes shards only if all members are late. After the time-out it computes whatever is missing. Of a round
    without shards (`gathers`) each process computes all that it holds.

    The mean is zero if too few members have usable data.

    Raises:
        StoppedError, RendezvousError
    """
    own = mine
    while True:
        reduction = _reduction(context, commit, mine, own)
        if commit.void:
            log.warning("round=%d event=void revision=%d", commit.round, commit.revision)
            reduction.mean[...] = 0
            return commit, reduction.mean
        answers = each(context.link, partial(_rejected_by, reduction, polling))
        found, late = next((answer for answer in answers if any(answer)), ((), ()))
        rejected = reduction.settled(found, polling)
        if rejected == () and not late:
            return commit, reduction.mean
        # The mean takes the place of the values.
        own = None
        if rejected is None:
            continue
        for item in rejected:
            log.warning("round=%d event=excluded rank=%d reason=%r", commit.round, item.rank, item.reason)
        if late:
            log.warning("round=%d event=late ranks=%s", commit.round, late)
        amendment = amended(commit, rejected, context.quorum.min_participants, late)
        commit = by_first(context.link, partial(_amend, context, amendment))


def ranges_read(context: RoundContext, commit: Commit, rank: int, size: int) -> Iterator[ByteRange]:
    """What process `rank` of `size` of a replica without a part in a round asks the store for, beside small objects."""
    if commit.gathers:
        return gathered_ranges(context, commit, rank, size)
    return ReducedShards(context, commit).ranges(rank, size)


def _reduction(context: RoundContext, commit: Commit, mine: Contribution | None, own: Contribution | None) -> Reduction:
    if commit.gathers:
        return AllGather(context, commit, mine, own)
    made: Reduction = (context.places.reduction if context.places else Reduction)(context, commit, mine, own)
    return made


def _rejected_by(reduction: Reduction, polling: Polling) -> tuple[tuple[Exclusion, ...], tuple[int, ...]]:
    """The members whose data are unusable, and those whose data are late; none if this process has what it needs of
    the mean."""
    try:
        reduction.gather(polling)
    except Rejection as answer:
        return answer.rejected, answer.late
    return (), ()


def _amend(context: RoundContext, amendment: Commit) -> Commit:
    """The next revision: the stored one, or this one.

    Raises:
        RoundGoneError: the next round is committed without it. So all shards of the former revision were stored once,
            were applied, and are deleted: what this process has found unusable is not needed any more.
    """
    round_ = amendment.round
    if context.store.exists(rendezvous_keys.commit(round_ + 1)):
        stored = read_commit(context, round_, amendment.revision)
        if stored is None:
            raise RoundGoneError(round_)
        return stored
    return write_commit(context, amendment) or amendment
