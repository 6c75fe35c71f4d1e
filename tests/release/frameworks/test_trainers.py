"""The trainers of Hugging Face and Lightning: a rerun continues at the run's step, what cannot work is refused."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from muster.contract.spec.checkpoint_tiers import CheckpointTiers
from muster.huggingface import Algorithm, Context, DiLoCoCallback
from muster.replica.rendezvous import Rendezvous
from muster.replica.replica_errors import ParametersError, StoppedError
from muster.replica.rounds import agreement
from muster.replica.statistics.metrics import Metrics
from muster.torch import DiLoCo
from tests.release.frameworks.processes import all_succeed, processes_of
from tests.release.frameworks.trainers import (
    EXAMPLES,
    LIBRARIES,
    Library,
    Module,
    Stream,
    Watch,
    fit_huggingface,
    fit_lightning,
    huggingface_trainer,
)
from tests.support.contexts import context_of, results_of
from tests.support.peers import Killed, Run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(params=LIBRARIES, ids=[library.name for library in LIBRARIES])
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", replicas=1, min_participants=1)


def undisturbed(library: Library, folder: Path, noise: float = 0.0, **settings: Any) -> Watch:
    """A training from its begin to its end."""
    watch = Watch(noise=noise)
    library.fit(context_of(Run(folder / "alone", replicas=1, min_participants=1)), watch, **settings)
    return watch


def test_a_rerun_continues_at_the_runs_step(library: Library, run: Run, tmp_path: Path) -> None:
    whole = undisturbed(library, tmp_path)
    assert list(whole.rates) == list(range(1, 19))
    with pytest.raises(Killed):
        library.fit(context_of(run), Watch(die_at=11))
    again = Watch()
    library.fit(context_of(run, attempt=2), again)
    assert again.round == 5
    # The second round was the last one: steps 9 and 10 are trained again, on the same data as without the restart.
    assert again.rates == pytest.approx({step: rate for step, rate in whole.rates.items() if step > 8})
    expected = library.rest(whole.seen)
    assert again.seen[: len(expected)] == expected
    assert again.validated == whole.validated[1:]


def test_a_killed_trainer_continues_in_the_middle_of_a_phase_with_the_same_bits(
    library: Library, run: Run, tmp_path: Path
) -> None:
    torch.manual_seed(5)
    whole = undisturbed(library, tmp_path, noise=0.3, batches=1)
    assert list(whole.rates) == list(range(1, 34))
    tiers = CheckpointTiers(memory_every=1)
    torch.manual_seed(5)
    for attempt, (begins, dies) in enumerate(pairwise((1, *library.deaths)), 1):
        watch = Watch(dies, 0.3)
        with pytest.raises(Killed):
            library.fit(context_of(run, attempt=attempt, checkpoints=tiers), watch, batches=1)
        assert list(watch.rates) == list(range(begins, dies))
    again = Watch(noise=0.3)
    library.fit(context_of(run, attempt=4, checkpoints=tiers), again, batches=1)
    begins = library.deaths[-1]
    assert list(again.rates) == list(range(begins, 34))
    assert again.seen == whole.seen[-len(again.seen) :]
    assert torch.equal(again.weight, whole.weight)
    round_, step = divmod(begins - 1, 4)
    resumed = run.commit(round_ + 1).members[0].resumed
    assert resumed is not None
    assert (resumed.tier, resumed.round, resumed.step) == ("disk", round_, step)


def test_the_training_ends_when_the_replica_is_to_stop_and_its_rerun_continues_in_the_phase(
    library: Library, run: Run, tmp_path: Path
) -> None:
    """SIGTERM comes in the middle of the second phase, at the end of the first epoch."""
    whole, context = undisturbed(library, tmp_path), context_of(run)
    stopped = Watch(before_step=lambda step: context.stop.set() if step == 6 else None)
    with pytest.raises(StoppedError):
        library.fit(context, stopped)
    assert list(stopped.rates) == list(range(1, 7))
    assert not results_of(run).exists()  # it has not finished
    # Nothing is trained again: the rerun continues in the middle of the phase.
    again = Watch()
    library.fit(context_of(run, attempt=2), again)
    assert list(again.rates) == list(range(7, 19))
    assert again.seen == whole.seen[22:]
    assert torch.allclose(again.weight, whole.weight)
    assert {(run.commit(round_).expected_rounds, run.commit(round_).unit) for round_ in range(1, 6)} == {(5, "samples")}


def test_a_replica_that_joins_after_the_last_step_trains_nothing(library: Library, run: Run) -> None:
    first, again = Watch(), Watch()
    library.fit(context_of(run), first, max_steps=4)
    # Where no tokens are counted, the examples are the weight.
    assert [member.weight for member in run.commit(1).members] == [4 * 2 * 2]
    library.fit(context_of(run, attempt=2), again, max_steps=4)
    assert again.round == 1
    assert torch.equal(again.weight, first.weight)


def rerun_after(fit: Any, run: Run, **settings: Any) -> list[int]:
    """The examples that a rerun sees of a training that was killed in its eleventh step."""
    with pytest.raises(Killed):
        fit(context_of(run), Watch(die_at=11), **settings)
    again = Watch()
    fit(context_of(run, attempt=2), again, **settings)
    return again.seen


def test_of_a_stream_with_a_length_hugging_face_reads_and_drops_what_the_run_has_trained(run: Run) -> None:
    seen = rerun_after(fit_huggingface, run, as_data=Stream)
    # The ninth step is the third one of the second pass.
    assert seen[:36] == [*range(8, EXAMPLES), *range(EXAMPLES)]


def test_of_a_stream_with_a_length_lightning_says_that_it_begins_at_its_start(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    seen = rerun_after(fit_lightning, run, loader=DataLoader(Stream([*range(EXAMPLES)]), 2))
    assert seen[0] == 0
    assert "event=data-from-start loader=DataLoader" in caplog.text


# --- Hugging Face ---------------------------------------------------------------------------------


def test_a_replica_that_was_left_out_is_as_far_as_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agreement, "grace_window", lambda *_: 0.0)
    run = Run(tmp_path / "run", replicas=2, min_participants=1)

    def ahead(step: int) -> None:
        """The other replica makes three rounds while this one makes its first step."""
        if step == 1:
            model = torch.nn.ParameterDict({"weight": torch.nn.Parameter(torch.ones(()))})
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            rendezvous = Rendezvous.open(run.context(), 1, 1, Metrics())
            quick = DiLoCo(rendezvous, model, optimizer, Algorithm(sync_every=4))
            while quick.round < 3:
                quick.step()

    watch = Watch(before_step=ahead)
    fit_huggingface(context_of(run, 0), watch, max_steps=20)
    assert watch.round == 5
    # After its first steps it may already see that its round is committed: then it does not make the others.
    assert [step for step in watch.rates if step not in {2, 3, 4}] == [1, *range(13, 21)]
    assert watch.rates[13] == pytest.approx(5e-5 * 8 / 20)


def test_the_processes_of_a_replica_train_as_one(run: Run) -> None:
    def train(context: Context) -> None:
        fit_huggingface(context, Watch(), max_steps=4, include_num_input_tokens_seen="all")

    with processes_of(run, 0, train, 2) as processes:
        all_succeed(processes)
    (member,) = run.commit(1).members
    # Tokens are counted for both processes together: four steps of two batches with two examples in each process.
    assert (member.parts, member.weight) == (2, 4 * 2 * 2 * 2)
    assert run.commit(1).unit == "tokens"


# --- what cannot work -----------------------------------------------------------------------------


def test_settings_of_hugging_face_that_an_exchange_cannot_work_with_are_all_named(run: Run) -> None:
    trainer, outer = huggingface_trainer(context_of(run), Watch(), auto_find_batch_size=True)
    trainer.args.deepspeed = {"zero_optimization": {"stage": 3}}
    trainer.args.load_best_model_at_end = True
    trainer.state.global_step = 7
    with pytest.raises(ParametersError) as caught:
        outer.on_train_begin(
            trainer.args, trainer.state, trainer.control, model=trainer.model, optimizer=None, lr_scheduler=None
        )
    for name in ("deepspeed", "auto_find_batch_size", "load_best_model_at_end", "resume_from_checkpoint"):
        assert name in str(caught.value)
    with pytest.raises(ParametersError, match="context is of type str"):
        DiLoCoCallback("run", Algorithm())  # type: ignore[arg-type]
    with pytest.raises(ParametersError, match="The training has not begun"):
        assert outer.round


class _Uncounted(LRScheduler):
    """A schedule that does not count its steps."""

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer

    def step(self) -> None:  # type: ignore[override]
        pass


class _Unscheduled(Module):
    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(self.parameters(), lr=1.0)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": _Uncounted(optimizer), "interval": "step"}}


def test_a_schedule_that_no_rerun_could_continue_is_refused_at_the_first_start(run: Run) -> None:
    context, refusal = context_of(run), "of type _Uncounted, which does not count its steps"
    with pytest.raises(ParametersError, match=refusal):
        fit_lightning(context, Watch(), kind=_Unscheduled)
    trainer, outer = huggingface_trainer(context, Watch())
    own: dict[str, Any] = {"model": trainer.model, "optimizer": None, "lr_scheduler": _Uncounted(None)}
    with pytest.raises(ParametersError, match=refusal):
        outer.on_train_begin(trainer.args, trainer.state, trainer.control, **own)


class _Manual(Module):
    def __init__(self, watch: Watch, outer: Any) -> None:
        super().__init__(watch, outer)
        self.automatic_optimization = False

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.parameters(), lr=1.0) for _ in range(2)], []


def test_settings_of_lightning_that_an_exchange_cannot_work_with_are_all_named(run: Run) -> None:
    with pytest.raises(ParametersError) as caught:
        fit_lightning(context_of(run), Watch(), batches=1, kind=_Manual)
    assert "automatic_optimization is False; allowed: True" in str(caught.value)
    assert "configure_optimizers returns 2 optimizers; allowed: 1" in str(caught.value)
