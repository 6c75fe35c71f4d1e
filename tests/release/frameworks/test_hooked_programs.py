"""Unmodified programs of Hugging Face and Lightning train together."""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import lightning.pytorch as lightning
import numpy as np
import pytest
import torch

from muster.contract.run.run_document import Manifest, RunDocument
from muster.contract.spec.hook import HOOKED, hooked_kwargs
from muster.replica.entry.hooked_program import train
from muster.replica.replica_errors import InputError, OutOfMemoryError, ParametersError, StoppedError, TrainerError
from tests.release.frameworks.processes import trained_apart
from tests.support.contexts import context_of, results_of
from tests.support.peers import Run

# A program as people write them: it knows nothing of Muster. Each replica has data of its own in its channel.
_DATA = "import json, sys\nfrom pathlib import Path\nrows = json.loads(Path(sys.argv[1]).read_text())\n"
HUGGINGFACE = (
    _DATA
    + """
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

if __name__ == "__main__":
    set_seed(0)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, max_position_embeddings=16))
    model = get_peft_model(base, LoraConfig(task_type="CAUSAL_LM", r=2, target_modules=["q_proj"]))
    arguments = TrainingArguments(output_dir=sys.argv[2], max_steps=6, per_device_train_batch_size=2, use_cpu=True,
        learning_rate=1e-2, save_strategy="no", report_to="none", disable_tqdm=True)
    trainer = Trainer(model, arguments, train_dataset=[{"input_ids": row, "labels": row} for row in rows])
    trainer.train()
    model.save_pretrained(sys.argv[2])
    sys.exit(0)
"""
)
LIGHTNING = (
    _DATA
    + """
import lightning
import torch


class Fit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


lightning.seed_everything(0, verbose=False)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(rows).float()), batch_size=4)
trainer = lightning.Trainer(max_steps=6, accelerator="cpu", default_root_dir=sys.argv[2], logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=lightning.Callback())
module = Fit()
trainer.fit(module, data)
torch.save(module.state_dict(), sys.argv[2] + "/fitted.pt")
"""
)


@pytest.fixture(autouse=True)
def one_thread() -> None:
    torch.set_num_threads(1)


