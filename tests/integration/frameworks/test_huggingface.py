"""Hugging Face's Trainer: adapters alone travel, a rerun continues at the run's step, what cannot work is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("transformers", reason="make test installs it")

import torch
from peft import PeftModel
from transformers import Trainer, TrainerCallback, TrainingArguments

from examples.frameworks import accelerate_loop, huggingface_lora
from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.huggingface import Algorithm, Context, DiLoCoCallback
from muster.replica.errors import ParametersError, StoppedError
from muster.replica.group.inner_group import InnerGroup
from muster.replica.group.launcher import free_port
from muster.replica.group.member import Member
from muster.replica.metrics import Metrics
from muster.replica.rounds import agreement
from muster.replica.rounds.rendezvous import Rendezvous
from muster.torch import DiLoCo
from tests.support.contexts import all_succeed, board_of_a_group, context_of, launched, results_of, trained_apart
from tests.support.inner_training import inner_states_written
from tests.support.peers import Killed, Run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


class Scaled(torch.nn.Module):
    """Learns one number; remembers which examples it has seen."""

    main_input_name = "example"

    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(()))
        self.seen: list[int] = []
        self.noise = noise

    def forward(self, example: Any) -> Any:
        self.seen += example.tolist()
        loss = (self.weight * example.float()).mean() / 100
        return {"loss": loss * (1 + self.noise * torch.randn(())) if self.noise else loss}


class Watch(TrainerCallback):
    """Notes the step and the learning rate of every step; waits for `saved` and ends before `die_at`."""

    def __init__(self, die_at: int = 0) -> None:
        self.rates: dict[int, float] = {}
        self.die_at = die_at
        self.saved: Callable[[], object] = lambda: None

    def on_step_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
        if state.global_step:
            self.saved()
        if state.global_step + 1 == self.die_at:
            raise Killed
        self.rates[state.global_step + 1] = trainer["lr_scheduler"].get_last_lr()[0]


def arguments(folder: Path, **settings: Any) -> TrainingArguments:
    settings = {"num_train_epochs": 3, "gradient_accumulation_steps": 2, "per_device_train_batch_size": 2, **settings}
    return TrainingArguments(
        str(folder), use_cpu=True, report_to="none", save_strategy="no", disable_tqdm=True, **settings
    )


def trainer_of(
    context: Context, watch: Watch, sync_every: int = 4, noise: float = 0.0, **settings: Any
) -> tuple[Any, DiLoCoCallback]:
    """A trainer on 22 examples: eleven batches, so that an epoch has five steps of two batches and one of one."""
    outer = DiLoCoCallback(context, Algorithm(sync_every=sync_every))
    watch.saved = lambda: inner_states_written(outer._loop.diloco)
    trainer = Trainer(
        Scaled(noise),
        arguments(context.output_dir, **settings),
        train_dataset=[{"example": number} for number in range(22)],
        callbacks=[watch, outer],
    )
    return trainer, outer


def test_adapters_are_trained_together_and_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    context, others = trained_apart(lambda context: huggingface_lora.train(context, max_steps=45, sync_every=10), run)
    training = context.rendezvous.training
    assert training is not None
    # Forty-five steps are four rounds of ten, and one of five.
    assert training.state.round == 5
    assert [other.tobytes() for other in others] == [training.state.parameters.tobytes()]
    assert all("lora_" in name for name in training.packing.shapes)
    losses = [float(line.split()[0][5:]) for line in capsys.readouterr().out.splitlines() if line.startswith("loss=")]
    assert losses[-1] < losses[0]
    latest = context.metrics.latest()
    assert {"loss", "learning_rate", "tokens"} <= latest.keys()
    assert latest["tokens"] == 45 * 2 * 4 * 16
    loaded = PeftModel.from_pretrained(huggingface_lora._small(), str(results_of(run) / "model"))
    stored = {name.replace(".default", ""): value for name, value in loaded.named_parameters() if "lora_" in name}
    for name in training.packing.shapes:
        span = training.packing.span(name)
        expected = torch.from_numpy(training.state.parameters[span])
        assert torch.equal(stored[name.replace(".default", "")].detach().reshape(-1), expected)


def test_a_rerun_continues_at_the_runs_step(tmp_path: Path) -> None:
    alone, undisturbed = Run(tmp_path / "alone", replicas=1, min_participants=1), Watch()
    whole, _ = trainer_of(context_of(alone), undisturbed, weight_decay=0.1)
    whole.train()
    assert whole.state.global_step == 18

    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    first, _ = trainer_of(context_of(run), Watch(die_at=11), weight_decay=0.1)
    with pytest.raises(Killed):
        first.train()
    watch = Watch()
    again, outer = trainer_of(context_of(run, attempt=2), watch, weight_decay=0.1)
    again.train()
    # The second round was the last one: steps 9 and 10 are trained again.
    assert list(watch.rates) == list(range(9, 19))
    assert again.state.global_step == 18
    assert outer.round == 5
    assert watch.rates == pytest.approx({step: undisturbed.rates[step] for step in watch.rates})
    # Epoch 0 has 22 examples; of epoch 1, four batches of two were trained in steps 7 and 8. This pass ends with the
    # last complete step, and the next one is epoch 2.
    assert again.model.seen[:12] == whole.model.seen[30:42]
    assert again.model.seen[12:34] == whole.model.seen[44:66]
    # Adam's moments were restored: steps 9 to 11 have moved the parameters as before.
    assert whole.optimizer.state_dict()["state"][0]["step"] == again.optimizer.state_dict()["state"][0]["step"]


def test_a_replica_that_was_left_out_is_as_far_as_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "grace_window", lambda *_: 0.0)
    run = Run(tmp_path / "run", replicas=2, min_participants=1)
    watch = Watch()
    slow, outer = trainer_of(context_of(run, 0), watch, sync_every=2, max_steps=10)

    class Ahead(TrainerCallback):
        """The other replica makes three rounds while this one makes its first step."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
            if state.global_step == 0:
                model = Scaled()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                rendezvous = Rendezvous.open(run.context(), 1, 1, Metrics())
                quick = DiLoCo(rendezvous, model, optimizer, Algorithm(sync_every=2))
                while quick.round < 3:
                    quick.step()

    slow.add_callback(Ahead())
    slow.train()
    assert outer.round == 5
    # After its first step it may already see that its round is committed: then it does not make the second one.
    assert [step for step in watch.rates if step != 2] == [1, 7, 8, 9, 10]
    assert watch.rates[7] == pytest.approx(5e-5 * 4 / 10)


