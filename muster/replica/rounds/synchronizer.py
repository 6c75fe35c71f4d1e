"""Connects a replica's inner steps with the run's rounds: sends pseudo-gradients and merges the results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from muster.replica.algorithms.algorithm import Action, Algorithm, eager_estimate, mixed
from muster.replica.codecs import codec_named
from muster.replica.codecs.error_feedback import StoredErrorFeedback
from muster.replica.rounds.exchange import Exchange, LocalUpdate, Outcome, checked_samples
from muster.replica.rounds.rendezvous import Rendezvous
from muster.replica.rounds.replicated_state import ReplicatedState
from muster.replica.rounds.round_context import checkpoints_of
from muster.replica.stopwatch import Stopwatch
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.packing import WHOLE, Packing

# Captures the trainer's state of a round; calling the result writes it to disk, beside the training loop.
Keep = Callable[[int], Callable[[], None]]


class Synchronizer:
    """Runs the algorithm for one replica. Reads and writes the trainer's arrays; the global state is replicated.

    An exchange runs beside the training loop from its start until it is merged. A replica that was left out of a round
    drops its local progress and continues from the global parameters.
    """

    def __init__(
        self, rendezvous: Rendezvous, packing: Packing, algorithm: Algorithm, keep: Keep, checkpoint_dir: Path | None
    ) -> None:
        """Join the run and overwrite the arrays with its parameters; raises as `ReplicatedState.join`.

        Args:
            checkpoint_dir: where to save the residual of the codec's error feedback each round; None: not saved.
        """
        self._rendezvous = rendezvous
        self._packing = packing
        self._algorithm = algorithm
        self._keep = keep
        self._training = ReplicatedState.join(rendezvous, packing, algorithm)
        self._samples = 0.0
        self._given: Floats | None = None
        self._begun: Floats | None = None  # where an eager phase started, if not at the global parameters
        self.steps = 0
        self.round = self._training.state.round
        self.stopwatch = Stopwatch(rendezvous.metrics)
        residuals = checkpoints_of(rendezvous.context, checkpoint_dir, "residual")
        self._feedback = StoredErrorFeedback(codec_named(algorithm.codec), packing.cut.length, residuals, self.round)
        packing.write(self._training.state.parameters)

    @property
    def parameters(self) -> Floats:
        """What this process holds of the global parameters, flat: the same on all replicas. Undefined while an exchange
        is running."""
        return self._training.state.parameters

    def step(self, samples: float) -> Outcome | None:
        """After an inner step: start or merge an exchange if one is due. Returns the outcome of a merged round.

        Raises:
            ParametersError: samples is negative, infinite or NaN.
            FencedError, StoppedError, RendezvousError, DivergedError: the arrays keep their local values.
            RunEndedError: the run has no further round; the arrays hold the global parameters.
        """
        if self._rendezvous.has_ended:
            self.finish()
            self._rendezvous.check_not_ended()
        self._samples += checked_samples(samples)
        self.steps += 1
        action = self._algorithm.action_after(self.steps)
        if action is Action.NOTHING:
            return None
        with self.stopwatch.blocked():
            outcome = self._perform(action)
        if action is not Action.GIVE:
            self.stopwatch.lap()
        return outcome

    def end_round(self) -> Outcome | None:
        """Complete the present phase with steps without samples; raises as `step`."""
        outcome: Outcome | None = None
        while self.steps:
            outcome = self.step(0)
        return outcome

    def finish(self) -> Outcome | None:
        """Wait for a running exchange. Afterwards the arrays hold the global parameters, as on all replicas."""
        with self.stopwatch.blocked():
            exchange = self._training.exchanges.wait()
            self._start_over()
            if self._rendezvous.context.link.size > 1:
                # While the processes are connected: the trainer may disconnect them before it returns.
                self._rendezvous.collect_result()
        return None if exchange is None else exchange.outcome

    def _perform(self, action: Action) -> Outcome | None:
        if self._algorithm.eager:
            return self._renew()
        if action is not Action.MERGE:
            self._give(self._training.outer.part(self.round + 1, self._packing.count))
        return None if action is Action.GIVE else self._merge()

    def _give(self, part: slice) -> None:
        """Start the exchange of a part of the pseudo-gradient (global minus local parameters)."""
        shared = self.parameters[self._packing.cut.local(part)]
        begun = self._packing.rounded(shared, part) if self._begun is None else self._begun
        gradient = self._packing.read(part)
        self._begin(np.subtract(begun, gradient, out=gradient), part)

    def _begin(self, gradient: Floats, part: slice) -> None:
        self.round += 1
        round_ = self.round
        samples, self._samples = self._samples, 0.0
        write_state = self._keep(round_)

        def before_giving() -> None:
            # A restarted process must not repeat the data of a contribution, nor send again a residual that was sent.
            write_state()
            self._feedback.save(round_)

        residual = self._feedback.of(self._packing.cut.local(part))
        count = len(range(*part.indices(self._packing.count)))
        update = LocalUpdate(gradient, samples, residual, before_giving, count)
        self._training.exchanges.begin(lambda: self._training.advance(update))

    def _merge(self) -> Outcome | None:
        exchange = self._training.exchanges.wait()
        if exchange is None or not self._is_expected(exchange):
            self._start_over()
        else:
            part = self._training.outer.part(self.round, self._packing.count)
            shared = self.parameters[self._packing.cut.local(part)]
            if self._algorithm.alpha:
                shared = mixed(self._packing.read(part), shared, self._algorithm.alpha)
            self._packing.write(shared, part)
            self.steps = 0
        return None if exchange is None else exchange.outcome

    def _renew(self) -> Outcome | None:
        """Eager: finish the last exchange, start the next, and continue from the estimate of its outcome."""
        exchange = self._training.exchanges.wait()
        if exchange is not None and (not self._is_expected(exchange) or self._rendezvous.has_ended):
            self._start_over()
            return exchange.outcome
        begun = self._packing.rounded(self.parameters) if self._begun is None else self._begun
        own = begun - self._packing.read()
        before = None if exchange is None or self._given is None else (exchange.mean, self._given, exchange.share)
        estimate = eager_estimate(own, before)
        ahead = self._training.outer.estimated(
            self._training.state, estimate, self._packing.optimized, self._packing.cut
        )
        self._begin(own, WHOLE)
        self._given, self._begun = own, self._packing.rounded(ahead)
        self._packing.write(ahead)
        self.steps = 0
        return None if exchange is None else exchange.outcome

    def _is_expected(self, exchange: Exchange) -> bool:
        return exchange.took_part and self._training.state.round == self.round

    def _start_over(self) -> None:
        """Continue from the global parameters, whatever the arrays hold."""
        self._packing.write(self.parameters, WHOLE)
        self.round = self._training.state.round
        self.steps, self._samples = 0, 0.0
        self._given = self._begun = None
