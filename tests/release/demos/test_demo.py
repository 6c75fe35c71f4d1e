"""The demos as a newcomer runs them, beside that of tests/e2e/test_demo.py: faults, a cluster, PyTorch, interrupts."""

import json
import signal
from pathlib import Path

import pytest

from tests.support.cloud_processes import alive
from tests.support.demo_program import start_demo
from tests.support.page_data import data_in
from tests.support.waiting import wait_until


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
    assert {one["cluster"]["cluster"] for each in shown["replicas"] for one in each["attempts"]} == {"muster-local"}


@pytest.mark.parametrize("which", ["seats_demo", "places_demo"])
def test_a_demo_of_replicas_that_come_go_and_move_succeeds(tmp_path: Path, which: str) -> None:
    demo = start_demo(tmp_path, of=f"digits.{which}")
    output, _ = demo.communicate(timeout=280)
    assert demo.returncode == 0, output
    report = json.loads((tmp_path / "result.json").read_text())
    assert report["problems"] == []
    assert report["parameters_identical"] is True
    assert data_in((tmp_path / "report.html").read_text(encoding="utf-8"))["replicas"]


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
    assert "2 replicas with DiLoCo, 20 exchanges" in (tmp_path / "losses.svg").read_text()


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
    for part in seen:
        assert next((line for line in demo.stdout if part in line), None), f"no line with {part!r}"
    service = json.loads((tmp_path / "cloud" / "local.json").read_text())["pid"]
    assert alive(service)
    demo.send_signal(how)
    rest, _ = demo.communicate(timeout=60)
    assert demo.returncode == 130, rest
    assert "Interrupted. Everything that was started has been stopped." in rest
    assert "Traceback" not in rest
    wait_until("the end of the embedded cloud", lambda: not alive(service))


def test_what_the_demo_cannot_do_is_one_line_before_anything_is_started(tmp_path: Path) -> None:
    output, _ = (demo := start_demo(tmp_path, FAULTS="fire")).communicate(timeout=60)
    shown = "FAULTS is fire; allowed: quota" in output
    assert (demo.returncode, shown, "Traceback" in output) == (1, True, False), output
    assert not (tmp_path / "cloud" / "local.json").exists()