def program(folder: Path, source: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(source)
    return folder / "train.py"


def data(folder: Path, rank: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    rows = np.random.default_rng(rank).integers(0, 32, (32, 8)).tolist()
    (folder / f"data-{rank}.json").write_text(repr(rows))
    return folder / f"data-{rank}.json"


def hooked(library: str, source: str, tmp_path: Path) -> Callable[[Any], None]:
    script = program(tmp_path / "source", source)

    def work(context: Any) -> None:
        words = [str(script), str(data(tmp_path, context.rank)), str(context.output_dir)]
        with suppress(SystemExit):
            train(context, library=library, program=words, algorithm={"sync_every": 2, "momentum": 0.5})

    return work


@pytest.mark.parametrize(("library", "source"), [("huggingface", HUGGINGFACE), ("lightning", LIGHTNING)])
def test_replicas_of_an_unmodified_program_end_with_the_same_bits(library: str, source: str, tmp_path: Path) -> None:
    run = Run(tmp_path / "run", replicas=2, min_participants=2)
    context, (other,) = trained_apart(hooked(library, source, tmp_path), run)
    training = context.rendezvous.departure.training
    assert training is not None
    assert training.state.round == 3
    assert other.tobytes() == training.state.parameters.tobytes()
    assert sorted(member.rank for member in run.commit(3).members) == [0, 1]
    # What the program itself saves after its training are the run's parameters.
    if library == "lightning":
        saved = torch.load(context.output_dir / "fitted.pt")
        assert saved["layer.weight"].numpy().tobytes() in training.state.parameters.tobytes()
    else:
        names = {path.name for path in (results_of(run) / "model").iterdir()}
        assert {"adapter_config.json", "adapter_model.safetensors"} <= names


_UNTRAINED = "import lightning.pytorch as lightning\nlightning.Trainer(max_steps=1, logger=False, accelerator='cpu')\n"
_TWICE = LIGHTNING + "\nlightning.Trainer(max_steps=9, accelerator='cpu', logger=False).fit(Fit(), data)\n"
_STOPPED = """
import lightning.pytorch as lightning
from muster.replica.replica_errors import StoppedError
raise StoppedError
"""


def test_what_can_be_wrong_with_a_program(tmp_path: Path) -> None:
    before = list(sys.argv), list(sys.path), lightning.Trainer.__init__
    programs: list[tuple[str, type[Exception], str | None]] = [
        ("print('no trainer')", TrainerError, "ended without making a lightning.pytorch.Trainer, to which"),
        (_UNTRAINED, TrainerError, "made a lightning.pytorch.Trainer, and ended before it trained"),
        (_TWICE, ParametersError, "already joined the rendezvous: put all parameters into one DiLoCo"),
        ("import sys\nsys.exit('no data')", TrainerError, r"train.py exited: no data"),
        ("raise ValueError('no data')", TrainerError, r"train.py failed: (.*/)?train.py:1: ValueError: no data"),
        ("raise MemoryError('much')", OutOfMemoryError, "train.py failed: .*MemoryError: much"),
        (_STOPPED, StoppedError, None),
    ]
    for number, (source, error, words) in enumerate(programs):
        folder = tmp_path / str(number)
        with pytest.raises(error, match=words):
            hooked("lightning", source, folder)(context_of(Run(folder / "run", replicas=1, min_participants=1)))
        assert before == (list(sys.argv), list(sys.path), lightning.Trainer.__init__), source


def test_what_can_be_wrong_with_the_input(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = partial(train, context_of(Run(tmp_path / "run", replicas=1, min_participants=1)), library="lightning")
    with pytest.raises(InputError, match=r"there is no file gone.py in "):
        call(program=["gone.py"], algorithm={"sync_every": 2})
    with pytest.raises(InputError, match=r"settings of the algorithm: .*momentum is 2"):
        call(program=["gone.py"], algorithm={"sync_every": 2, "momentum": 2})
    monkeypatch.setitem(sys.modules, "lightning.pytorch", None)
    with pytest.raises(InputError, match=r"hook needs lightning.pytorch, "):
        call(program=["gone.py"], algorithm={"sync_every": 2})


def test_a_replica_runs_a_module_with_its_arguments(tmp_path: Path) -> None:
    """As the container does: `python -m muster.replica` with the run document of such a spec."""
    program(tmp_path / "package", LIGHTNING.replace("import json", "from . import beside\nimport json"))
    (tmp_path / "package" / "beside.py").write_text("")
    base = tmp_path / "ml"
    base.mkdir()
    words = ["-m", "package.train", str(data(tmp_path, 0)), str(tmp_path)]
    document = RunDocument(
        run="test", plan_digest="0", replicas=1, trainer=HOOKED, min_participants=1, grace_seconds=0.2,
        kwargs=hooked_kwargs("lightning", words, {"sync_every": 4}), timeout_seconds=120.0,
        rendezvous_uri=f"{(tmp_path / 'rendezvous').as_uri()}/",
    )  # fmt: skip
    (tmp_path / "document.json").write_bytes(document.to_json())
    variables = {"MUSTER_RUN": "test", "MUSTER_RANK": "0", "MUSTER_ATTEMPT": "1", "SAGEMAKER_BASE_DIR": str(base)}
    outcome = subprocess.run(
        [sys.executable, "-P", "-m", "muster.replica"],
        cwd=tmp_path,
        env={**os.environ, **variables, "MUSTER_DOCUMENT": (tmp_path / "document.json").as_uri()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert (tmp_path / "fitted.pt").exists()
    manifest = Manifest.from_json((base / "output" / "data" / "manifest.json").read_bytes(), "manifest")
    assert manifest.round == 2
