"""The scheduler in both versions of TorchX: what a dry run makes of workspaces and commands. Nothing is called."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
ENVIRONMENTS = ROOT / "build" / "torchx"

PROGRAM = """
import dataclasses, json, os, sys
from pathlib import Path
from torchx.components.dist import ddp
from torchx.components.utils import python
from torchx.runner import get_runner
from torchx.specs import AppDef, Role

folder = Path(sys.argv[1])
answers = {}

def script(**fields):
    return AppDef("app", [Role("app", "image:1", entrypoint="python", args=["train.py"], **fields)])

with get_runner("session") as runner:
    def dry(name, app, workspace=None, **options):
        try:
            request = runner.dryrun(app, "muster", options, workspace=workspace).request
        except Exception as error:
            answers[name] = {"error": str(error)}
            return
        answers[name] = json.loads(json.dumps(dataclasses.asdict(request)))
        source = request.spec.get("source_dir")
        answers[name]["files"] = sorted(os.listdir(source)) if source else None

    dry("folder", script(), str(folder))
    dry("uri", script(), f"file://{folder}")
    dry("none", script())
    dry("option", script(), str(folder), source_dir=str(folder / "other"), stack="Own")
    dry("empty", script(), str(folder / "empty"))
    dry("home", script(), os.environ["HOME"])
    dry("misspelled", python(image="image:1", script="trian.py"), str(folder))
    dry("ddp", ddp(image="image:1", script="trian.py", j="2x1"), str(folder))
    dry("ignoring", script(), str(folder / "ignoring"))
    if hasattr(script().roles[0], "workspace"):
        from torchx.specs import Workspace
        mapped = Workspace({str(folder): "", str(folder / "other"): "inner"})
        dry("mapped", script(workspace=mapped))
print(json.dumps(answers))
"""


@pytest.fixture(scope="module", params=["stable", "nightly"])
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each dry run has made, by its name; and the folder under `here`."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("train.py", "other/train.py", "other/helper.py", "ignoring/train.py", "ignoring/left.txt"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    (folder / "empty").mkdir()
    (folder / "ignoring" / "train.py").chmod(0o755)
    (folder / "ignoring" / ".torchxignore").write_text("left*\n")
    answer = subprocess.run(
        [str(ENVIRONMENTS / request.param / "bin" / "python"), "-W", "ignore", "-c", PROGRAM, str(folder)],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "HOME": str(folder / "other"),
            "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    return {**json.loads(answer.stdout.splitlines()[-1]), "here": str(folder), "version": request.param}


def test_a_workspace_becomes_the_source(answers: dict[str, Any]) -> None:
    here = answers["here"]
    assert answers["folder"]["spec"]["source_dir"] == here
    assert answers["uri"]["spec"]["source_dir"] == here
    assert answers["none"]["files"] is None
    assert answers["empty"]["files"] is None
    assert answers["ignoring"]["files"] == [".torchxignore", "train.py"]


def test_the_home_folder_is_not_shipped(answers: dict[str, Any]) -> None:
    assert (
        f"workspace: found {answers['here']}/other, which holds more than code; run torchx in"
        in answers["home"]["error"]
    )


def test_the_option_source_dir_comes_first(answers: dict[str, Any]) -> None:
    assert answers["option"]["spec"]["source_dir"] == f"{answers['here']}/other"


def test_a_request_is_json(answers: dict[str, Any]) -> None:
    assert (answers["option"]["stack"], answers["option"]["spec"]["image"]) == ("Own", "image:1")


@pytest.mark.parametrize("name", ["misspelled", "ddp"])
def test_a_script_that_is_not_in_the_workspace_is_refused(answers: dict[str, Any], name: str) -> None:
    assert (
        f"entrypoint: there is no file trian.py in {answers['here']}; did you mean train.py?" in answers[name]["error"]
    )


def test_the_workspace_of_a_role_is_merged(answers: dict[str, Any]) -> None:
    # TorchX 0.7.0 knows no workspace of a role.
    expected = {"train.py", "inner"} if answers["version"] == "nightly" else set()
    assert expected <= set(answers.get("mapped", {"files": []})["files"])
