"""The trainers of Hugging Face and Lightning behind one interface: each fits one number to 22 examples.

Eleven batches of two examples are an epoch. With two batches to a step, it has five whole steps and one of one batch.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer, TrainerCallback, TrainingArguments

from muster import huggingface
from muster import lightning as lightning_front_end
from muster.huggingface import Algorithm, Context
from tests.support.inner_training import inner_states_written
from tests.support.peers import Killed

EXAMPLES, EPOCHS = 22, 3
ALGORITHM = Algorithm(sync_every=4)


@dataclass
class Watch:
    """What is seen of a training, which ends before the step `die_at`, as if it were killed."""

    die_at: int = 0
    noise: float = 0.0
    before_step: Callable[[int], None] = lambda _: None
    rates: dict[int, float] = field(default_factory=dict)
    """The learning rate of each step that began."""
    seen: list[int] = field(default_factory=list)
    """The examples, in order."""
    validated: list[int] = field(default_factory=list)
    """After which steps Lightning has validated."""
    round: int = 0
    weight: torch.Tensor = field(default_factory=lambda: torch.ones(()))

    def begin(self, step: int, rate: float, outer: Any) -> None:
        """Note a step; what the steps before it have saved is written."""
        if step > 1:
            inner_states_written(outer._loop.diloco)
        if step == self.die_at:
            raise Killed
        self.rates[step] = rate
        self.before_step(step)

    def loss(self, weight: torch.Tensor, batch: torch.Tensor) -> torch.Tensor:
        """The loss of a batch: with `noise`, it depends on the state of the random generator."""
        self.seen += batch.tolist()
        loss = (weight * batch.float()).mean() / 100
        return loss * (1 + self.noise * torch.randn(())) if self.noise else loss


class Stream(IterableDataset[Any]):
    """The examples one after another, with a length, as streams of shards in a bucket have one."""

    def __init__(self, examples: list[Any]) -> None:
        self.examples = examples

    def __iter__(self) -> Any:
        return iter(self.examples)

    def __len__(self) -> int:
        return len(self.examples)


class _Scaled(torch.nn.Module):
    main_input_name = "example"

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.watch = watch

    def forward(self, example: Any) -> Any:
        return {"loss": self.watch.loss(self.weight, example)}


class _Steps(TrainerCallback):
    def __init__(self, watch: Watch, outer: Any) -> None:
        self.watch, self.outer = watch, outer

    def on_step_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
        self.watch.begin(state.global_step + 1, trainer["lr_scheduler"].get_last_lr()[0], self.outer)


def huggingface_trainer(
    context: Context, watch: Watch, *, batches: int = 2, as_data: Callable[[Any], Any] = list, **settings: Any
) -> tuple[Any, Any]:
    """A `transformers.Trainer`, and Muster's callback in it."""
    outer = huggingface.DiLoCoCallback(context, ALGORITHM)
    arguments = TrainingArguments(
        str(context.output_dir),
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        disable_tqdm=True,
        gradient_accumulation_steps=batches,
        **{"num_train_epochs": EPOCHS, "per_device_train_batch_size": 2, "weight_decay": 0.1, **settings},
    )
    data = as_data([{"example": number} for number in range(EXAMPLES)])
    return Trainer(_Scaled(watch), arguments, train_dataset=data, callbacks=[_Steps(watch, outer), outer]), outer


def fit_huggingface(context: Context, watch: Watch, **settings: Any) -> None:
    """Train with `transformers.Trainer`."""
    trainer, outer = huggingface_trainer(context, watch, **settings)
    trainer.train()
    watch.round, watch.weight = outer.round, trainer.model.weight.detach()


class Module(lightning.LightningModule):
    """Learns one number."""

    def __init__(self, watch: Watch, outer: Any) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.watch, self.outer = watch, outer

    def training_step(self, batch: Any, index: int) -> Any:
        step = self.trainer.global_step + 1
        if step not in self.watch.rates:
            self.watch.begin(step, self.trainer.optimizers[0].param_groups[0]["lr"], self.outer)
        return self.watch.loss(self.weight, batch)

    def validation_step(self, batch: Any, index: int) -> None:
        self.watch.validated.append(self.trainer.global_step)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class _Shuffled(torch.utils.data.Sampler[int]):
    """Another order in each epoch."""

    epoch = 0

    def __iter__(self) -> Any:
        return iter(torch.randperm(EXAMPLES, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self) -> int:
        return EXAMPLES

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def fit_lightning(
    context: Context,
    watch: Watch,
    *,
    batches: int = 2,
    kind: type[Module] = Module,
    loader: DataLoader[Any] | None = None,
    **settings: Any,
) -> None:
    """Train with `lightning.Trainer`."""
    outer = lightning_front_end.DiLoCoCallback(context, ALGORITHM)
    module = kind(watch, outer)
    trainer = lightning.Trainer(
        accelerator="cpu",
        default_root_dir=context.output_dir,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        num_sanity_val_steps=0,
        callbacks=[outer],
        accumulate_grad_batches=batches,
        **{"max_epochs": EPOCHS, **settings},
    )
    data: Any = torch.arange(EXAMPLES)
    trainer.fit(module, loader or DataLoader(data, 2, sampler=_Shuffled()), DataLoader(data[:1]))
    watch.round, watch.weight = outer.round, module.weight.detach()


@dataclass(frozen=True)
class Library:
    """One of the two; `fit(context, watch, batches=2, **settings)` trains, with the library's own settings."""

    name: str
    fit: Callable[..., None]
    rest: Callable[[list[int]], list[int]]
    """Of all examples of an undisturbed training, those that a rerun sees which continues after step 8."""
    deaths: tuple[int, int, int]
    """Before which steps a training in steps of one batch is killed: in the first, second and third epoch."""


LIBRARIES = (
    # Its pass through the rest of epoch 1 ends with the last whole step, and the next one is epoch 2.
    Library("huggingface", fit_huggingface, lambda seen: seen[30:42] + seen[44:], (4, 18, 23)),
    # Before step 23 it has validated, which a rerun from step 22 does not repeat; its loader draws random numbers.
    Library("lightning", fit_lightning, lambda seen: seen[30:], (4, 18, 27)),
)
