"""Between one replica's inner steps and the run's rounds: gives pseudo-gradients, takes over what comes of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

from muster.replica.algorithms.algorithm import Algorithm, Turn, eager_estimate, mixed
from muster.replica.codecs import codec_named
from muster.replica.frontends.packing import WHOLE, Packing
from muster.replica.rounds.exchange import Exchange, Outcome
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.residuals import Owed
from muster.replica.stopwatch import Stopwatch
from muster.replica.wire.binary_format import Floats

# Keeps the trainer's state of a round; what it returns writes it down, beside the training loop.
Keep = Callable[[int], Callable[[], None]]


class Synchronizer:
    """One replica's part in the run's algorithm. The arrays are read and written; the global state is the rendezvous'.

    A round's exchange runs beside the loop from the moment it is begun until its turn to be merged. Left out of a
    round, a replica drops all local progress and takes over the global parameters of the round it then finds.
    """

    def __init__(
        self, rendezvous: Rendezvous, packing: Packing, algorithm: Algorithm, keep: Keep, checkpoint_dir: Path | None
    ) -> None:
        """Join the run and overwrite the arrays with its parameters; raises as `Rendezvous.join`.

        Args:
            checkpoint_dir: where to keep what the codec's error feedback owes, round by round; None: nowhere.
        """
        self._rendezvous = rendezvous
        self._packing = packing
        self._algorithm = algorithm
        self._keep = keep
        self._training = rendezvous.join(packing, algorithm)
        self._samples = 0.0
        self._given: Floats | None = None
        self._begun: Floats | None = None  # where an eager phase began, if not at the global parameters
        self.steps = 0
        self.round = self._training.state.round
        self.stopwatch = Stopwatch(rendezvous.metrics)
        self._owed = Owed(codec_named(algorithm.codec), packing.count, checkpoint_dir, self.round)
        packing.write(self._training.state.parameters)

    @property
    def parameters(self) -> Floats:
        """The global parameters, flat: the same for all replicas. Not while an exchange is under way."""
        return self._training.state.parameters

    def step(self, samples: float) -> Outcome | None:
        """After an inner step: exchange and merge if it is their turn. Returns how a round went that was merged.

        Raises:
            ValueError: samples is not a positive, finite number.
            FencedError, StoppedError, RendezvousError, DivergedError: the arrays keep their local values.
        """
        if not (math.isfinite(samples) and samples > 0):
            message = f"samples must be a positive number, not {samples!r}"
            raise ValueError(message)
        self._samples += samples
        self.steps += 1
        turn = self._algorithm.turn(self.steps)
        if turn is Turn.NOTHING:
            return None
        with self.stopwatch.blocked():
            outcome = self._take_turn(turn)
        if turn is not Turn.GIVE:
            self.stopwatch.lap()
        return outcome

    def finish(self) -> Outcome | None:
        """Merge what is still under way: the arrays hold the global parameters afterwards, as on all replicas."""
        with self.stopwatch.blocked():
            exchange = self._training.exchanges.wait()
            self._start_over()
        return None if exchange is None else exchange.outcome

    def _take_turn(self, turn: Turn) -> Outcome | None:
        if self._algorithm.eager:
            return self._renew()
        if turn is not Turn.MERGE:
            self._give(self._training.outer.part(self.round + 1, self._packing.count))
        return None if turn is Turn.GIVE else self._merge()

    def _give(self, part: slice) -> None:
        """Begin the exchange of a part of the pseudo-gradient (global minus local parameters)."""
        begun = self._packing.rounded(self.parameters[part], part) if self._begun is None else self._begun
        self._begin(begun - self._packing.read(part), part)

    def _begin(self, gradient: Floats, part: slice) -> None:
        self.round += 1
        round_ = self.round
        residual = self._owed.of(part)
        samples, self._samples = self._samples, 0.0
        write_down = self._keep(round_)

        def before_giving() -> None:
            # A process that comes back must neither see again the data that its contribution was made of, nor owe what
            # that has paid.
            write_down()
            self._owed.save(round_)

        def exchange() -> Exchange | None:
            return self._rendezvous.advance(
                self._training, gradient, samples, residual=residual, before_giving=before_giving
            )

        self._training.exchanges.begin(exchange)

    def _merge(self) -> Outcome | None:
        exchange = self._training.exchanges.wait()
        if exchange is None or not self._is_expected(exchange):
            self._start_over()
        else:
            part = self._training.outer.part(self.round, self._packing.count)
            shared = self.parameters[part]
            if self._algorithm.alpha:
                shared = mixed(self._packing.read(part), shared, self._algorithm.alpha)
            self._packing.write(shared, part)
            self.steps = 0
        return None if exchange is None else exchange.outcome

    def _renew(self) -> Outcome | None:
        """An eager turn: the last exchange ends, the next begins, and the arrays go on from its estimated outcome."""
        exchange = self._training.exchanges.wait()
        if exchange is not None and not self._is_expected(exchange):
            self._start_over()
            return exchange.outcome
        begun = self._packing.rounded(self.parameters) if self._begun is None else self._begun
        own = begun - self._packing.read()
        before = None if exchange is None or self._given is None else (exchange.mean, self._given, exchange.share)
        estimate = eager_estimate(own, before)
        ahead = self._training.outer.estimated(self._training.state, estimate, self._packing.optimized)
        self._begin(own, WHOLE)
        self._given, self._begun = own, self._packing.rounded(ahead)
        self._packing.write(ahead)
        self.steps = 0
        return None if exchange is None else exchange.outcome

    def _is_expected(self, exchange: Exchange) -> bool:
        return exchange.took_part and self._training.state.round == self.round

    def _start_over(self) -> None:
        """Go on from the global parameters, whatever the arrays hold."""
        self._packing.write(self.parameters, WHOLE)
        self.round = self._training.state.round
        self.steps, self._samples = 0, 0.0
        self._given = self._begun = None
