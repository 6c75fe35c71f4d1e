"""DiLoCo as a callback of Hugging Face's `Trainer`.

The trainer keeps its loop: accumulation, schedule, evaluation, logs. The callback exchanges after optimizer steps. It
lets a replica that joins a running run begin at the run's step, with the schedule and the data that belong to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.distributed.fsdp import FullyShardedDataParallel
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from muster.replica.algorithms.algorithm import Algorithm
from muster.replica.context import Context
from muster.replica.frontends.data_position import Position, position_after, start_at
from muster.replica.frontends.framework_loop import FrameworkLoop, catch_up, loggable
from muster.replica.model.final_model import NO_WISHES, FinalModel
from muster.replica.replica_errors import ParametersError
from muster.replica.rounds.round_context import log
from muster.replica.states.plain_state import StateDict, Stateful

# How the trainer names what Muster's metrics call otherwise.
_METRICS = {"num_input_tokens_seen": "tokens"}


class DiLoCoCallback(TrainerCallback):
    """Trains the parameters that require a gradient together with the run's other replicas.

        outer = DiLoCoCallback(context, Algorithm(sync_every=500))
        trainer = Trainer(model, args, train_dataset=data, callbacks=[outer])
        trainer.train()             # ends with a round, so that the model has the global parameters

    With adapters (PEFT) only the adapters are exchanged. A restarted replica continues at the run's step: the
    optimizer, the schedule and the random numbers are restored from the context's `checkpoint_dir`. The trainer's own
    checkpoints are not needed.
    """

    def __init__(self, context: Context, algorithm: Algorithm, *, final_model: FinalModel = NO_WISHES) -> None:
        """Nothing is exchanged before the training begins.

        Args:
            context: the trainer's.
            algorithm: how the run trains; its steps are the trainer's optimizer steps.
            final_model: what lies beside the weights of the run's model, and how it is evaluated; see `FinalModel`.

        Raises:
            ParametersError: an argument of a wrong type.
        """
        self._loop = FrameworkLoop(context, algorithm, final_model)
        self._context = context
        self._tokens = 0
        self._steps_per_epoch = 0.0

    @property
    def round(self) -> int:
        """The last round to which this replica has contributed or whose result it has applied; 0 before the first."""
        return self._loop.diloco.round

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trainer: Any
    ) -> None:
        """Join the run: overwrite the model's parameters with the run's, and continue at the run's step.

        Raises:
            ParametersError: settings of the trainer that an exchange cannot work with; lists all of them.
            AlgorithmError, FencedError, StoppedError, RendezvousError: as `muster.torch.DiLoCo`.
        """
        model, optimizer, scheduler = trainer["model"], trainer["optimizer"], trainer["lr_scheduler"]
        problems = list(_problems(args, state, model))
        if problems:
            message = "The trainer's settings cannot be used: " + "; ".join(problems) + "."
            raise ParametersError(message)
        catch_up(scheduler, 0)  # now, not in a rerun: it has to count its steps
        own: dict[str, Stateful] = {"scheduler": scheduler, "trainer": _Counters(state)}
        if (scaler := getattr(optimizer, "scaler", None)) is not None:
            own["scaler"] = scaler
        self._loop.expect(state.max_steps)
        state.global_step = self._loop.join(model, optimizer, own)
        self._tokens = state.num_input_tokens_seen
        if state.global_step >= state.max_steps:
            self._loop.finish()
        elif state.global_step:
            catch_up(scheduler, state.global_step)
            self._skip_data(args, state, trainer["train_dataloader"])
            log.info("event=resumed step=%d of=%d", state.global_step, state.max_steps)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trainer: Any
    ) -> None:
        """The first step of a restarted replica has the random numbers that it would have had without the restart."""
        self._loop.before_step()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trainer: Any
    ) -> TrainerControl:
        """After an optimizer step: exchange if a round is due. Raises as `muster.torch.DiLoCo.step`."""
        if not self._loop.finished:
            merged = self._loop.step(self._samples(args, state))
            if merged and self._loop.steps > state.global_step:
                state.global_step = self._loop.steps
                catch_up(trainer["lr_scheduler"], state.global_step)
        if self._steps_per_epoch:
            state.epoch = state.global_step / self._steps_per_epoch
        if self._loop.finished or self._loop.should_stop or state.global_step >= state.max_steps:
            control.should_training_stop = True
        if control.should_training_stop:
            # Before the trainer's last evaluation and checkpoint.
            self._loop.finish()
        return control

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trainer: Any
    ) -> None:
        """Later passes over a stream begin at its start."""
        if hasattr(trainer["train_dataloader"], "skip_batches"):
            trainer["train_dataloader"].skip_batches = 0

    def on_prediction_step(self, *_: Any, **trainer: Any) -> None:
        """A batch of an evaluation is progress, too."""
        self._context.alive()

    def on_log(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, logs: Any = None, **trainer: Any
    ) -> None:
        """Log what the trainer logs as the replica's metrics; `tokens` are those that it has counted."""
        metrics = self._context.metrics
        named = {_METRICS.get(name, name): value for name, value in (logs or {}).items()}
        if self._context.group.is_first and (found := loggable(named, metrics.latest())):
            metrics.log(**found)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **trainer: Any
    ) -> None:
        """The model has the global parameters after this. Raises as `muster.torch.DiLoCo.finish`."""
        self._loop.finish()

    def _samples(self, args: TrainingArguments, state: TrainerState) -> float:
        """What this step counts: tokens where the trainer counts them, for all processes at once; else examples."""
        tokens, self._tokens = state.num_input_tokens_seen - self._tokens, state.num_input_tokens_seen
        if tokens:
            self._context.expect(unit="tokens")
            return float(tokens) if self._context.group.is_first else 0.0
        return float(args.train_batch_size * args.gradient_accumulation_steps)

    def _skip_data(self, args: TrainingArguments, state: TrainerState, loader: Any) -> None:
        """Let the first pass over the data begin after those of the run's steps."""
        accumulation = args.gradient_accumulation_steps
        try:
            batches = len(loader)
        except TypeError:
            position = Position(0, state.global_step * accumulation, None)
        else:
            self._steps_per_epoch = max(1, -(-batches // accumulation))
            position = position_after(state.global_step, batches, accumulation)
        if not (args.ignore_data_skip or start_at(loader, position)):
            if hasattr(loader, "skip_batches"):
                # What is left out is read.
                loader.skip_batches = position.batches
            else:
                log.warning("event=data-from-start loader=%s", type(loader).__name__)
        if position.batches:
            self._loop.begins_within_pass()


class _Counters:
    """What the trainer has counted, as a state that is restored."""

    def __init__(self, state: TrainerState) -> None:
        self._state = state

    def state_dict(self) -> StateDict:
        return {"tokens": self._state.num_input_tokens_seen, "operations": float(self._state.total_flos)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        self._state.num_input_tokens_seen = state_dict["tokens"]
        self._state.total_flos = state_dict["operations"]


def _problems(args: TrainingArguments, state: TrainerState, model: torch.nn.Module) -> list[str]:
    checks = {
        "deepspeed is set, whose ZeRO trains copies of the parameters that no exchange reaches; allowed: none. "
        "For a model that does not fit on one GPU, set fsdp=True (version 2)": _uses_deepspeed(args),
        "fsdp has version 1; allowed: fsdp_config with version 2": any(
            isinstance(module, FullyShardedDataParallel) for module in model.modules()
        ),
        "auto_find_batch_size is True; allowed: False, because it begins the training anew": args.auto_find_batch_size,
        "load_best_model_at_end is True; allowed: False, because a run's result is the global parameters after the "
        "last round": args.load_best_model_at_end,
        f"resume_from_checkpoint has set the trainer to step {state.global_step}; allowed: none, because the run's "
        "step is restored from its rendezvous": state.global_step > 0,
    }
    return [problem for problem, found in checks.items() if found]


def _uses_deepspeed(args: TrainingArguments) -> bool:
    return bool(args.deepspeed) or getattr(args, "deepspeed_plugin", None) is not None
