"""The all-reduce of trainers that bring their own loop, over the run's rendezvous.

The k-th call of every replica is round k of the run. Its mean is stored, and is the same for every later reader:

| a replica | its k-th call |
|---|---|
| takes part in round k | contributes, waits for the round's commit, and returns the mean of the members |
| is a rerun or a restart, and round k is committed | returns the stored mean at once; what it passes is not used |
| was late for round k | as a rerun |

After the last committed round such a replica claims its rank again: from then on the others wait for it, while it
trains for the next one.

So a trainer that starts again from its first call makes the same updates as its peers have made, with the same bytes,
as long as its updates follow from the means alone. It repeats its local training meanwhile, unless it looks at `behind`
or restores a checkpoint of its own and calls `resume`. The means are kept as long as the run's rendezvous, because a
rerun may need all of them; a contribution is deleted as soon as the round after it is committed.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np

from muster.options.executor.replica.arrays import FlatArrays
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.frontends.front_end import check_first_process
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import DivergedError, HistoryGoneError, ParametersError, RoundGoneError, StoppedError
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.replicated_state import Trained
from muster.replica.rounds.round_context import log
from muster.replica.rounds.round_history import last_committed
from muster.replica.rounds.run_options import agree_on_options
from muster.replica.statistics.stopwatch import Stopwatch
from muster.replica.store.transport import StoreDeniedError, StoreUnavailableError
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats

T = TypeVar("T")

_CODEC = "fp32"
_SETTINGS = {"algorithm": "all-reduce"}


class OwnRounds:
    """The rounds of a process whose trainer brings its own loop."""

    def __init__(self, rendezvous: Rendezvous) -> None:
        self.rendezvous = rendezvous
        self._stopwatch = Stopwatch(rendezvous.statistics)
        self._state = GlobalState(0, np.empty(0, np.float32), np.empty(0, np.float32))
        self._is_behind = rendezvous.seat.claim.loads
        # What the trainer does before its first call cannot be divided: it counts as training.
        rendezvous.statistics.times.ready()
        self._given: str | None = None

    @property
    def uri(self) -> str:
        """Where the trainer may write objects of its own: RENDEZVOUS_URI."""
        return self.rendezvous.context.store.uri(rendezvous_keys.TRAINER)

    @property
    def round(self) -> int:
        """How many calls the trainer has made, those included that `resume` has skipped."""
        return self._state.round

    @property
    def behind(self) -> int:
        """How many further rounds are committed already."""
        return max(0, last_committed(self.rendezvous.context.store) - self.round)

    def resume(self, round_: int) -> None:
        """Skip the calls up to `round_`; see `ObjectStoreAllReduce.resume`."""
        committed = last_committed(self.rendezvous.context.store)
        if isinstance(round_, bool) or not isinstance(round_, int) or not self.round <= round_ <= committed:
            message = (
                f"round is {round_!r}; allowed: {self.round} to {committed}, from the calls made so far to the last "
                "committed round."
            )
            raise ParametersError(message)
        self._join()
        self._state.round = round_
        self._count_metrics()
        self.rendezvous.rounds.seen.remember(self.rendezvous.context, round_)
        if self._is_behind:
            self._look_ahead()

    def mean(self, flat: Floats) -> Floats:
        """The mean of the next round; `flat` is overwritten."""
        self._join()
        self.rendezvous.rounds.seen.check_not_ended()
        if self.rendezvous.context.stops.asked.is_set():
            raise StoppedError
        self.rendezvous.statistics.progress.step()
        with self._stopwatch.blocked():
            exchange = self._exchanged(flat)
        self._state.round += 1
        self._count_metrics()
        self._stopwatch.lap()
        if exchange.left_out:
            self._look_ahead()
        self._forget(exchange)
        return exchange.mean

    def _count_metrics(self) -> None:
        """What the trainer logs from now on belongs to the last round."""
        self.rendezvous.statistics.metrics.step = self.rendezvous.statistics.metrics.round = self.round

    def _look_ahead(self) -> None:
        """After a round without this process: if it was the last one, the others wait for this process from now on."""
        self._is_behind = self.rendezvous.context.store.exists(rendezvous_keys.commit(self.round + 1))
        if not self._is_behind:
            self.rendezvous.seat.renew(self.round)

    def _join(self) -> None:
        if self.rendezvous.departure.training is not None:
            return
        check_first_process(self.rendezvous, "ObjectStoreAllReduce")
        rounds = self.rendezvous.rounds
        rounds.context = agree_on_options(rounds.context, _CODEC, _SETTINGS)
        rounds.seen.join(rounds.context, self._state.round)
        self.rendezvous.departure.training = Trained(state=self._state)

    def _exchanged(self, flat: Floats) -> Exchange:
        round_, count = self.round + 1, flat.size
        try:
            exchange = self.rendezvous.rounds.committed(round_) if self._is_behind else None
            if exchange is None:
                exchange = self.rendezvous.rounds.exchange(round_, LocalUpdate(flat, 1.0))
            else:
                log.info("round=%d event=replayed", round_)
        except RoundGoneError as error:
            raise HistoryGoneError(
                self.rendezvous.context.store.uri(rendezvous_keys.REDUCED), str(error).rstrip(".")
            ) from None
        if exchange.commit.count != count:
            message = (
                f"The all-reduce number {round_} has {count:,} elements here and {exchange.commit.count:,} in the run: "
                "all replicas make the same calls in the same order, reruns included."
            )
            raise ParametersError(message)
        if exchange.commit.void:
            message = f"The all-reduce number {round_} has no mean: too few replicas passed finite values."
            raise DivergedError(message)
        return exchange

    def _forget(self, exchange: Exchange) -> None:
        """Delete this process's contribution to the round before: its mean is stored as a whole.

        The members of `exchange` have read all of it before they contributed to theirs.
        """
        context, given = self.rendezvous.context, self._given
        rank, round_ = self.rendezvous.rank, exchange.commit.round
        self._given = None if exchange.epoch is None else rendezvous_keys.contribution(round_, rank, exchange.epoch)
        if given is None:
            return
        try:
            context.store.delete([given])
        except (StoreDeniedError, StoreUnavailableError) as error:
            # The bucket's lifecycle rule deletes it.
            log.warning("round=%d event=not-swept reason=%r", round_ - 1, str(error))


class ObjectStoreAllReduce:
    """The mean of arrays over all replicas, one call per round.

        all_reduce = ObjectStoreAllReduce(os.environ["RENDEZVOUS_URI"], rank, world_size)
        for _ in range(rounds):
            difference = [before - now for before, now in zip(parameters, trained(parameters), strict=True)]
            all_reduce.allreduce(difference)
            parameters = [before - rate * step for before, step in zip(parameters, difference, strict=True)]

    A trainer with a parameter named `allreduce` is given one. All objects of a process count the same rounds.
    """

    _process: ClassVar[OwnRounds | None] = None

    def __init__(self, rendezvous_uri: str, rank: int, world_size: int) -> None:
        """Connect to the rendezvous of this process's run.

        Raises:
            ParametersError: the arguments are not this replica's, or there is no run.
        """
        rounds = type(self)._process
        if rounds is None:
            message = (
                "ObjectStoreAllReduce works in a replica whose trainer brings its own loop: launch it with "
                "MusterExecutor and rendezvous_uri, or with `python -m muster.own_loop`."
            )
            raise ParametersError(message)
        own: dict[str, object] = {
            "rendezvous_uri": rounds.uri,
            "rank": rounds.rendezvous.rank,
            "world_size": rounds.rendezvous.world_size,
        }
        given = {"rendezvous_uri": rendezvous_uri.rstrip("/"), "rank": rank, "world_size": world_size}
        differs = [name for name, value in own.items() if given[name] != value]
        wrong = [f"{name} is {given[name]!r}; allowed: {own[name]!r}" for name in differs]
        if wrong:
            message = (
                f"{'; '.join(wrong)}. Read RENDEZVOUS_URI, REPLICA_RANK and WORLD_SIZE from the environment: a run has "
                "a rendezvous of its own."
            )
            raise ParametersError(message)
        self._rounds = rounds

    @classmethod
    def of_process(cls, rounds: OwnRounds) -> ObjectStoreAllReduce:
        """The object of this process, from now on connected to `rounds`."""
        cls._process = rounds
        return cls(rounds.uri, rounds.rendezvous.rank, rounds.rendezvous.world_size)

    @property
    def rank(self) -> int:
        """This replica's rank, from 0."""
        return self._rounds.rendezvous.rank

    @property
    def world_size(self) -> int:
        """The number of replicas."""
        return self._rounds.rendezvous.world_size

    @property
    def round(self) -> int:
        """How many calls the trainer has made, those included that `resume` has skipped."""
        return self._rounds.round

    @property
    def behind(self) -> int:
        """How many further calls return at once, with stored means; 0 when the others wait for this replica.

        A trainer may skip its local training while it is above 0: what it passes is not used.
        """
        return self._rounds.behind

    def resume(self, round_: int) -> None:
        """The trainer continues from a checkpoint of its own, made after its `round_`-th call.

        Raises:
            ParametersError: the run has not committed that round, or the trainer has made more calls.
            AlgorithmError: the run's replicas train in another way.
        """
        self._rounds.resume(round_)

    def allreduce(self, values: T) -> T:
        """Replace all arrays in `values` by their mean over the replicas, in place; returns `values`.

        The mean is not weighted, is computed in float32 in the order of the ranks, and has the same bytes on all
        replicas. Every call is a round, with a few requests to S3 and the wait for the slowest replica: pass all arrays
        at once.

        Args:
            values: a NumPy array or a PyTorch tensor of a floating type, or lists, tuples and dicts of them.

        Raises:
            ParametersError: values that cannot be averaged, or of another size than on the other replicas.
            AlgorithmError: the run's replicas train in another way.
            DivergedError: NaN or infinity, and no mean without this replica.
            HistoryGoneError: the stored means of earlier rounds have been deleted.
            FencedError, StoppedError, RendezvousError
            RunEndedError: the run has no further round. Let it pass.
        """
        arrays = FlatArrays(values)
        arrays.write(self._rounds.mean(arrays.read()))
        return values
