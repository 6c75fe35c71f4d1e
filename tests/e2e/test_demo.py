"""The demos as a newcomer runs them: a process, its files, its exit code, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from tests.support.page_data import data_in
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]


def start_demo(folder: Path, *arguments: str, of: str = "digits.demo", **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"examples.{of}", "--folder", str(folder), *arguments],
        cwd=ROOT,
        # A user's shell may point anywhere: the demo must not follow.
        env={**os.environ, "AWS_PROFILE": "nobody", "AWS_ENDPOINT_URL": "http://127.0.0.1:9", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def read_until(stream: IO[str], part: str) -> list[str]:
    """The lines up to the first one with `part`, or all."""
    lines = []
    for line in stream:
        lines.append(line)
        if part in line:
            break
    return lines


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_demo_loses_an_instance_and_succeeds(tmp_path: Path) -> None:
    demo = start_demo(tmp_path)
    output, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, output
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["verdict"] == "succeeded"
    assert report["replicas"] == 4
    assert report["attempts"] == {"0": 1, "1": 1, "2": 2, "3": 1}
    assert report["reruns"] == 1
    assert report["parameters_identical"] is True
    assert report["accuracy"] >= report["baseline_accuracy"] - 0.01 > 0.9
    assert report["wall_seconds"] > 0
    assert "terminated the instance of replica 2" in output
    # In whatever status the demo looked at it.
    assert re.search(r"replica 2 attempt 2 \w+ \(rerun: infrastructure\)", output)
    assert output.index("terminated the instance") < output.index("replica 2 attempt 2")
    assert "The run succeeded." in output
    assert f"The run's page, for a browser: {tmp_path / 'report.html'}" in output.splitlines()[-1]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "1 attempt was rerun (infrastructure). All replicas hold the same parameters." in page
    shown = data_in(page)
    assert shown["rounds"]["numbers"] == list(range(1, 21))
    assert {"loss", "accuracy", "utilisation"} <= {metric["name"] for metric in shown["rounds"]["metrics"]}
    lost, rerun = shown["replicas"][2]["attempts"]
    assert (lost["failure_class"], rerun["status"]) == ("infrastructure", "Completed")
    assert "Training" in [step["secondary"] for step in lost["history"]]


def test_the_demo_on_a_cluster_loses_a_node_grows_a_replica_and_succeeds(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, of="digits.hyperpod_demo")
    output, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, output
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["problems"] == []
    assert report["parameters_identical"] is True
    assert report["accuracy"] >= report["baseline_accuracy"] - 0.01 > 0.9
    assert report["restarts"]["2"] >= 1 or report["attempts"]["2"] > 1
    assert report["instances"]["3"] == 2
    assert "took the node of replica 2 away" in output
    shown = data_in((tmp_path / "report.html").read_text(encoding="utf-8"))
    assert shown["rounds"]["numbers"] == list(range(1, 21))
    places = {one["cluster"]["cluster"] for replica in shown["replicas"] for one in replica["attempts"]}
    assert places == {"muster-local"}
    steps = [step for one in shown["replicas"][2]["attempts"] for step in one["history"]]
    assert "Restarting" in [step["secondary"] for step in steps] or report["attempts"]["2"] > 1


def test_a_fault_that_the_demo_does_not_know_is_refused_in_one_line(tmp_path: Path) -> None:
    output, _ = (demo := start_demo(tmp_path, FAULTS="fire")).communicate(timeout=60)
    assert demo.returncode == 1
    assert "FAULTS is fire; allowed: quota, or leave it unset." in output
    assert "Traceback" not in output


# As examples/char_gpt/run.yaml, in seconds: so noisy that one replica alone is clearly behind.
SMALL_GPT = """\
replicas: 2
trainer: examples.char_gpt.trainer:train
kwargs: {steps: 200, sync_every: 10, outer_learning_rate: 0.9, outer_momentum: 0.5, learning_rate: 0.01,
  width: 16, layers: 1, heads: 2, length: 32, batch_size: 2}
instance_type: ml.m5.large
max_runtime_seconds: 600
"""


def test_the_gpt_demo_comes_near_to_data_parallel_with_two_processes_in_each_replica(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="make test installs it")
    (tmp_path / "small.yaml").write_text(SMALL_GPT)
    demo = start_demo(tmp_path, "--spec", str(tmp_path / "small.yaml"), of="char_gpt.demo", PROCESSES="2")
    output, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, output
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["verdict"] == "succeeded"
    assert report["processes"] == 2
    assert report["parameters_identical"] is True
    assert report["loss"] < (report["loss_alone"] + report["loss_data_parallel"]) / 2
    assert 0 < report["utilisation"] < 1
    assert "2 replicas, 20 exchanges: every 10 steps" in output
    assert "2   in each replica; each holds a part of the model (FSDP2)" in output
    assert "the same tokens, 200 exchanges" in output
    picture = (tmp_path / "losses.svg").read_text()
    assert "2 replicas with DiLoCo, 20 exchanges" in picture


@pytest.mark.parametrize(
    ("how", "environment", "seen"),
    [
        pytest.param(
            signal.SIGINT,
            {"FAULTS": "quota"},
            ["replica 1 waiting for quota", "replica 1 attempt 3"],
            id="while replicas train, one after two refusals for want of quota",
        ),
        pytest.param(signal.SIGTERM, {}, ["embedded cloud"], id="while the stack is deployed"),
    ],
)
def test_an_interrupted_demo_leaves_nothing_behind(
    tmp_path: Path, how: signal.Signals, environment: dict[str, str], seen: list[str]
) -> None:
    demo = start_demo(tmp_path, **environment)
    assert demo.stdout is not None
    lines = [line for part in seen for line in read_until(demo.stdout, part)]
    assert demo.poll() is None, lines
    service = json.loads((tmp_path / "cloud" / "local.json").read_text())["pid"]
    assert is_alive(service), lines
    demo.send_signal(how)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, rest
    assert "Interrupted. Everything that was started has been stopped." in rest
    assert "Traceback" not in rest
    wait_until("the end of the embedded cloud", lambda: not is_alive(service))


def test_a_demo_without_node_says_so_in_one_line(tmp_path: Path) -> None:
    demo = start_demo(tmp_path, PATH="/nowhere")
    output, _ = demo.communicate(timeout=60)
    assert demo.returncode == 1
    assert "Node.js is not on the PATH and the CDK needs it: install node 20 or newer from nodejs.org." in output
    assert "Traceback" not in output
    assert not (tmp_path / "cloud" / "local.json").exists()
