"""The examples of frameworks train as they are."""

import json
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from typer.testing import CliRunner

from examples.frameworks import accelerate_loop, fsdp2, huggingface_lora, lightning_module, torchrun_script
from muster.client.cli.program import app
from muster.replica.states.state_buffer import PlainArrays, packed_state, unpacked_state
from tests.release.frameworks.processes import all_succeed, processes_of, trained_apart
from tests.support.contexts import context_of, results_of, trained
from tests.support.peers import Run


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run", replicas=2, min_participants=2)


def losses(capture: pytest.CaptureFixture[str]) -> list[float]:
    """The losses that the processes have printed."""
    lines = capture.readouterr().out.splitlines()
    return [float(line.split()[0][5:]) for line in lines if line.startswith("loss=")]


def test_adapters_are_trained_together_and_load(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    # The keyword arguments are those of the example's recipe.
    spec = str(Path(huggingface_lora.__file__).with_suffix(".yaml"))
    shown = CliRunner().invoke(app, ["recipe", "resolve", spec, "--set", "max_steps=45", "--json"])
    kwargs = json.loads(shown.stdout)["document"]["training_config"]
    assert kwargs == {"max_steps": 45, "sync_every": 10, "per_device_batch": 4}
    context, others = trained_apart(lambda context: huggingface_lora.train(context, **kwargs), run)
    training = context.rendezvous.departure.training
    assert training is not None
    # Forty-five steps are four rounds of ten, and one of five.
    assert training.state.round == 5
    assert [other.tobytes() for other in others] == [training.state.parameters.tobytes()]
    assert all("lora_" in name for name in training.packing.shapes)
    found = losses(capfd)
    assert found[-1] < found[0]
    latest = context.metrics.latest()
    assert {"loss", "learning_rate", "tokens"} <= latest.keys()
    assert latest["tokens"] == 45 * 2 * 4 * 16
    loaded = PeftModel.from_pretrained(huggingface_lora._small(), str(results_of(run) / "model"))
    stored = {name.replace(".default", ""): value for name, value in loaded.named_parameters() if "lora_" in name}
    for name in training.packing.shapes:
        expected = torch.from_numpy(training.state.parameters[training.packing.span(name)])
        assert torch.equal(stored[name.replace(".default", "")].detach().reshape(-1), expected)


def test_a_loop_of_accelerate_takes_part(run: Run) -> None:
    context, others = trained_apart(accelerate_loop.train, run)
    training = context.rendezvous.departure.training
    assert training is not None
    assert training.state.round == 8
    assert [other.tobytes() for other in others] == [training.state.parameters.tobytes()]
    assert context.metrics.latest()["loss"] < 3.0
    # Five steps of two batches with eight sequences of sixteen tokens.
    assert [member.weight for member in run.commit(8).members] == [5 * 2 * 8 * 16] * 2


def test_a_module_of_lightning_is_trained_together(run: Run) -> None:
    contexts = [context_of(run, rank) for rank in range(2)]
    one, other = trained(lambda context: lightning_module.train(context, max_steps=45, sync_every=10), contexts)
    assert one.state.round == run.commit(5).expected_rounds == 5
    assert one.state.parameters.tobytes() == other.state.parameters.tobytes()
    latest = contexts[0].metrics.latest()
    assert latest["samples"] == 45 * 2 * 8
    assert latest["loss"] < 2.0


def test_a_torchrun_script_and_an_fsdp2_loop_train_one_model(run: Run, capfd: pytest.CaptureFixture[str]) -> None:
    torch.optim.AdamW([torch.zeros(1)])  # imports what the processes would import each
    with processes_of(run, 0, torchrun_script.train) as one, processes_of(run, 1, fsdp2.train, 2) as two:
        all_succeed([*one, *two])
    # Both processes of the second replica have contributed; each replica trained on its own 4 rounds of 5 steps.
    assert [(member.rank, member.parts, member.weight) for member in run.commit(4).members] == [
        (0, None, 5 * 8 * 16),
        (1, 2, 5 * 2 * 2 * 8 * 16),
    ]
    found = losses(capfd)
    assert len(found) == 4
    assert found[-1] < found[0] / 5


def train_jax(folder: Path, attempt: int, rounds: int) -> list[tuple[int, bytes, float]]:
    """What each replica of a run has trained: its rounds, its parameters and its loss."""
    from examples.frameworks import jax_model  # noqa: PLC0415

    run = Run(folder / "run", replicas=2, min_participants=2)
    contexts = [context_of(run, rank, attempt=attempt) for rank in range(2)]
    found = trained(lambda context: jax_model.train(context, rounds=rounds), contexts)
    return [
        (training.state.round, training.state.parameters.tobytes(), context.metrics.latest()["loss"])
        for training, context in zip(found, contexts, strict=True)
    ]


def test_a_model_in_jax_takes_part_and_goes_on_after_a_restart(tmp_path: Path) -> None:
    # In a process of its own: one that has loaded JAX must not fork, as other tests do.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        early = pool.submit(train_jax, tmp_path, 1, 4).result()
        one, other = pool.submit(train_jax, tmp_path, 2, 12).result()
    assert [round_ for round_, _, _ in early] == [4, 4]
    assert one[0] == other[0] == 12
    assert one[1] == other[1]
    assert one[2] < early[0][2] / 2


def state_of_jax() -> list[str]:
    """The types of a state's arrays and numbers in JAX, before and after they are saved."""
    from jax import numpy  # noqa: PLC0415

    types = (numpy.bfloat16, numpy.float8_e4m3fn, numpy.float32, numpy.int4)
    state = {"state": {0: [numpy.ones((2, 3), kind) for kind in types]}, "step": numpy.bfloat16(1.5)}
    found = unpacked_state(packed_state(state, PlainArrays()), PlainArrays())
    pairs = zip([*state["state"][0], state["step"]], [*found["state"][0], found["step"]], strict=True)
    return [f"{given.dtype}{given.shape} {read.dtype}{read.shape} {(given == read).all()}" for given, read in pairs]


def test_the_types_of_jax_come_back_as_they_were() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(state_of_jax).result()
    names = ("bfloat16(2, 3)", "float8_e4m3fn(2, 3)", "float32(2, 3)", "int4(2, 3)", "bfloat16()")
    assert found == [f"{name} {name} True" for name in names]
