"""DiLoCo beside the training loop of a framework, which counts its steps itself.

The run's clock is the round: `steps` is the number of inner steps that belong to the rounds so far. For a replica that
joins later, or was left out of rounds, it is more than the replica has trained itself. Its framework continues with
this number, so that schedules and the last step are the same on all replicas.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from inspect import signature

import torch
from torch.optim.lr_scheduler import ChainedScheduler, LRScheduler

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.front_end import check_type
from muster.replica.frontends.torch_diloco import DiLoCo
from muster.replica.frontends.torch_state import random_state, set_random_state
from muster.replica.model.final_model import FinalModel
from muster.replica.replica_errors import ParametersError
from muster.replica.states.plain_state import StateDict, Stateful
from muster.replica.statistics.metrics import METRICS_MAX, NAME, NOT_OWN


class FrameworkLoop:
    """The DiLoCo of one training by a framework."""

    def __init__(self, context: Context, algorithm: Algorithm, final_model: FinalModel) -> None:
        """Check the arguments; nothing is exchanged before `join`.

        Raises:
            ParametersError: an argument of a wrong type.
        """
        check_type("context", context, Context, "the trainer's context")
        check_type("algorithm", algorithm, Algorithm, "an Algorithm, such as Algorithm(sync_every=500)")
        self._context = context
        self._algorithm = algorithm
        self._final_model = final_model
        self._diloco: DiLoCo | None = None
        self._random: StateDict | None = None
        self.steps = 0
        self.finished = False

    @property
    def diloco(self) -> DiLoCo:
        """The front end below the framework's loop.

        Raises:
            ParametersError: the framework has not begun to train.
        """
        if self._diloco is None:
            message = "The training has not begun: add this callback to the trainer before it trains."
            raise ParametersError(message)
        return self._diloco

    def join(
        self,
        model: torch.nn.Module,
        optimizer: torch.optim.Optimizer,
        trainer_state: Mapping[str, Stateful],
    ) -> int:
        """Join the run; returns the number of steps that it has trained. Raises as `DiLoCo`.

        They include those of a phase in which this replica was stopped, if it continues in it.
        """
        self._diloco = DiLoCo(
            self._context.rendezvous,
            model,
            optimizer,
            self._algorithm,
            trainer_state=trainer_state,
            checkpoint_dir=self._context.checkpoint_dir,
            final_model=self._final_model,
        )
        self.steps = self._diloco.round * self._algorithm.interval + self._diloco.steps
        return self.steps

    def begins_within_pass(self) -> None:
        """The training continues in the middle of a pass over the data, for which the framework makes an iterator anew.

        That draws random numbers, which the undisturbed training has drawn at the start of the pass.
        """
        self._random = random_state()

    def before_step(self) -> None:
        """Before an inner step, when its data are there: the first one gets the random numbers that were restored."""
        if self._random is not None:
            set_random_state(self._random)
            self._random = None

    def expect(self, steps: float) -> None:
        """The framework trains for so many steps in all; infinity: it does not know."""
        if steps < math.inf:
            self._context.expect(rounds=max(1, math.ceil(steps / self._algorithm.interval)))

    def step(self, samples: float) -> bool:
        """After an inner step with `samples`; returns whether a round was merged into the parameters.

        Raises as `DiLoCo.step`.
        """
        self.steps += 1
        merged = self.diloco.step(samples) is not None
        if merged:
            self.steps = max(self.steps, self.diloco.round * self._algorithm.interval)
        return merged

    @property
    def should_stop(self) -> bool:
        """Whether the framework should return from training: see `Context.stop`."""
        return self._context.stop.is_set()

    def finish(self) -> None:
        """After the last step: exchange the steps since the last round, too, unless the training ends earlier.

        It ends this replica's part in the run. The parameters are the global ones then; a further call makes them so
        again. Raises as `DiLoCo.step`.
        """
        if not (self.finished or self.should_stop):
            self.diloco.end_round()
        self.finished = True
        self.diloco.finish()


def catch_up(scheduler: object, steps: int) -> None:
    """Step a learning-rate scheduler that counts steps until it has made `steps`.

    Raises:
        ParametersError: it does not say how many it has made.
    """
    if not isinstance(scheduler, LRScheduler) or "metrics" in signature(scheduler.step).parameters:
        return
    with warnings.catch_warnings():
        # PyTorch expects an optimizer's step before each of them: those were made before this process started.
        warnings.simplefilter("ignore", UserWarning)
        while _steps_made(scheduler) < steps:
            scheduler.step()


def _steps_made(scheduler: LRScheduler) -> int:
    """The steps of a scheduler; of a chain those of its first one, because all make each step."""
    while isinstance(scheduler, ChainedScheduler):
        scheduler = scheduler._schedulers[0]
    made: int | None = getattr(scheduler, "last_epoch", None)
    if made is None:
        message = (
            f"The learning-rate scheduler is of type {type(scheduler).__name__}, which does not count its steps; "
            "allowed: one with last_epoch, as PyTorch's have it, or a ChainedScheduler of such."
        )
        raise ParametersError(message)
    return made


def loggable(values: Mapping[str, object], known: Mapping[str, float]) -> dict[str, float]:
    """The numbers of `values` that `Metrics.log` accepts beside the `known` metrics, in their order."""
    names = {*known} - NOT_OWN
    found: dict[str, float] = {}
    for name, value in values.items():
        number = _number(value)
        if number is None or NAME.fullmatch(name) is None:
            continue
        names.add(name)
        if len(names) > METRICS_MAX:
            break
        found[name] = number
    return found


def _number(value: object) -> float | None:
    """`value` as a number: a number itself, or an array or tensor of one."""
    if isinstance(value, bool) or not hasattr(value, "__float__"):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):
        return None
