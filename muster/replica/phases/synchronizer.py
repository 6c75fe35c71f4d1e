"""Connects a replica's inner steps with the run's rounds: sends pseudo-gradients and merges the results."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from muster.replica.algorithms.algorithm import Action, Algorithm, eager_estimate, mixed
from muster.replica.algorithms.radial import norm_of_all, straighten
from muster.replica.codecs import codec_named
from muster.replica.parts.packing import WHOLE, Packing
from muster.replica.phases.early_giving import EarlyGiving
from muster.replica.phases.interrupted_phase import Phase, StoredPhase
from muster.replica.phases.step_agreement import StepAgreement
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError, StoppedError
from muster.replica.rounds.error_feedback import StoredErrorFeedback
from muster.replica.rounds.exchange import Exchange, LocalUpdate, RoundOutcome, checked_samples
from muster.replica.rounds.joining import join
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict
from muster.replica.states.state_tree import Filling
from muster.replica.statistics.stopwatch import Stopwatch
from muster.replica.wire import rendezvous_keys
from muster.replica.wire.binary_format import Floats
from muster.replica.wire.blocks import exact_in


@dataclass(frozen=True)
class OwnState:
    """What a replica holds beside the global state: its inner optimizer, its data position.

    Attributes:
        keep: captures it at the end of a round's inner steps, what is due or all of it; calling the result writes it to
            disk, beside the training loop.
        heal: restores what the inner steps have left NaN or infinite. All processes of the replica call it.
        stepped: called after an inner step in the middle of a phase: saves the inner state if that is due.
        left: called once this replica has left the run.
    """

    keep: Callable[[int, bool], Callable[[], None]]
    heal: Callable[[], None]
    stepped: Callable[[], None] = lambda: None
    left: Callable[[], None] = lambda: None


class Synchronizer:
    """Runs the algorithm for one replica. Reads and writes the trainer's arrays; the global state is replicated.

    An exchange runs beside the training loop from its start until it is merged. A replica that was left out of a round
    drops its local progress and continues from the global parameters.
    """

    def __init__(
        self, rendezvous: Rendezvous, packing: Packing, algorithm: Algorithm, own: OwnState, checkpoint_dir: Path | None
    ) -> None:
        """Join the run and overwrite the arrays with its parameters; raises as `join`.

        Args:
            checkpoint_dir: where to save the residual of the codec's error feedback, and a phase that is interrupted;
                None: not saved.
        """
        self._rendezvous, self._rounds, self._statistics = rendezvous, rendezvous.rounds, rendezvous.statistics
        self._packing = packing
        self._algorithm = algorithm
        self._own = own
        self._is_sound = True  # whether the last pseudo-gradient could be averaged
        self._training = join(rendezvous.rounds, packing, algorithm, rendezvous.outside.joined)
        rendezvous.departure.training = self._training
        self._samples = [0.0] * algorithm.fragments  # since each was last exchanged
        self._given_samples = self._given_seconds = 0.0
        self._given_at = [0.0] * algorithm.fragments  # the seconds of training when each was last exchanged
        self._given: Floats | None = None
        self._begun: Floats | None = None  # where an eager phase started, if not at the global parameters
        self.steps = 0
        self.round = self._training.state.round
        self.stopwatch = Stopwatch(rendezvous.statistics)
        context = rendezvous.context
        self._phases = StoredPhase(rendezvous.checkpoints(checkpoint_dir, "stopped", kept=1))
        self._has_left = self._has_trained = False
        claim = rendezvous.seat.claim
        self._is_first_phase_of_rerun = (claim.attempt, claim.incarnation) != (1, 1)
        self._step_agreement = StepAgreement(
            packing.link, context, self._is_late, lambda: rendezvous.rounds.seen.has_ended
        )
        self._early_giving = EarlyGiving(context, rendezvous.rank)
        residuals = rendezvous.checkpoints(checkpoint_dir, "residual")
        self._feedback = StoredErrorFeedback(
            codec_named(algorithm.codec), packing.cut.length, residuals, self.round, algorithm.feedback_decay
        )
        packing.lock(self.parameters)
        packing.write(self.parameters)
        self._data = rendezvous.data
        self._data.overlaps, self._data.complete = algorithm.eager or algorithm.delay > 0, self.complete
        self._data.drop()
        self._begin_phase()

    def interrupted(self) -> Phase | None:
        """The phase in which a process of this replica was stopped, if it can go on. All processes call this."""
        return self._phases.load(self._packing.link, self.round)

    def resume(self, phase: Phase) -> None:
        """Go on with `phase`, in the trainer's state of the round to which it was given."""
        self._packing.write(phase.parameters, WHOLE)
        # The exchange that it was stopped in starts again after the next step.
        self.steps = min(phase.steps, self._algorithm.given_after - 1)
        self._samples, self._begun = phase.samples.tolist(), phase.begun
        self._feedback.restore(phase.residual)
        self._data.restore(phase.data)
        self._begin_phase()
        log.info("event=phase-resumed round=%d steps=%d", phase.round, phase.steps)

    def open_phase(self) -> StateDict | None:
        """The fields of the present `Phase`, to be copied before the next inner step; None while an exchange runs.

        The exchange would be lost with this process, and with it what the phase continues from.
        """
        exchanges, round_ = self._training.exchanges, self._training.state.round
        # An eager phase begins before its exchange is over.
        is_merged = not exchanges.busy or (self._algorithm.eager and not exchanges.is_running)
        if not is_merged or round_ != self.round:
            return None
        return {
            "round": round_,
            "given": round_,
            "epoch": self._rounds.seat.epoch,
            "steps": self.steps,
            "samples": np.array(self._samples),
            "parameters": Filling(self._packing.cut.length, lambda room: self._packing.read(WHOLE, room)),
            "begun": self._begun,
            "residual": self._feedback.values,
            "data": self._data.packed(),
        }

    @property
    def parameters(self) -> Floats:
        """What this process holds of the global parameters, flat: the same on all replicas. Undefined while an exchange
        is running."""
        return self._training.state.parameters

    def step(self, samples: float) -> RoundOutcome | None:
        """After an inner step: start or merge an exchange if one is due. Returns the outcome of a merged round.

        Raises:
            ParametersError: samples is negative, infinite or NaN; or `finish` was called.
            FencedError, StoppedError, RendezvousError, DivergedError: the arrays keep their local values.
            WatchError: a rule that watches the training ends the attempt.
            RunEndedError: the run has no further round; the arrays hold the global parameters.
        """
        if self._step_agreement.has_ended:
            self.finish()
            self._rounds.seen.check_not_ended()
        if self._rendezvous.departure.has_left:
            message = "finish() has ended this replica's part in the run: step() cannot follow it."
            raise ParametersError(message)
        counted = checked_samples(samples)
        self._statistics.progress.step()
        self._data.reached()
        self._has_trained = True
        self._samples = [before + counted for before in self._samples]
        self.steps += 1
        self._statistics.metrics.step += 1
        if self._step_agreement.is_over:
            with self.stopwatch.blocked():
                self._leave()
            raise StoppedError
        action = self._algorithm.action_after(self.steps)
        if self.steps < self._algorithm.given_after and self._step_agreement.is_late:
            log.info("round=%d event=given-early steps=%d", self.round + 1, self.steps)
            self.steps = self._algorithm.given_after
            action = self._algorithm.action_after(self.steps)
        outcome: RoundOutcome | None = None
        if action is not Action.NOTHING:
            with self.stopwatch.blocked():
                outcome = self._performed(action)
            if action is not Action.GIVE:
                self.stopwatch.lap()
        if self.steps:
            self._statistics.metrics.round = self.round + 1
        self._step_agreement.beat()
        if self.steps and action is Action.NOTHING:
            self._own.stepped()
        return outcome

    def end_round(self) -> RoundOutcome | None:
        """Complete the present phase with steps without samples; raises as `step`."""
        outcome: RoundOutcome | None = None
        while self.steps:
            outcome = self.step(0)
        return outcome

    def complete(self) -> None:
        """Exchange all steps that no exchange has, and merge one that runs even then; raises as `step`."""
        if not self.steps and any(self._samples):
            self.step(0)
        self.end_round()
        if self._training.exchanges.busy:
            with self.stopwatch.blocked():
                self._exchanged()
                self._start_over()

    def finish(self) -> RoundOutcome | None:
        """Wait for a running exchange, and leave the run. Afterwards the arrays hold the global parameters.

        If the replica was asked to stop, it saves and gives what it has instead, and stays in the run: a rerun follows.
        """
        exchange = None
        with self.stopwatch.blocked():
            is_stopped = self._step_agreement.ends()
            if is_stopped:
                self._leave()
            else:
                exchange = self._training.exchanges.wait()
            self._start_over()
            self._early_giving.end()
        if not is_stopped:
            # While the processes are connected: the trainer may disconnect them before it returns.
            self._rendezvous.departure.leave()
            self._own.left()
        return None if exchange is None else exchange.outcome

    def _performed(self, action: Action) -> RoundOutcome | None:
        try:
            return self._perform(action)
        except StoppedError:
            self._leave()
            raise

    def _leave(self) -> None:
        """Save all that this replica has, and give it to the round without waiting for the others: this process ends.

        A rerun continues after that round if the run has committed it, and in the middle of this phase if it has not.
        """
        if self._has_left:
            return
        self._has_left = True
        self._early_giving.end()
        state = self._training.state
        if self._training.exchanges.busy:
            # It ends at once, with its round or without.
            with suppress(StoppedError):
                self._merge()
        waits = self.round > state.round  # for a round to which it has given
        # With tensor parallelism one process of the replica may count for all.
        counted = any(self._packing.link.gather(self._samples[self._fragment(self.round + 1)] > 0))
        gives = counted and not waits and not self._rounds.seen.has_ended
        given = self.round + 1 if gives else self.round
        fragment = self._fragment(given)
        begun, samples = self._begun, np.array(self._samples)
        if waits:
            samples[fragment] += self._given_samples
            begun = None if begun is None or self._given is None else begun + self._given
        local = self._packing.read() if waits or gives else self.parameters
        phase = Phase(
            round=state.round,
            given=given,
            epoch=self._rounds.seat.epoch,
            steps=self.steps,
            samples=samples,
            parameters=local,
            begun=begun,
            residual=self._feedback.before(),
            data=self._data.packed(),
        )
        saves = waits or gives or self._is_newest()
        write_state = self._own.keep(given, True) if saves else lambda: None

        def save(is_sound: bool) -> None:
            if is_sound and saves:
                write_state()
                self._feedback.save(given, always=True)
                if waits or gives:
                    self._phases.save(phase)

        if gives:
            part = self._packing.cut.fragment_of(given)
            held = self._packing.cut.local(part)
            start = self._packing.rounded(self.parameters[held], part) if begun is None else begun
            self._given_seconds = self._worked(fragment)
            gradient = self._difference(start, local[held].copy(), part)
            norm = self._scaled(gradient, part)
            self._rounds.give(given, replace(self._update(gradient, float(samples[fragment]), part, save), norm=norm))
        else:
            save(self._is_sound)
        log.warning("event=left round=%d given=%d steps=%d samples=%s", state.round, given, self.steps, samples)

    def _is_newest(self) -> bool:
        """Whether this process's own state is what a rerun continues from: it has trained something, and the last round
        counts no other process of its rank.

        The state that the other one has saved would have to make room, and the run would count its data twice.
        """
        counted = self._rounds.seen.counted(self._training.state.round)
        return self._has_trained and counted in {None, self._rounds.seat.epoch}

    def _worked(self, fragment: int) -> float:
        """The seconds of training for a fragment that is exchanged; they begin again."""
        since, self._given_at[fragment] = self._given_at[fragment], self._statistics.times.trained()
        return self._given_at[fragment] - since

    def _fragment(self, round_: int) -> int:
        """The number of the fragment that a round carries."""
        return (round_ - 1) % self._algorithm.fragments

    def _perform(self, action: Action) -> RoundOutcome | None:
        if self._algorithm.eager:
            return self._renew()
        if action is not Action.MERGE:
            self._give(self._packing.cut.fragment_of(self.round + 1))
        return None if action is Action.GIVE else self._merge()

    def _give(self, part: slice) -> None:
        """Start the exchange of a part of the pseudo-gradient (global minus local parameters)."""
        shared, phase_begun = self.parameters[self._packing.cut.local(part)], self._begun
        # In the memory that the round's mean takes afterwards.
        room = self._rounds.context.buffers.floats("mean", shared.size)
        self._packing.lock(room)
        local = self._packing.read(part, room)

        def subtract() -> float | None:
            begun = self._packing.rounded(shared, part) if phase_begun is None else phase_begun
            return self._scaled(self._difference(begun, local, part), part)

        self._begin(local, part, subtract)

    def _difference(self, begun: Floats, local: Floats, part: slice) -> Floats:
        """The pseudo-gradient, in the memory of `local`. Of statistics it is their values, negative: their mean is no
        update, so that a mean of variances cannot fall below the smallest of them."""
        border = self._packing.cut.parameters_in(part)
        np.subtract(begun[:border], local[:border], out=local[:border])
        np.negative(local[border:], out=local[border:])
        return local

    def _begin(self, gradient: Floats, part: slice, make: Callable[[], float | None]) -> None:
        """Start an exchange. `make` completes the gradient, beside the training loop; its norm, as of `_scaled`."""
        self._early_giving.end()
        self._is_first_phase_of_rerun = False
        self.round += 1
        round_ = self.round
        fragment = self._fragment(round_)
        self._given_samples, self._samples[fragment] = self._samples[fragment], 0.0
        self._given_seconds = self._worked(fragment)
        write_state = self._own.keep(round_, False)

        def before_giving(is_sound: bool) -> None:
            if not is_sound:
                # A restarted process trains the phase from its beginning.
                self._phases.discard()
            # After values that cannot be averaged: NaN in the inner optimizer would come back with a restart.
            self._is_sound = is_sound
            if is_sound:
                write_state()
            self._feedback.save(round_)

        def advance() -> Exchange | None:
            exchange = self._rounds.play(self._training, replace(update, norm=make()))
            # Not before: the round may count this contribution after a restarted process has joined, which must come as
            # far in the data then.
            self._phases.discard()
            return exchange

        update = self._update(gradient, self._given_samples, part, before_giving)
        self._training.exchanges.begin(advance)

    def _update(
        self, gradient: Floats, samples: float, part: slice, before_giving: Callable[[bool], None]
    ) -> LocalUpdate:
        cut = self._packing.cut
        count = len(range(*part.indices(self._packing.count)))
        exact = exact_in(self._packing.count, cut.exact, slice(*part.indices(self._packing.count)[:2]))
        residual = self._feedback.of(cut.local(part))
        return LocalUpdate(
            gradient,
            samples,
            residual,
            before_giving,
            count,
            exact=exact,
            seconds=self._given_seconds,
            data=self._data.give(),
            measured=True,
        )

    def _scaled(self, gradient: Floats, part: slice) -> float | None:
        """Scale the pseudo-gradient in place: down if its norm is too large; and to its direction if norms are averaged
        apart, which then is returned."""
        return self._straightened(gradient, part, self._clipped(gradient, part))

    def _clipped(self, gradient: Floats, part: slice) -> float | None:
        """Scale the pseudo-gradient down in place if its norm is too large. The norm that it has then, if it is
        needed."""
        largest = self._algorithm.clip_norm
        if not largest and not self._algorithm.is_radial:
            return None
        cut = self._packing.cut
        gradient = gradient[: cut.parameters_in(part)]
        norm = norm_of_all(self._rounds.context.link, gradient, cut.blocks(part).elements)
        # What is not finite is declined when it is encoded.
        if not math.isfinite(norm):
            return None
        if norm > largest > 0:
            log.info("round=%d event=clipped norm=%g", self._training.state.round + 1, norm)
            gradient *= np.float32(largest / norm)
            norm = largest
        return norm

    def _straightened(self, gradient: Floats, part: slice, norm: float | None) -> float | None:
        """Scale a pseudo-gradient of the norm `norm` in place to its direction, if norms are averaged apart."""
        if norm is None or not self._algorithm.is_radial:
            return None
        cut = self._packing.cut
        whole = slice(*part.indices(cut.count)[:2])
        count = cut.blocks(part).count - exact_in(cut.count, cut.exact, whole)
        straighten(gradient[: cut.parameters_in(part)], norm, count)
        return norm

    def _exchanged(self) -> Exchange | None:
        """The running exchange, once it is over."""
        exchange = self._training.exchanges.wait()
        self._step_agreement.merged()
        self._data.merged()
        return exchange

    def _merge(self) -> RoundOutcome | None:
        exchange = self._exchanged()
        if exchange is None or not self._is_expected(exchange):
            self._start_over()
        elif not self._algorithm.eager:
            part = self._packing.cut.fragment_of(self.round)
            shared = self.parameters[self._packing.cut.local(part)]
            if self._algorithm.alpha:
                shared = mixed(self._packing.read(part), shared, self._algorithm.alpha)
            self._packing.write(shared, part)
            self.steps = 0
            self._begin_phase()
        return None if exchange is None else exchange.outcome

    def _renew(self) -> RoundOutcome | None:
        """Eager: finish the last exchange, start the next, and continue from the estimate of its outcome."""
        was_exchanging = self._training.exchanges.busy
        exchange = self._exchanged()
        if was_exchanging and (exchange is None or not self._is_expected(exchange) or self._rounds.seen.has_ended):
            self._start_over()
            return None if exchange is None else exchange.outcome
        begun = self._packing.rounded(self.parameters) if self._begun is None else self._begun
        own, part = self._difference(begun, self._packing.read(), WHOLE), self._packing.cut.fragment_of(self.round + 1)
        # What is estimated from it, and taken out of the mean afterwards, is what the others get.
        norm, sent = self._clipped(own, part), own.copy()
        before = None if exchange is None or self._given is None else (exchange.mean, self._given, exchange.share)
        estimate = eager_estimate(own, before)
        ahead = self._training.outer.estimated(self._training.state, estimate, self._packing.cut)
        self._begin(sent, part, lambda: self._straightened(sent, part, norm))
        self._given, self._begun = own, self._packing.rounded(ahead)
        self._packing.write(ahead)
        self.steps = 0
        self._begin_phase()
        return None if exchange is None else exchange.outcome

    def _is_expected(self, exchange: Exchange) -> bool:
        return exchange.took_part and self._training.state.round == self.round

    def _start_over(self) -> None:
        """Continue from the global parameters, whatever the arrays hold."""
        self._packing.write(self.parameters, WHOLE)
        self.round = self._training.state.round
        self.steps = 0
        self._samples = [0.0] * self._algorithm.fragments
        self._given_at = [self._statistics.times.trained()] * self._algorithm.fragments
        self._given = self._begun = None
        self._data.drop()
        self._begin_phase()
        if not self._is_sound:
            self._is_sound = True
            self._own.heal()

    def _begin_phase(self) -> None:
        # A replica that was left out of rounds continues at the run's step.
        metrics = self._statistics.metrics
        metrics.step = max(metrics.step, self.round * self._algorithm.interval + self.steps)
        metrics.round = self.round
        self._phase_began = self._rounds.context.clock.monotonic(), self.steps
        self._step_agreement.begin()
        if self._rounds.context.group.is_first and self._algorithm.given_after > 1 and not self._repeats():
            self._early_giving.begin(self.round + 1, self._rounds.seen.commits)

    def _repeats(self) -> bool:
        """Whether the process before this one has given to the round of this phase.

        The round may still count that. If this process made fewer steps then, it would come to the same data after it.
        """
        if not self._is_first_phase_of_rerun:
            return False
        given = rendezvous_keys.contributions_of(self._rendezvous.rank)
        stored = self._rounds.context.store.keys(given, rendezvous_keys.before(given, self.round + 2))
        return any(key >= rendezvous_keys.before(given, self.round + 1) for key in stored)

    def _is_late(self) -> bool:
        """Whether the round would go on without this replica before it ends its phase."""
        began, before = self._phase_began
        made = self.steps - before
        if made <= 0 or self.steps >= self._algorithm.given_after or self._training.exchanges.is_running:
            return False
        pace = (self._rounds.context.clock.monotonic() - began) / made
        return self._early_giving.is_late(pace * (self._algorithm.given_after - self.steps))
