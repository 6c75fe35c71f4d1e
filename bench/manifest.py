"""The cost of resolving the manifest of a job with 1 GiB of output.

The peer does what SageMaker's BaseTrainer does: it downloads the archive and opens it. Both run in a process of their
own against the same loopback S3.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from bench.large_archive import LargeArchive, large_archive, loopback_s3
from bench.table import Row
from muster.contract.run.run_document import Manifest

_MIB = 1 << 20
_SIZE = 1024 * _MIB
_OUTPUT, _JOB = "s3://bucket/output", "muster-bench-r0-a1"
_PATH = f"/bucket/output/{_JOB}/output/output.tar.gz"
_CHECKPOINT = "s3://bucket/checkpoints/final"


@dataclass(frozen=True)
class _Cost:
    sent_mib: float
    peak_mib: float
    added_mib: float
    seconds: float


def run() -> list[Row]:
    """Bytes, memory and time with the manifest first and, for comparison, last in the archive."""
    manifest = Manifest(checkpoint_s3_bucket=_CHECKPOINT, round=100, checksum="0" * 64).to_json()
    first = large_archive(_SIZE, manifest, manifest_first=True)
    ours, peer = _cost("muster", first), _cost("whole-archive", first)
    last = _cost("muster", large_archive(_SIZE, manifest, manifest_first=False))
    size = f"archive of {first.size / _MIB:,.0f} MiB"
    sent = f"{size}; bodies that left the server, all layouts tried"
    peak = "whole process: interpreter, boto3, pydantic and all; VmHWM"
    added = "above the same process with everything imported and the client made"
    return [
        Row("sent, manifest first", ours.sent_mib, "MiB", "<= 2", peer.sent_mib, sent),
        Row("peak resident, manifest first", ours.peak_mib, "MiB", "<= 64", peer.peak_mib, peak),
        Row("added resident, manifest first", ours.added_mib, "MiB", None, peer.added_mib, added),
        Row("time, manifest first", ours.seconds, "s", None, peer.seconds, "loopback"),
        Row("peak resident, manifest last", last.peak_mib, "MiB", "<= 64", None, peak),
        Row("time, manifest last", last.seconds, "s", None, None, "loopback; the whole archive is read"),
    ]


def _cost(way: str, archive: LargeArchive) -> _Cost:
    with loopback_s3(_PATH, archive) as service:
        command = [sys.executable, "-m", "bench.manifest_probe", way, service.url, _OUTPUT, _JOB]
        answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    probe = json.loads(answer)
    assert probe["checkpoint"] == _CHECKPOINT
    peak, before = probe["peak_mib"], probe["before_mib"]
    return _Cost(service.sent / _MIB, peak, peak - before, probe["seconds"])
