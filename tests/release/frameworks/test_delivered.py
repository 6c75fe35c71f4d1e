"""Every starter, every example and a hooked program train with the package that a stack delivers."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.command_server import CommandServer
from tests.support.deployed import Deployed
from tests.support.source_patch import ROOT
from tests.support.starters import each_starter

EXAMPLES: dict[str, dict[str, Any]] = {
    "accelerate_loop": {},
    "fsdp2": {"processes": 2},
    "huggingface_lora": {"kwargs": {"max_steps": 4, "sync_every": 2}},
    "jax_model": {"kwargs": {"rounds": 2}},
    "lightning_module": {"kwargs": {"max_steps": 4, "sync_every": 2}},
    "torchrun_script": {},
}


@pytest.fixture
def launch(commands: CommandServer, stack: Deployed, tmp_path: Path) -> Any:
    """Starts the run of a spec in the folder of the test, as a user does, and waits for its success."""
    environment = stack.cloud.environment()

    def launched(spec: dict[str, Any]) -> None:
        (tmp_path / "run.yaml").write_text(yaml.safe_dump(spec), encoding="utf-8")
        ended = commands.run(["launch", "run.yaml", "--watch"], tmp_path, environment)
        assert ended.returncode == 0, ended.stdout + ended.stderr

    return launched


@each_starter
def test_a_starter_trains_where_it_is_delivered(
    framework: str, kwargs: dict[str, int], launch: Any, commands: CommandServer, tmp_path: Path
) -> None:
    written = commands.run(["init", ".", "--framework", framework, "--replicas", "2"], tmp_path, {})
    assert written.returncode == 0, written.stderr
    launch({**yaml.safe_load((tmp_path / "run.yaml").read_text(encoding="utf-8")), "kwargs": kwargs})


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_where_it_is_delivered(name: str, launch: Any, tmp_path: Path) -> None:
    for folder in ("frameworks", "char_gpt"):
        shutil.copytree(ROOT / "examples" / folder, tmp_path / "examples" / folder)
    launch({"replicas": 2, "source_dir": ".", "trainer": f"examples.frameworks.{name}:train", **EXAMPLES[name]})


HOOKED = """
import json, os
import lightning, torch

class Fit(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)

    def training_step(self, batch, index):
        return self.layer(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

with open(os.path.join(os.environ["SM_CHANNEL_TRAIN"], "rows.json")) as file:
    rows = torch.tensor(json.load(file)).float()
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(rows), batch_size=4)
trainer = lightning.Trainer(max_steps=4, accelerator="cpu", logger=False,
    default_root_dir=os.environ["SM_OUTPUT_DATA_DIR"], enable_checkpointing=False, enable_progress_bar=False)
trainer.fit(Fit(), data)
"""


def test_a_hooked_script_finds_its_channel_and_trains_where_it_is_delivered(
    launch: Any, stack: Deployed, commands: CommandServer, tmp_path: Path
) -> None:
    (tmp_path / "fit.py").write_text(HOOKED, encoding="utf-8")
    rows = [[float(row + column) for column in range(8)] for row in range(16)]
    stack.s3.create_bucket(Bucket="own-rows")
    stack.s3.put_object(Bucket="own-rows", Key="train/rows.json", Body=json.dumps(rows).encode())
    policy = {
        "Effect": "Allow",
        "Principal": {"AWS": stack.outputs["ReplicaRoleArn"]},
        "Action": ["s3:GetObject", "s3:ListBucket"],
        "Resource": ["arn:aws:s3:::own-rows", "arn:aws:s3:::own-rows/*"],
    }
    document = {"Version": "2012-10-17", "Statement": [policy]}
    stack.s3.put_bucket_policy(Bucket="own-rows", Policy=json.dumps(document))
    words = ["init", ".", "--from", "fit.py", "--replicas", "2", "--data", "s3://own-rows/train/"]
    assert commands.run(words, tmp_path, {}).returncode == 0
    spec = yaml.safe_load((tmp_path / "run.yaml").read_text(encoding="utf-8"))
    assert spec["hook"] == "lightning"
    launch({**spec, "kwargs": {"sync_every": 2}})


def test_every_example_is_here() -> None:
    files = {path.stem for path in (ROOT / "examples" / "frameworks").glob("*.py")}
    assert files - {"__init__", "sequences"} == EXAMPLES.keys()
