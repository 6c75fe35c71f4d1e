"""Real processes that share a model are killed in the middle of a phase, and continue after their last inner state."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="make test installs it")

from muster.contract.run.replica_variables import (
    ENV_ATTEMPT,
    ENV_DOCUMENT,
    ENV_LOCAL_STATES,
    ENV_PROCESSES,
    ENV_RANK,
    ENV_RUN,
)
from muster.contract.run.run_document import RunDocument
from muster.contract.run.source_delivery import ENV_BASE_DIR
from muster.contract.spec.checkpoint_tiers import CheckpointTiers

ROOT = Path(__file__).resolve().parents[3]
PROCESSES = 2


def lived(root: Path, attempt: int, tiers: CheckpointTiers | None, *, kill_at: int | None = None) -> tuple[str, str]:
    """What the processes of a replica have printed until their end, by their own or by SIGKILL after a step."""
    (root / "base").mkdir(parents=True, exist_ok=True)
    document = RunDocument(
        run="test",
        plan_digest="0",
        replicas=1,
        trainer="tests.support.jobs.inner_states:train",
        # What has been printed is seen a little later: without the wait, the processes would be steps further by then.
        kwargs={"steps": 60, "hold_at": kill_at},
        rendezvous_uri=f"{(root / 'rendezvous').as_uri()}/",
        min_participants=1,
        grace_seconds=60.0,
        timeout_seconds=120.0,
        checkpoints=tiers,
    )
    (root / "run.json").write_bytes(document.to_json())
    environment = {
        **os.environ,
        ENV_DOCUMENT: (root / "run.json").as_uri(),
        ENV_RUN: "test",
        ENV_RANK: "0",
        ENV_ATTEMPT: str(attempt),
        ENV_PROCESSES: str(PROCESSES),
        ENV_BASE_DIR: str(root / "base"),
        ENV_LOCAL_STATES: str(root / "disk"),
        "OMP_NUM_THREADS": "1",
    }
    out: list[str] = []
    with (root / "log").open("w+") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "muster.replica"],
            env=environment,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                out.append(line)
                if kill_at is not None and f"done={kill_at}\n" in line:
                    # The launcher: its processes end with it.
                    process.send_signal(signal.SIGKILL)
        finally:
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        log.seek(0)
        return "".join(out), log.read()


def numbers(out: str, name: str) -> list[int]:
    return [int(found) for found in re.findall(rf"{name}=(\d+)", out)]


def digests(out: str) -> set[str]:
    return set(re.findall(r"digest=(\w+)", out))


# Three times two processes import PyTorch: on a machine that reads it from a slow disk that takes minutes.
@pytest.mark.timeout(1_200)
def test_processes_that_share_a_model_continue_from_the_same_step_with_the_same_bits(tmp_path: Path) -> None:
    whole, log = lived(tmp_path / "whole", 1, None)
    assert len(digests(whole)) == 1, log
    root, tiers = tmp_path / "run", CheckpointTiers(memory_every=5, s3_every=10)
    first, log = lived(root, 1, tiers, kill_at=43)
    assert max(numbers(first, "done"), default=0) == 43, log
    second, log = lived(root, 2, tiers)
    begun = numbers(second, "begins_at")
    assert len(begun) == PROCESSES, log
    assert len(set(begun)) == 1
    # The last state may have been on its way.
    assert begun[0] in {35, 40}
    assert "event=resumed tier=disk round=1" in second + log
    assert digests(second) == digests(whole)
    assert not list((root / "disk").rglob("*.state"))
