"""Code that is delivered to a stock image: `muster launch` packs and uploads it, the container installs and runs it."""

from __future__ import annotations

import io
import json
import os
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from muster.contract.aws.failure_classes import FailureClass
from tests.support.workshop import own_calls

TRAIN = """
import json, pathlib
import numpy as np
from helper import parameters
import local_wheel
import muster
from muster.replica.frontends.array_diloco import DiLoCo

def train(context, *, rounds):
    values = parameters()
    outer = DiLoCo(context.rendezvous, values)
    while outer.round < rounds and not context.stop.is_set():
        values["w"] += local_wheel.STEP
        outer.step(1)
    where = {"muster": muster.__file__, "here": str(pathlib.Path.cwd()), "secret": pathlib.Path("secret.txt").exists()}
    (context.model_dir / "where.json").write_text(json.dumps(where))
"""
HELPER = """
import numpy as np

def parameters():
    return {"w": np.zeros(3, dtype=np.float32)}
"""


def write_wheel(folder: Path) -> None:
    """A wheel of one module, as small as a wheel can be."""
    with zipfile.ZipFile(folder / "local_wheel-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("local_wheel.py", "STEP = 1.0\n")
        info = "local_wheel-1.0.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: local-wheel\nVersion: 1.0\n")
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with a trainer, a helper, a requirement, and what must stay behind; the spec's file beside it."""
    folder = tmp_path / "code"
    (folder / "wheels").mkdir(parents=True)
    (folder / "training.py").write_text(TRAIN)
    (folder / "helper.py").write_text(HELPER)
    (folder / "secret.txt").write_text("stays here")
    (folder / ".musterignore").write_text("secret.*\n")
    (folder / "requirements.txt").write_text("--no-index\n./wheels/local_wheel-1.0-py3-none-any.whl\n")
    write_wheel(folder / "wheels")
    return folder


@pytest.fixture
def muster(stack, commands) -> Callable[..., dict[str, object]]:
    """`muster COMMAND` of a spec in the folder above that of the code, from elsewhere; its answer."""

    def run(folder: Path, spec: dict[str, object], command: str) -> dict[str, object]:
        path = folder.parent / "run.json"
        path.write_text(json.dumps(spec))
        outcome = commands.run((command, str(path), "--json"), Path.cwd(), stack.cloud.environment(os.environ))
        assert outcome.returncode == 0, outcome.stderr
        return json.loads(outcome.stdout)

    return run


def uploads(stack) -> int:
    """What the client has stored since the count began."""
    return own_calls(stack.cloud)["PutObject"]


def model(stack, run) -> dict[str, bytes]:
    job = stack.sagemaker.describe_training_job(TrainingJobName=run.job())
    key = job["ModelArtifacts"]["S3ModelArtifacts"].removeprefix(f"s3://{stack.bucket}/")
    with tarfile.open(fileobj=io.BytesIO(run.document(key))) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar if member.isfile()}


def test_a_folder_with_a_trainer_a_helper_and_a_requirement_runs_on_a_stock_image(stack, code, muster):
    spec = {
        "name": "delivered",
        "replicas": 2,
        "trainer": "training:train",
        "kwargs": {"rounds": 2},
        "source_dir": "code",
    }
    shown = muster(code, spec, "plan")
    assert uploads(stack) == 0, "a dry run uploads nothing"
    assert muster(code, spec, "launch")["run"] == "delivered"
    assert uploads(stack) == 1
    run = stack.run("delivered")
    assert run.wait()["status"] == "SUCCEEDED", run.describe().get("cause")
    key = shown["source"]["key"]
    uri = json.loads(run.document(run.layout.plan))["spec"]["source_dir"]
    assert uri == f"s3://{stack.bucket}/{key}"
    where = json.loads(model(stack, run)["where.json"])
    assert "/muster-package/" in where["muster"], "the replica came with the source, not from the image"
    assert (where["here"].endswith("/muster/source"), where["secret"]) == (True, False)
    # The same code again, from another folder: nothing is uploaded.
    stack.cloud.calls.reset()
    again = code.rename(code.parent / "elsewhere")
    os.utime(again / "helper.py", (1, 1))
    muster(again, {**spec, "name": "delivered-again", "source_dir": "elsewhere", "replicas": 1}, "launch")
    assert uploads(stack) == 0
    assert stack.run("delivered-again").wait()["status"] == "SUCCEEDED"


def test_an_entrypoint_runs_in_the_source_with_what_it_requires(stack, code, muster):
    (code / "script.py").write_text(
        "import subprocess, sys, helper, local_wheel, muster.replica.frontends.array_diloco\n"
        # As torchrun, which is a program of the image, starts the image's own Python.
        "subprocess.run([sys._base_executable, '-c', 'import helper, local_wheel'], check=True)\n"
        "sys.exit(int(sys.argv[1]))\n"
    )
    spec = {
        "name": "script",
        "replicas": 1,
        "entrypoint": ["python", "script.py"],
        "arguments": ["7"],
        "source_dir": "code",
    }
    muster(code, spec, "launch")
    ended = stack.run("script").wait()
    assert "exit code: 7" in ended["cause"]


def test_a_requirement_that_cannot_be_installed_is_told_and_not_tried_again(stack, code, muster):
    (code / "requirements.txt").write_text("--no-index\nno-such-package==1.0\n")
    spec = {"name": "unmet", "replicas": 1, "trainer": "training:train", "kwargs": {"rounds": 1}, "source_dir": "code"}
    muster(code, spec, "launch")
    run = stack.run("unmet")
    assert run.wait()["status"] == "FAILED"
    [attempt] = run.result().replicas[0].attempts
    assert attempt.failure_class is FailureClass.INVALID_REQUEST
    assert (
        "The source's requirements.txt cannot be installed: No matching distribution found for no-such"
        in attempt.reason
    )


def test_a_folder_in_a_spec_that_nobody_launches_is_refused(stack):
    ended = stack.start({"replicas": 1, "trainer": "training:train", "source_dir": "code"}).wait()
    assert "source_dir: found 'code', a local folder; start the run with `muster launch`" in ended["cause"]
