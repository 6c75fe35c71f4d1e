"""Lightning's Trainer: a rerun continues at the run's step, and what cannot work is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("lightning.pytorch", reason="make test installs it")

import lightning.pytorch as lightning
import torch
from torch.utils.data import DataLoader

from examples.frameworks import lightning_module
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.lightning import Algorithm, Context, DiLoCoCallback
from muster.replica.errors import ParametersError, StoppedError
from tests.support.contexts import context_of, trained
from tests.support.inner_training import inner_states_written
from tests.support.peers import Killed, Run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Scaled(lightning.LightningModule):
    """Learns one number; remembers what it has seen, its learning rates and validations."""

    def __init__(self, die_at: int = 0, noise: float = 0.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.die_at, self.noise = die_at, noise
        self.saved: Callable[[], object] = lambda: None
        self.seen: list[int] = []
        self.rates: dict[int, float] = {}
        self.validated: list[int] = []

    def training_step(self, batch: Any, index: int) -> Any:
        self.saved()
        if self.trainer.global_step + 1 == self.die_at:
            raise Killed
        self.rates[self.trainer.global_step + 1] = self.trainer.optimizers[0].param_groups[0]["lr"]
        self.seen += batch.tolist()
        loss = (self.weight * batch.float()).mean() / 100
        return loss * (1 + self.noise * torch.randn(())) if self.noise else loss

    def validation_step(self, batch: Any, index: int) -> None:
        self.validated.append(self.trainer.global_step)

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.AdamW(self.parameters(), lr=1e-2)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.9**step)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}


class Shuffled(torch.utils.data.Sampler[int]):
    """The same order in each process of a replica, another one in each epoch."""

    def __init__(self) -> None:
        self.epoch = 0

    def __iter__(self) -> Any:
        return iter(torch.randperm(22, generator=torch.Generator().manual_seed(self.epoch)).tolist())

    def __len__(self) -> int:
        return 22

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def fit(context: Context, module: Scaled, **settings: Any) -> DiLoCoCallback:
    """Train on eleven batches: an epoch has five steps of two batches and one of one."""
    outer = DiLoCoCallback(context, Algorithm(sync_every=4))
    module.saved = lambda: inner_states_written(outer._loop.diloco)
    settings = {"max_epochs": 3, "accumulate_grad_batches": 2, "callbacks": [outer], "log_every_n_steps": 1, **settings}
    trainer = lightning.Trainer(
        accelerator="cpu",
        default_root_dir=context.output_dir,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        logger=False,
        num_sanity_val_steps=0,
        **settings,
    )
    data = torch.arange(22)
    trainer.fit(module, DataLoader(data, 2, sampler=Shuffled()), DataLoader(data[:1]))  # type: ignore[arg-type]
    return outer


def test_replicas_train_together(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    contexts = [context_of(run, rank) for rank in range(2)]
    one, other = trained(lambda context: lightning_module.train(context, max_steps=45, sync_every=10), contexts)
    assert one.state.round == run.commit(5).expected_rounds == 5
    assert one.state.parameters.tobytes() == other.state.parameters.tobytes()
    latest = contexts[0].metrics.latest()
    assert latest["samples"] == 45 * 2 * 8
    assert latest["loss"] < 2.0


def test_a_rerun_continues_at_the_runs_step(tmp_path: Path) -> None:
    whole = Scaled()
    fit(context_of(Run(tmp_path / "alone", replicas=1, min_participants=1)), whole)
    assert list(whole.rates) == list(range(1, 19))
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    with pytest.raises(Killed):
        fit(context_of(run), Scaled(die_at=11))
    again = Scaled()
    outer = fit(context_of(run, attempt=2), again)
    assert outer.round == 5
    # The second round was the last one: steps 9 and 10 are trained again, on the same data as without the restart.
    assert again.rates == pytest.approx({step: rate for step, rate in whole.rates.items() if step > 8})
    assert again.seen == whole.seen[30:]
    assert again.validated == whole.validated[1:] == [12, 18]


def test_a_killed_trainer_continues_in_the_middle_of_a_phase_with_the_same_bits(tmp_path: Path) -> None:
    torch.manual_seed(5)
    whole = Scaled(noise=0.3)
    fit(context_of(Run(tmp_path / "alone", replicas=1, min_participants=1)), whole)
    run, tiers = Run(tmp_path / "run", replicas=1, min_participants=1), CheckpointTiers(memory_every=1)
    torch.manual_seed(5)
    # Before the 4th, the 8th and the 12th step: within the first and second epoch.
    for attempt, (begins, dies) in enumerate([(1, 4), (4, 8), (8, 12)], 1):
        module = Scaled(dies, 0.3)
        with pytest.raises(Killed):
            fit(context_of(run, attempt=attempt, checkpoints=tiers), module)
        assert list(module.rates) == list(range(begins, dies))
    again = Scaled(noise=0.3)
    fit(context_of(run, attempt=4, checkpoints=tiers), again)
    assert list(again.rates) == list(range(12, 19))
    assert again.seen == whole.seen[-len(again.seen) :]
    assert torch.equal(again.weight, whole.weight)


def test_the_training_ends_when_the_replica_is_to_stop(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    context, module = context_of(run), Scaled()
    context.stop.set()
    with pytest.raises(StoppedError):
        fit(context, module)
    assert list(module.rates) == [1]
    # The rerun continues after this step.
    again = Scaled()
    fit(context_of(run, attempt=2), again)
    assert list(again.rates) == list(range(2, 19))


def test_settings_that_an_exchange_cannot_work_with_are_all_named(tmp_path: Path) -> None:
    class Manual(Scaled):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

        def configure_optimizers(self) -> Any:
            return [torch.optim.SGD(self.parameters(), lr=1.0) for _ in range(2)], []

    context = context_of(Run(tmp_path / "run", replicas=1, min_participants=1))
    with pytest.raises(ParametersError) as caught:
        fit(context, Manual(), accumulate_grad_batches=1)
    assert "automatic_optimization is False; allowed: True" in str(caught.value)
    assert "configure_optimizers returns 2 optimizers; allowed: 1" in str(caught.value)
