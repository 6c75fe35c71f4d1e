"""Replicas of one, two and four real processes in one run, whose models are sharded in different ways."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from muster.contract.run.run_document import Manifest, RunDocument
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[3]


@dataclass
class Replica:
    """How many processes a replica has, and how they share the model."""

    processes: int = 1
    layout: str = ""


def run(root: Path, replicas: Sequence[Replica], algorithm: dict[str, Any], rounds: int = 3) -> list[Manifest]:
    """The manifests of a run's replicas."""
    layouts = {str(rank): replica.layout for rank, replica in enumerate(replicas)}
    document = RunDocument(
        run="test",
        plan_digest="0",
        replicas=len(replicas),
        trainer="tests.support.jobs.sharded_trainers:train",
        kwargs={"layouts": layouts, "rounds": rounds, "algorithm": algorithm},
        rendezvous_uri=f"{(root / 'rendezvous').as_uri()}/",
        min_participants=len(replicas),
        grace_seconds=60.0,
        timeout_seconds=120.0,
        snapshot_rounds=2,
    )
    root.mkdir(exist_ok=True)
    (root / "document.json").write_bytes(document.to_json())
    jobs = []
    for rank, replica in enumerate(replicas):
        config = root / str(rank) / "input" / "config"
        config.mkdir(parents=True)
        listed = {"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"}
        (config / "resourceconfig.json").write_text(json.dumps(listed))
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(ROOT),
            "OMP_NUM_THREADS": "1",
            "MUSTER_DOCUMENT": (root / "document.json").as_uri(),
            "MUSTER_RUN": "test",
            "MUSTER_RANK": str(rank),
            "MUSTER_ATTEMPT": "1",
            "MUSTER_PROCESSES": str(replica.processes),
            "TRAINING_JOB_NAME": f"job-{rank}",
            "SAGEMAKER_BASE_DIR": str(root / str(rank)),
        }
        command = [sys.executable, "-m", "tests.support.jobs.impatient_launcher"]
        jobs.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    try:
        # A job that fails ends this wait: the others would wait for it.
        wait_until("the jobs' ends", lambda: all(job.poll() == 0 for job in jobs) or any(job.poll() for job in jobs))
        failed = next((job for job in jobs if job.poll()), None)
        assert failed is None, failed.communicate()[0]
    finally:
        for job in jobs:
            job.kill()
            job.communicate()
    return [
        Manifest.from_json((root / str(rank) / "output" / "data" / "manifest.json").read_bytes(), str(rank))
        for rank in range(len(replicas))
    ]


ALONE = Replica()


@pytest.mark.parametrize(
    ("replicas", "algorithm"),
    [
        ([ALONE, Replica(2, "copied"), Replica(4, "fsdp")], {}),
        ([Replica(4, "hsdp"), Replica(4, "tensor"), Replica(2, "columns")], {"codec": "int8"}),
    ],
    ids=["copied-fsdp", "hsdp-tensor-columns"],
)
def test_the_result_has_the_bytes_of_unsharded_replicas(
    tmp_path: Path, replicas: list[Replica], algorithm: dict[str, Any]
) -> None:
    algorithm = {"sync_every": 2, **algorithm}
    alone = run(tmp_path / "alone", [ALONE] * 3, algorithm)
    mixed = run(tmp_path / "mixed", replicas, algorithm)
    checksums = {manifest.checksum for manifest in (*alone, *mixed)}
    assert len(checksums) == 1
    [alone_file], [mixed_file] = (
        list((tmp_path / name / "rendezvous").rglob("*.safetensors")) for name in ("alone", "mixed")
    )
    arrays = load_file(mixed_file)
    assert arrays["0.weight"].shape == (900, 37)
    assert arrays["scale"].shape == ()
    assert arrays["1.num_batches_tracked"].dtype == np.int64
    assert mixed_file.read_bytes() == alone_file.read_bytes()
