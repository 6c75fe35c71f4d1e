"""A manager for torchft's `DiLoCo` and `LocalSGD`, which run unmodified over the rendezvous.

    manager = Manager(context.rendezvous, model, codec="int8", checkpoint_dir=context.checkpoint_dir)
    with torchft.local_sgd.DiLoCo(manager, [model], inner_optimizer, outer_optimizer, sync_every=500):
        while manager.round < rounds and not context.stop.is_set():
            ...
            manager.add_samples(len(batch))
            inner_optimizer.step()
    manager.shutdown()

torchft requests one all-reduce per parameter. They are collected and sent as one flat buffer in one exchange: when the
first of them is waited for, or when the next inner step begins (so that `fragment_sync_delay` overlaps the transfer).

One member stores the state after every round (model, outer optimizer): a replica that restarts or was left out loads
the newest one. If that is the state of the round before the last, torchft's own code applies the last round's mean
(see `torchft_replay`). Data of earlier rounds are deleted once a state covers them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from muster.contract.run.time_use import Activity
from muster.options.torchft.replica.torchft_exchange import FragmentWeights, SyncExchange, Work
from muster.options.torchft.replica.torchft_states import (
    Load,
    Save,
    SyncedFragment,
    TorchftStates,
    fragment_key,
    fragment_of,
    load_state,
)
from muster.replica.algorithms.outer_optimizer import GlobalState
from muster.replica.codecs import codec_named
from muster.replica.codecs.base import Codec
from muster.replica.frontends.front_end import (
    FrontEnd,
    check_final_model,
    check_first_process,
    check_rendezvous,
    check_type,
    checked_folder,
)
from muster.replica.frontends.stored_tensors import StoredTensors
from muster.replica.frontends.tensor_packing import TensorPacking
from muster.replica.frontends.torch_arrays import TorchArrays
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.model.model_folder import Wishes
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import AlgorithmError, RoundGoneError
from muster.replica.rounds.error_feedback import StoredErrorFeedback
from muster.replica.rounds.exchange import Exchange, LocalUpdate
from muster.replica.rounds.replicated_state import Trained
from muster.replica.rounds.retention import Keeper
from muster.replica.rounds.round_context import log
from muster.replica.rounds.run_options import Setting, agree_on_options
from muster.replica.states.plain_state import StateDict
from muster.replica.states.state_buffer import Packed, packed_state
from muster.replica.statistics.stopwatch import Stopwatch


class Manager(FrontEnd):
    """The part of `torchft.Manager` that torchft's algorithms use."""

    _use_async_quorum = False

    def __init__(
        self,
        rendezvous: Rendezvous,
        model: torch.nn.Module,
        fragments: Sequence[torch.nn.Module] | None = None,
        *,
        codec: str = "fp32",
        checkpoint_dir: str | Path | None = None,
        final_model: FinalModel = NO_WISHES,
    ) -> None:
        """Join the run: overwrites `model` with the run's. Create the torchft algorithm afterwards.

        DiLoCo applies the last round, if the loaded state lacks it, when it is created, and LocalSGD before its first
        inner step.

        Args:
            rendezvous: the context's.
            model: the whole model.
            fragments: the list that torchft's DiLoCo is given, if it is not `[model]`.
            codec: how values are encoded, as in `Algorithm`.
            checkpoint_dir: where to save the residual of the codec (the context's); None: not saved.
            final_model: what lies beside the weights of the run's model, and how it is evaluated; see `FinalModel`.

        Raises:
            AlgorithmError: an unknown codec, or other settings than the run's.
            ParametersError: an argument that cannot be used.
            FencedError, StoppedError, RendezvousError
        """
        check_rendezvous(rendezvous)
        check_first_process(rendezvous, "torchft's manager")
        check_type("model", model, torch.nn.Module, "a torch.nn.Module")
        check_final_model(rendezvous, final_model)
        folder = checked_folder(checkpoint_dir)
        super().__init__(Stopwatch(rendezvous.statistics))
        StoredTensors(model, is_first=True, adapter=final_model.adapter)
        self._model = model
        self._fragments = list(fragments or [model])
        self._codec = _codec(codec)
        self._rendezvous = rendezvous
        settings: dict[str, Setting] = {"algorithm": "torchft", "fragments": len(self._fragments)}
        rendezvous.rounds.context = agree_on_options(rendezvous.context, codec, settings)
        self._states = TorchftStates(rendezvous.context)
        self._keeper = Keeper(self._states, rendezvous.rank)
        self._hooks: dict[str, tuple[Load, Save]] = {}
        self._synced: dict[int, SyncedFragment] = {}
        self._has_caught_up = self._replays = False
        self._took_part, self._is_void = True, False
        self._captured: tuple[int, Packed] | None = None
        self._keeps = False
        self._weights, self._weight = FragmentWeights(len(self._fragments)), 1.0
        self._packing = packing = TensorPacking(model)
        self._round, self._loaded = self._load_latest()
        feedback = partial(_feedback, rendezvous, self._codec, folder)
        self._sync = SyncExchange(self._fragments, feedback)
        state = GlobalState(self._round, packing.read(), np.zeros(packing.count, np.float32))
        self._trained = Trained(packing=packing, state=state)
        rendezvous.rounds.seen.join(rendezvous.context, self._round)
        rendezvous.departure.training = self._trained
        stored = partial(StoredTensors, model, is_first=True, adapter=final_model.adapter)
        rendezvous.departure.leave_with(Wishes(final_model, stored), self.shutdown)
        rendezvous.seat.ready(self._round)
        rendezvous.statistics.times.ready()

    @property
    def round(self) -> int:
        """The last round whose result this replica has applied; 0 before the first."""
        return self._round

    def add_samples(self, samples: float) -> None:
        """Count samples or tokens before `inner_optimizer.step()`: their sum is the weight in the round's mean.

        Without it the inner steps are. Call it on all replicas or on none.

        Raises:
            ParametersError: negative, infinite or NaN.
        """
        self._weights.add_samples(samples)

    def register_state_dict_fn(self, key: str, load: Load, save: Save) -> None:
        """Store what `save` returns with every round's state. A replica that joined later gets it loaded at once.

        The last fragment of torchft's DiLoCo makes it complete: it then applies the rounds that the state lacks.

        Raises:
            AlgorithmError: a fragment of another version of torchft.
            StoppedError, RendezvousError
        """
        self._hooks[key] = load, save
        if key in self._loaded:
            load(self._loaded[key])
        for index in range(len(self._fragments)):
            if key == fragment_key(index):
                self._synced[index] = fragment_of(key, load)
                if len(self._synced) == len(self._fragments):
                    self._catch_up()

    def current_step(self) -> int:
        """The same as `round`, under torchft's name."""
        return self._round

    def start_quorum(self, *_: object, **__: object) -> None:
        """A sync begins. Its members are agreed when the round is exchanged."""
        self._weight = self._weights.take(self._round % len(self._fragments))

    def disallow_state_dict_read(self) -> None:
        """An inner step begins: the state after the last sync is complete, and the next exchange can start.

        Raises:
            RunEndedError: the run has no further round.
        """
        with self._stopwatch.blocked():
            if not self._has_caught_up:
                self._catch_up()
            self._capture()
            self._start_exchange()
        if self._rendezvous.rounds.seen.has_ended and not self._sync.pending:
            self.shutdown()
            self._rendezvous.rounds.seen.check_not_ended()

    def allow_state_dict_read(self) -> None:
        """An inner step has ended."""
        self._rendezvous.statistics.progress.step()
        self._rendezvous.statistics.metrics.round = self._round + 1
        self._weights.add_step()

    def allreduce(self, tensor: torch.Tensor, should_quantize: bool = False) -> Work:
        """Replace `tensor` by its mean over the participants, together with all others of this sync.

        Args:
            should_quantize: allowed only with a lossy codec, which then decides how.

        Raises:
            AlgorithmError: `should_quantize` without a lossy codec, or a lossy codec for the parameters themselves.
        """
        if should_quantize and not self._codec.loses:
            message = (
                "should_quantize=True needs a lossy codec, but the codec is fp32: set another, such as codec='int8'."
            )
            raise AlgorithmError(message)
        if self._codec.loses and not self._hooks:
            message = (
                "torchft's LocalSGD exchanges the parameters themselves, which a lossy codec would damage: "
                f"codec is {self._codec.name}; allowed: fp32."
            )
            raise AlgorithmError(message)
        with self._stopwatch.blocked():
            work = Work(tensor, self._receive)
        self._sync.collect(work)
        return work

    def should_commit(self, *_: object, **__: object) -> bool:
        """Whether torchft applies the round's mean. If this replica did not take part, it loads the run's state.

        A void round changes nothing: its inner steps are dropped.
        """
        self._receive()
        self._round += 1
        if self._replays:
            return True
        applies = self._took_part and not self._is_void
        if not self._took_part:
            with self._stopwatch.blocked(), self._rendezvous.statistics.times.stage(Activity.LOADING):
                self._rejoin()
        self._rendezvous.statistics.metrics.step = self._rendezvous.statistics.metrics.round = self._round
        self._stopwatch.lap()
        return applies

    def shutdown(self, wait: bool = True) -> None:  # noqa: ARG002 - torchft's signature
        """After the last sync: leave the run. The last replica that calls this writes the run's model.

        A replica that was asked to stop stays in the run: a rerun follows.
        """
        self._capture()
        self._trained.state.parameters[...] = self._packing.read()
        if not self._rendezvous.context.stops.asked.is_set():
            self._rendezvous.departure.leave()

    def _start_exchange(self) -> None:
        """Start the exchange of the collected tensors."""
        captured, keeps = self._captured, self._keeps

        def exchange(update: LocalUpdate) -> Exchange | None:
            if captured is not None and not keeps:
                # The keeper may have died before storing it, and its rerun, which this round may wait for, needs it.
                self._states.store(*captured)
            try:
                exchanged = self._rendezvous.rounds.exchange(round_, update)
            except RoundGoneError:
                return None
            if exchanged.is_member:
                with self._rendezvous.statistics.times.stage(Activity.SAVING):
                    self._keeper.keep(exchanged.commit)
            return exchanged

        round_ = self._round + 1
        self._sync.start(round_, self._weight, exchange)

    def _receive(self) -> None:
        """Wait for the exchange and complete the futures of its tensors."""
        if not self._sync.pending:
            return
        with self._stopwatch.blocked():
            self._start_exchange()
            exchange, works = self._sync.finish()
            self._took_part = exchange is not None and exchange.is_member
            self._is_void = exchange is not None and exchange.commit.void
            if self._is_void and self._captured is not None and not self._hooks:
                # torchft's DiLoCo restores the parameters itself, its LocalSGD has no copy of them.
                load_state(self._captured[1], self._model, self._fragments)
            self._captured = None
            if exchange is not None:
                members = exchange.commit.members
                self._keeps = members[exchange.commit.round % len(members)].rank == self._rendezvous.rank
        for work in works:
            work.future.set_result([work.tensor])

    def _capture(self) -> None:
        """Capture the state after the last round, once the sync is complete; the round's keeper stores it."""
        if self._sync.pending or (self._captured is not None and self._captured[0] == self._round):
            return
        self._captured = self._round, packed_state(self._state(), TorchArrays())
        self._trained.state.round = self._round
        if self._keeps:
            self._states.store(*self._captured)

    def _state(self) -> StateDict:
        return {
            "model": self._model.state_dict(),
            "hooks": {key: save() for key, (_load, save) in self._hooks.items()},
        }

    def _rejoin(self) -> None:
        """Left out of a round: continue from the state after the last one."""
        self._load_again()
        self._catch_up()
        self._weights.clear()
        self._rendezvous.seat.renew(self._round)
        log.warning("event=left-out now=%d", self._round)

    def _load_latest(self) -> tuple[int, StateDict]:
        """Load the model's part of the newest state; returns its round and the hooks' states."""
        round_, body = self._states.latest(self._state)
        return round_, load_state(body, self._model, self._fragments)

    def _load_again(self) -> None:
        self._round, self._loaded = self._load_latest()
        for key, (load, _save) in self._hooks.items():
            # The state before the first round is the model alone.
            if key in self._loaded:
                load(self._loaded[key])
        self._rendezvous.rounds.seen.remember(self._rendezvous.context, self._round)

    def _catch_up(self) -> None:
        """Apply every round that is committed by now and that the state lacks."""
        self._has_caught_up = True
        while True:
            try:
                exchange = self._rendezvous.rounds.committed(self._round + 1)
            except RoundGoneError:
                self._load_again()
                continue
            if exchange is None:
                return
            self._replays = True
            try:
                self._replay(exchange)
            finally:
                self._replays = False
            log.info("round=%d event=replayed", self._round)

    def _replay(self, exchange: Exchange) -> None:
        """Let torchft apply a committed round to the state before it; a void one changes nothing."""
        if exchange.commit.void:
            self._round += 1
            return
        if self._synced:
            fragment = self._synced[self._round % len(self._fragments)]
            fragment.prepare_sync()
            self._sync.replay(exchange)
            fragment.perform_sync()
            # Nothing was trained: the new parameters are not mixed with those before.
            fragment.restore_parameters()
            return
        # LocalSGD: the mean is the parameters.
        for parameter in self._model.parameters():
            self.allreduce(parameter.detach())
            parameter.grad = None  # of other parameters
        self._sync.replay(exchange)
        self.should_commit()


def _feedback(
    rendezvous: Rendezvous, codec: Codec, folder: Path | None, count: int, round_: int
) -> StoredErrorFeedback:
    """What the codec has lost of `count` values by the end of a round, as it was saved."""
    return StoredErrorFeedback(codec, count, rendezvous.checkpoints(folder, "residual"), round_)


def _codec(name: str) -> Codec:
    try:
        return codec_named(name)
    except ValueError as error:
        raise AlgorithmError(str(error)) from None
