"""The command as a user meets it: a process, its exit code, its lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

GOOD = "replicas: 2\ntrainer: package.module:train\n"
NOWHERE = "http://127.0.0.1:9"  # the discard port: nothing listens there


def muster(*arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    clean |= {
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_REGION": "us-east-1",
        "COLUMNS": "100",
        "NO_COLOR": "1",
    }
    command = [sys.executable, "-m", "muster.client.cli.program", *arguments]
    return subprocess.run(
        command, env=clean | environment, input=stdin, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.fixture
def good(tmp_path: Path) -> str:
    path = tmp_path / "run.yaml"
    path.write_text(GOOD)
    return str(path)


def test_plan_needs_no_cloud(good: str) -> None:
    answer = muster("plan", good, "--json")
    assert answer.returncode == 0, answer.stderr
    assert len(json.loads(answer.stdout)["requests"]) == 2


def test_a_broken_spec_is_reported_whole_before_anything_is_called() -> None:
    answer = muster("launch", "-", stdin="replicas: 0\ntrainr: a:b\nvolume_gb: big\n", AWS_ENDPOINT_URL=NOWHERE)
    assert answer.returncode == 2
    assert "The spec has 3 problems; nothing was created." in answer.stderr
    assert "replicas: found 0; at least 1" in answer.stderr
    assert "did you mean trainer?" in answer.stderr
    assert "volume_gb: found 'big'; write a whole number" in answer.stderr
    assert "Traceback" not in answer.stderr


def test_json_gives_errors_as_a_document_too() -> None:
    answer = muster("plan", "-", "--json", stdin="replicas: 0\ntrainer: m:f\n")
    error = json.loads(answer.stdout)["error"]
    assert (answer.returncode, error["code"]) == (2, "Muster.SpecError")
    assert error["problems"] == [{"field": "replicas", "found": "0", "allowed": "at least 1", "remedy": "raise it"}]


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({}, "No usable AWS credentials: Unable to locate credentials. Log in"),
        ({"AWS_PROFILE": "nobody"}, "No usable AWS credentials: The config profile (nobody) could not be found."),
        (
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": NOWHERE},
            'Could not connect to the endpoint URL: "http://127.0.0.1:9/". If this is the embedded cloud, start it',
        ),
        (
            {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "nonsense"},
            "Invalid endpoint: nonsense. If this is the embedded cloud",
        ),
        ({"AWS_REGION": "us east"}, "Provided region_name 'us east' doesn't match a supported format."),
        ({"AWS_REGION": ""}, "No AWS region is set: pass --region"),
    ],
    ids=["no credentials", "unknown profile", "dead endpoint", "malformed endpoint", "malformed region", "no region"],
)
def test_trouble_on_the_way_to_the_cloud_is_one_line(environment: dict[str, str], message: str) -> None:
    answer = muster("status", "digits", **environment)
    assert answer.returncode == 3
    assert message in answer.stderr
    assert answer.stderr.startswith("muster: ")
    assert answer.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("path", "message"), [("/nowhere/run.yaml", "no such file or directory"), ("/", "is a directory")]
)
def test_a_spec_that_cannot_be_read_is_one_line(path: str, message: str) -> None:
    answer = muster("plan", path)
    assert answer.returncode == 2
    assert answer.stderr == (
        f"muster: The spec {path} cannot be read: {message}. Name a YAML or JSON file, or - for standard input.\n"
    )


def test_help_names_the_mounted_commands_without_importing_them() -> None:
    code = (
        "import sys; from muster.client.cli.program import main; sys.argv = ['muster', '--help']\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "heavy = {'boto3', 'pydantic', 'muster.local.commands.cloud_commands'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert answer.returncode == 0, answer.stderr
    assert "local" in answer.stdout
    assert "faults" in answer.stdout


def test_init_writes_a_run_once(tmp_path: Path) -> None:
    folder = str(tmp_path / "first")
    written = muster("init", folder)
    assert written.returncode == 0, written.stderr
    assert written.stdout == (
        f"Wrote {folder}/run.yaml, {folder}/training.py.\n"
        f"Next: `muster plan {folder}/run.yaml` shows what it needs and costs, "
        f"`muster launch {folder}/run.yaml --watch` starts it.\n"
    )
    assert muster("plan", f"{folder}/run.yaml").returncode == 0
    Path(folder, "run.yaml").unlink()
    again = muster("init", folder, "--json")
    assert again.returncode == 2
    assert again.stderr == (
        f"muster: {folder}/training.py already exists; nothing was written. "
        "Name another folder, or - to print the spec.\n"
    )
    assert not Path(folder, "run.yaml").exists()


def test_a_local_trainer_is_shipped_and_its_mistakes_are_found_with_those_of_the_spec(tmp_path: Path) -> None:
    (tmp_path / "training.py").write_text("def train(context, rounds: int): pass\n")
    spec = tmp_path / "run.yaml"
    spec.write_text("replicas: 0\ntrainer: training:trian\n")
    answer = muster("launch", str(spec), AWS_ENDPOINT_URL=NOWHERE)
    assert answer.returncode == 2
    assert f"trainer: {tmp_path}/training.py has no function trian; did you mean train (" in answer.stderr
    assert "replicas: found 0; at least 1" in answer.stderr
    assert f"The source is the folder {tmp_path}, where the trainer's module is.\n" in answer.stderr
    spec.write_text("replicas: 1\ntrainer: training:train\nkwargs: {rounds: 3}\n")
    assert f"Source: 2 files, 10,240 bytes from {tmp_path}, as source/" in muster("plan", str(spec)).stdout
    spec.write_text("replicas: 1\ntrainer: training:train\nsource_dir: null\n")
    assert "Source:" not in muster("plan", str(spec)).stdout


def test_names_on_the_command_line_are_held_like_those_of_a_spec() -> None:
    launched = muster("launch", "-", "--name", "two words", stdin=GOOD, AWS_ENDPOINT_URL=NOWHERE)
    assert launched.returncode == 2
    assert "  - name: found 'two words'; " in launched.stderr
    begun = muster("init", "-", "--from", "train")
    assert begun.returncode == 2
    assert "  - trainer: found 'train'; " in begun.stderr
    assert "\ntrainer: package.module:train\n" in muster("init", "-", "--from", "package.module:train").stdout


def test_a_wrong_option_is_one_line_before_anything_is_called() -> None:
    answer = muster("list", "--state", "stopping", AWS_ENDPOINT_URL=NOWHERE)
    assert answer.returncode == 2
    assert answer.stderr == (
        "muster: --state: found 'stopping'; write one of running, succeeded, failed, stopped (did you mean stopped?).\n"
    )


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_shell_completes_commands(shell: str) -> None:
    words = {"_TYPER_COMPLETE_ARGS": "muster re", "COMP_WORDS": "muster re", "COMP_CWORD": "1"}
    action = {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    answer = muster(_MUSTER_COMPLETE=f"complete_{shell}", **words, **action)
    for command in ("result", "rerun"):
        assert command in answer.stdout, answer.stderr


def test_a_spec_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    answer = muster("init", str(tmp_path / "file"))
    assert answer.returncode == 2
    assert "/file cannot be written: file exists. Name another folder" in answer.stderr


def test_the_version_is_printed() -> None:
    answer = muster("--version")
    assert (answer.returncode, answer.stdout) == (0, f"muster {version('muster-train')}\n")


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        ("muster.client.cli.launch_commands", "botocore boto3 rich muster.control pathspec"),
        ("muster.client.cli.inspect_commands", "boto3 rich muster.contract.spec.spec muster.client.runs.run_status"),
        ("muster.client.cli.watch_commands", "boto3 rich muster.contract.spec.spec muster.report.page_model"),
    ],
)
def test_a_command_imports_only_what_it_needs(module: str, heavy: str) -> None:
    code = f"import sys, {module}; print(*sorted(set({heavy.split()}) & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == ""
