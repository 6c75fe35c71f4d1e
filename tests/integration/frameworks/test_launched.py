"""Examples that Muster's launcher starts as processes: a script for torchrun, and a loop with FSDP2, in one run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

from muster.contract.run.run_document import Manifest, RunDocument
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


def started(root: Path, rank: int, trainer: str, processes: int) -> subprocess.Popen[str]:
    """A replica of a run of two."""
    document = RunDocument(
        run="test",
        plan_digest="0",
        replicas=2,
        trainer=f"examples.frameworks.{trainer}:train",
        rendezvous_uri=f"{(root / 'rendezvous').as_uri()}/",
        min_participants=2,
        grace_seconds=60.0,
        timeout_seconds=120.0,
    )
    config = root / str(rank) / "input" / "config"
    config.mkdir(parents=True)
    listed = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
    (config / "resourceconfig.json").write_text(json.dumps(listed))
    (config / "document.json").write_bytes(document.to_json())
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "OMP_NUM_THREADS": "1",
        "MUSTER_DOCUMENT": (config / "document.json").as_uri(),
        "MUSTER_RUN": "test",
        "MUSTER_RANK": str(rank),
        "MUSTER_ATTEMPT": "1",
        "MUSTER_PROCESSES": str(processes),
        "TRAINING_JOB_NAME": f"job-{rank}",
        "SAGEMAKER_BASE_DIR": str(root / str(rank)),
    }
    command = [sys.executable, "-m", "tests.support.jobs.impatient_launcher"]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_torchrun_script_and_an_fsdp2_loop_train_one_model(tmp_path: Path) -> None:
    jobs = [started(tmp_path, 0, "torchrun_script", 1), started(tmp_path, 1, "fsdp2", 2)]
    try:
        # A job that fails ends this wait: the other would wait for it.
        wait_until("the jobs' ends", lambda: all(job.poll() == 0 for job in jobs) or any(job.poll() for job in jobs))
        failed = next((job for job in jobs if job.poll()), None)
        assert failed is None, failed.communicate()[0]
    finally:
        for job in jobs:
            job.kill()
            job.wait()
    manifests = [
        Manifest.from_json((tmp_path / str(rank) / "output" / "data" / "manifest.json").read_bytes(), str(rank))
        for rank in range(2)
    ]
    assert [manifest.round for manifest in manifests] == [8, 8]
    assert manifests[0].checksum == manifests[1].checksum
    assert manifests[1].metrics["loss"] < 3.2


def test_the_script_differs_in_seven_lines() -> None:
    lines = (ROOT / "examples" / "frameworks" / "torchrun_script.py").read_text(encoding="utf-8").splitlines()
    assert sum("# Muster:" in line for line in lines) == 7
