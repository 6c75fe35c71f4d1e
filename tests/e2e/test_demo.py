"""The demo of `make demo` as a newcomer runs it: a process, its files and its exit code."""

import json
import re
from pathlib import Path

from tests.support.demo_program import start_demo
from tests.support.page_data import data_in


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