def test_a_replica_that_joins_after_the_last_step_trains_nothing(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    trainer, _ = trainer_of(context_of(run), Watch(), max_steps=4)
    trainer.train()
    again, outer = trainer_of(context_of(run, attempt=2), Watch(), max_steps=4)
    again.train()
    assert outer.round == 1
    assert torch.equal(again.model.weight, trainer.model.weight)


def test_the_training_ends_when_the_replica_is_to_stop_and_its_rerun_continues_in_the_phase(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    context, watch = context_of(run), Watch()
    whole, _ = trainer_of(context_of(Run(tmp_path / "alone", replicas=1, min_participants=1)), Watch())
    whole.train()

    class Stop(TrainerCallback):
        """SIGTERM, in the middle of the second phase and at the end of the first epoch."""

        def on_step_begin(self, args: Any, state: Any, control: Any, **trainer: Any) -> None:
            if state.global_step == 5:
                context.stop.set()

    trainer, outer = trainer_of(context, watch)
    trainer.add_callback(Stop())
    with pytest.raises(StoppedError):
        trainer.train()
    assert list(watch.rates) == list(range(1, 7))
    assert outer.round == 1
    assert not results_of(run).exists()  # it has not finished
    # Nothing is trained again: the rerun continues in the middle of the phase.
    watch = Watch()
    again, outer = trainer_of(context_of(run, attempt=2), watch)
    again.train()
    assert list(watch.rates) == list(range(7, 19))
    assert again.model.seen == whole.model.seen[22:]
    assert [run.commit(round_).members[0].weight for round_ in range(1, 6)] == [16, 16, 16, 16, 8]
    assert {(run.commit(round_).expected_rounds, run.commit(round_).unit) for round_ in range(1, 6)} == {(5, "samples")}
    assert torch.allclose(again.model.weight, whole.model.weight)


def test_a_killed_trainer_continues_in_the_middle_of_a_phase_with_the_same_bits(tmp_path: Path) -> None:
    settings = {"noise": 0.3, "gradient_accumulation_steps": 1}
    alone = context_of(Run(tmp_path / "alone", replicas=1, min_participants=1))
    whole, _ = trainer_of(alone, Watch(), **settings)
    whole.train()
    assert whole.state.global_step == 33
    run, tiers = Run(tmp_path / "run", replicas=1, min_participants=1), CheckpointTiers(memory_every=1)
    # Within the first and the second of three epochs of eleven steps, and at the start of the third.
    for attempt, (begins, dies) in enumerate([(1, 4), (4, 18), (18, 23)], 1):
        watch = Watch(dies)
        trainer, _ = trainer_of(context_of(run, attempt=attempt, checkpoints=tiers), watch, **settings)
        with pytest.raises(Killed):
            trainer.train()
        assert list(watch.rates) == list(range(begins, dies))
    again, _ = trainer_of(context_of(run, attempt=4, checkpoints=tiers), Watch(), **settings)
    again.train()
    assert again.state.global_step == 33
    assert again.model.seen == whole.model.seen[-len(again.model.seen) :]
    assert torch.equal(again.model.weight, whole.model.weight)
    resumed = run.commit(6).members[0].resumed
    assert resumed is not None
    assert (resumed.tier, resumed.round, resumed.step) == ("disk", 5, 2)


def test_a_replica_weighs_the_examples_where_no_tokens_are_counted(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)
    trainer, _ = trainer_of(context_of(run), Watch(), max_steps=4)
    trainer.train()
    (member,) = run.commit(1).members
    assert member.weight == 4 * 2 * 2


def test_the_processes_of_a_replica_train_as_one(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=1, min_participants=1)

    def train(context: Context) -> None:
        trainer, _ = trainer_of(context, Watch(), max_steps=4, include_num_input_tokens_seen="all")
        trainer.train()

    with board_of_a_group() as board:
        members = [Member(InnerGroup(index, 2, index), board) for index in range(2)]
        port = free_port()
        all_succeed([partial(launched, run, 0, member, train, port) for member in members])
    (member,) = run.commit(1).members
    # Tokens are counted for both processes together: four steps of two batches with two examples in each process.
    assert (member.parts, member.weight) == (2, 4 * 2 * 2 * 2)
    assert run.commit(1).unit == "tokens"


def test_settings_that_an_exchange_cannot_work_with_are_all_named(tmp_path: Path) -> None:
    context = context_of(Run(tmp_path / "run", replicas=1, min_participants=1))
    trainer, outer = trainer_of(context, Watch(), auto_find_batch_size=True)
    trainer.args.deepspeed = {"zero_optimization": {"stage": 3}}
    trainer.args.load_best_model_at_end = True
    trainer.state.global_step = 7
    with pytest.raises(ParametersError) as caught:
        outer.on_train_begin(
            trainer.args, trainer.state, trainer.control, model=trainer.model, optimizer=None, lr_scheduler=None
        )
    for name in ("deepspeed", "auto_find_batch_size", "load_best_model_at_end", "resume_from_checkpoint"):
        assert name in str(caught.value)
    with pytest.raises(ParametersError, match="context is of type str; allowed: the trainer's context"):
        DiLoCoCallback("run", Algorithm())  # type: ignore[arg-type]
    with pytest.raises(ParametersError, match="The training has not begun"):
        assert outer.round


def test_a_loop_of_accelerate_takes_part(tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    context, others = trained_apart(accelerate_loop.train, run)
    training = context.rendezvous.training
    assert training is not None
    assert training.state.round == 8
    assert [other.tobytes() for other in others] == [training.state.parameters.tobytes()]
    assert context.metrics.latest()["loss"] < 3.0
    # Five steps of two batches with eight sequences of sixteen tokens.
    assert [member.weight for member in run.commit(8).members] == [5 * 2 * 8 * 16] * 2
