"""DiLoCo as a callback of Lightning's `Trainer`.

Lightning keeps its loop: accumulation, schedules, validation. The callback exchanges after optimizer steps, and lets a
replica that joins a running run begin at the run's step, by the counters of Lightning's own loops.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from typing import Any

import lightning.pytorch as lightning
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy
from lightning.pytorch.utilities.data import extract_batch_size

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.data_position import Position, start_at
from muster.replica.frontends.framework_loop import FrameworkLoop, catch_up, loggable
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.replica_errors import ParametersError
from muster.replica.rounds.exchange import checked_samples
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict, Stateful

# Lightning expects a data loader that stores its own place; the callback has put it there.
_WARNING = "You're resuming from a checkpoint that ended before the epoch ended"


class DiLoCoCallback(lightning.Callback):
    """Trains the parameters that require a gradient together with the run's other replicas.

        outer = DiLoCoCallback(context, Algorithm(sync_every=500))
        trainer = lightning.Trainer(max_steps=10_000, callbacks=[outer])
        trainer.fit(module, data)   # ends with a round, so that the module has the global parameters

    A restarted replica continues at the run's step: the optimizer, the schedules and the random numbers are restored
    from the context's `checkpoint_dir`. Lightning's own checkpoints are not needed.
    """

    def __init__(
        self,
        context: Context,
        algorithm: Algorithm,
        *,
        samples: Callable[[Any], float] = extract_batch_size,
        final_model: FinalModel = NO_WISHES,
    ) -> None:
        """Nothing is exchanged before the training begins.

        Args:
            context: the trainer's.
            algorithm: how the run trains; its steps are Lightning's optimizer steps.
            samples: how many samples or tokens a batch has, for the replica's weight; by default its examples.
            final_model: what lies beside the weights of the run's model, and how it is evaluated; see `FinalModel`.

        Raises:
            ParametersError: an argument of a wrong type.
        """
        self._loop = FrameworkLoop(context, algorithm, final_model)
        self._context = context
        self._count = samples
        self._counted = _Counter()
        self._weight = 0.0
        self._total: float = math.inf

    @property
    def round(self) -> int:
        """The last round to which this replica has contributed or whose result it has applied; 0 before the first."""
        return self._loop.diloco.round

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Join the run: overwrite the module's parameters with the run's, and continue at the run's step.

        Raises:
            ParametersError: settings of the trainer that an exchange cannot work with; lists all of them.
            AlgorithmError, FencedError, StoppedError, RendezvousError: as `muster.torch.DiLoCo`.
        """
        problems = _problems(trainer, pl_module)
        if problems:
            message = "The trainer's settings cannot be used: " + "; ".join(problems) + "."
            raise ParametersError(message)
        own: dict[str, Stateful] = {"counter": self._counted, "precision": trainer.precision_plugin}
        for number, config in enumerate(trainer.lr_scheduler_configs):
            catch_up(config.scheduler, 0)  # now, not in a rerun: it has to count its steps
            own[f"scheduler-{number}"] = config.scheduler
        self._total = trainer.estimated_stepping_batches
        self._loop.expect(self._total)
        steps = self._loop.join(pl_module, trainer.optimizers[0], own)
        if steps:
            self._begin_at(trainer, steps)
            log.info("event=resumed step=%d of=%s", steps, self._total)

    def on_train_batch_start(self, *_: Any, **__: Any) -> None:
        """The first batch of a restarted replica has the random numbers that it would have had without the restart."""
        self._loop.before_step()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        """After a batch: exchange if it ended a step that ends a round. Raises as `muster.torch.DiLoCo.step`."""
        self._weight += checked_samples(self._count(batch))
        if trainer.global_step == self._loop.steps:
            return  # its gradients are accumulated
        samples, self._weight = self._weight, 0.0
        self._counted.samples += samples
        if trainer.global_step % trainer.log_every_n_steps == 0:
            self._log(trainer)
        if self._loop.step(samples) and self._loop.steps > trainer.global_step:
            _set_steps(trainer, self._loop.steps)
        if self._loop.should_stop or self._loop.steps >= self._total:
            trainer.should_stop = True
            # Before the trainer's last validation.
            self._loop.finish()

    def on_validation_batch_end(self, *_: Any, **__: Any) -> None:
        """A batch of a validation is progress, too."""
        self._context.alive()

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """The module has the global parameters after this. Raises as `muster.torch.DiLoCo.finish`."""
        self._log(trainer)
        self._loop.finish()

    def _log(self, trainer: Any) -> None:
        metrics = self._context.metrics
        if self._context.group.is_first:
            values = {**trainer.callback_metrics, "samples": self._counted.samples}
            metrics.log(**loggable(values, metrics.latest()))

    def _begin_at(self, trainer: Any, steps: int) -> None:
        """Set the trainer's counters, and let its data begin after those of the run's steps."""
        _set_steps(trainer, steps)
        batches = trainer.num_training_batches
        if batches == math.inf:
            log.warning("event=data-from-start loader=%s", type(trainer.train_dataloader).__name__)
            return
        epochs, done = divmod(steps, -(-int(batches) // trainer.accumulate_grad_batches))
        progress = trainer.fit_loop.epoch_progress
        for tracker in (progress.current, progress.total):
            tracker.ready = tracker.started = tracker.processed = tracker.completed = epochs
        for config in trainer.lr_scheduler_configs:
            if config.interval == "epoch":
                catch_up(config.scheduler, epochs // config.frequency)
        if done:
            self._loop.begins_within_pass()
            _begin_within(trainer, done * trainer.accumulate_grad_batches)


class _Counter:
    """How many samples this replica has trained on."""

    def __init__(self) -> None:
        self.samples = 0.0

    def state_dict(self) -> StateDict:
        return {"samples": self.samples}

    def load_state_dict(self, state_dict: StateDict) -> None:
        self.samples = state_dict["samples"]


def _set_steps(trainer: Any, steps: int) -> None:
    epoch_loop = trainer.fit_loop.epoch_loop
    tracker = epoch_loop.automatic_optimization.optim_progress.optimizer.step.total
    tracker.ready = tracker.completed = epoch_loop._batches_that_stepped = steps
    for config in trainer.lr_scheduler_configs:
        if config.interval == "step":
            catch_up(config.scheduler, steps // config.frequency)


def _begin_within(trainer: Any, batches: int) -> None:
    """Begin the present epoch after `batches` batches, as Lightning does when it restores a checkpoint."""
    found = trainer.train_dataloader
    loaders = list(found.values()) if isinstance(found, dict) else found if isinstance(found, list | tuple) else [found]
    for loader in loaders:
        if not start_at(loader, Position(0, batches, None)):
            log.warning("event=data-from-start loader=%s", type(loader).__name__)
    epoch_loop = trainer.fit_loop.epoch_loop
    tracker = epoch_loop.batch_progress.current
    tracker.ready = tracker.started = tracker.processed = tracker.completed = batches
    epoch_loop.restarting = True
    warnings.filterwarnings("ignore", message=_WARNING)
    iter(trainer.fit_loop._data_fetcher)  # its workers may have begun at the start


def _problems(trainer: Any, module: Any) -> list[str]:
    strategy = type(trainer.strategy).__name__
    checks = {
        f"strategy is {strategy}; allowed: DDPStrategy, or ModelParallelStrategy with fully_shard (FSDP2)": isinstance(
            trainer.strategy, DeepSpeedStrategy | FSDPStrategy
        ),
        "automatic_optimization is False; allowed: True, or muster.torch.DiLoCo in the training step itself": (
            not module.automatic_optimization
        ),
        f"configure_optimizers returns {len(trainer.optimizers)} optimizers; allowed: 1": len(trainer.optimizers) != 1,
        f"ckpt_path has set the trainer to step {trainer.global_step}; allowed: none, because the run's step is "
        "restored from its rendezvous": trainer.global_step > 0,
    }
    return [problem for problem, found in checks.items() if found]
