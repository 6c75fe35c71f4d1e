"""The committed schema of HyperPodPyTorchJob is the one that the pinned SDK of AWS gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = ROOT / "build" / "kubernetes" / "bin" / "python"
GENERATOR = ROOT / "tests" / "oracle" / "hyperpod_side" / "job_schema.py"
COMMITTED = ROOT / "muster" / "contract" / "hyperpod" / "job_schema.json"


def test_the_committed_schema_is_the_one_of_the_pinned_sdk() -> None:
    made = subprocess.run([PYTHON, GENERATOR], capture_output=True, text=True, check=True, timeout=60).stdout
    assert made == COMMITTED.read_text(encoding="utf-8"), "run `make job-schema`"
